"""Record batches as producers send them. In: values. Out: bytes, always the same for the same arguments."""

from __future__ import annotations

import datetime
from io import BytesIO

from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_new_batch
from kio.static.primitive import TZAwareMicros

WHEN = TZAwareMicros.parse(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))


def record_batch(*values: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1, transactional: bool = False) -> bytes:
    """One batch of magic 2, a record for each value."""
    records = tuple(
        Record(attributes=0, timestamp=WHEN, offset=i, key=None, value=value, headers=()) for i, value in enumerate(values)
    )
    out = BytesIO()
    write_new_batch(
        out,
        NewRecordBatch(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=0x10 if transactional else 0,
            partition_leader_epoch=-1,
            records=records,
        ),
    )
    return out.getvalue()
