"""The operations log. In: what happens to the proxy. Out: JSON lines on standard output, one per event, never one per frame."""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson
import structlog

Log = structlog.typing.FilteringBoundLogger


def operations_log(level: str, **always: str) -> Log:
    """A logger for lines of `level` and above; `always` stands in each of them."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_serialize),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.BytesLoggerFactory(sys.stdout.buffer),
        cache_logger_on_first_use=True,
    )
    log: Log = structlog.get_logger(**always)
    return log


def _serialize(event: Any, **_: Any) -> bytes:
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS)
