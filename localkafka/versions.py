"""Which versions of Apache Kafka are tested, and what older ones cannot do.

In: a version as people write it. Out: the full version, its release as a pair of numbers. Leaves to others: what follows from it.
"""

import re

from localkafka.jars import DEFAULT_VERSION

Release = tuple[int, int]

TESTED = {"3.3": "3.3.2", "3.9": "3.9.1", "4.2": "4.2.0", "4.3": "4.3.1", "4.4": DEFAULT_VERSION}
"""Release -> the version that stands for it in tests, the oldest first; the last one is the default."""

LOG_DIRS_SINCE: Release = (3, 7)
"""Brokers without ZooKeeper take several log dirs (KIP-858)."""
SCRAM_SINCE: Release = (3, 5)
"""They keep SCRAM credentials (KIP-900)."""
FIRST_SNAPSHOT_SINCE: Release = (4, 4)
"""What a cluster begins with is the first snapshot of its metadata, not a file beside it (KIP-1170)."""


def full_version(version: str) -> str:
    """The version that stands for a release such as `3.9`; any other text as it is."""
    return TESTED.get(version, version)


def release_of(version: str) -> Release:
    """(4, 2) of 4.2.0. Errors: ValueError."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        raise ValueError(f"not a version of Apache Kafka: {version!r}")
    return int(found[1]), int(found[2])
