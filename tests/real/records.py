"""Record batches as producers send them. In: values. Out: bytes, always the same for the same arguments."""

from loadtest.entities import WHEN, record_batch

__all__ = ["WHEN", "record_batch"]
