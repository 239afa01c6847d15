"""The operations log. In: what happens to the proxy. Out: JSON lines on standard output, one per event, never one per frame.

Writing a line never raises: neither for what stands in it, nor when standard output is closed or its disk is full. Then the line
is lost, and clients are still served."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any, BinaryIO

import structlog

from proxy.observe.as_json import as_json

Log = structlog.typing.FilteringBoundLogger


def operations_log(level: str, **always: str | int) -> Log:
    """A logger for lines of `level` and above; `always` stands in each of them."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_serialize),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=lambda *_: _Lines(sys.stdout.buffer),
        cache_logger_on_first_use=True,
    )
    log: Log = structlog.get_logger(**always)
    return log


def _serialize(event: Any, **_: Any) -> bytes:
    return as_json(event)


class _Lines:
    """Writes lines to a file, if that can be done."""

    def __init__(self, file: BinaryIO) -> None:
        self._lines = structlog.BytesLogger(file)

    def msg(self, line: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the file is closed
            self._lines.msg(line)

    debug = info = warning = error = critical = msg
