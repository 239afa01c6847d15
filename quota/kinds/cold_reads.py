"""What a cold read is: one so far behind the end of the log that a broker has to read it from its disks, and forgets what others
read. The rate of such reads is a plain one (`cold_read_rate` in the catalogue)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COLD_READ_LAG: Final = 100_000


@dataclass(frozen=True, slots=True)
class ColdReads:
    """`lag`: offsets that records may be behind the high watermark of their partition and are not cold."""

    lag: int = COLD_READ_LAG
