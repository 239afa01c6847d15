"""Why a proxy cannot start."""

from __future__ import annotations

import os


class StartError(Exception):
    """The proxy cannot start; the message says why and what would help."""


def reason_of(error: OSError) -> str:
    """What the system says."""
    return os.strerror(error.errno) if error.errno else str(error)
