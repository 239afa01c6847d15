"""The operations log. In: what happens to the proxy. Out: lines on standard output, one per event, never one per frame: JSON for
programs, or text for people at a terminal.

Writing a line never raises: neither for what stands in it, nor when standard output is closed or its disk is full. Then the line
is lost, and clients are still served."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, BinaryIO, Final, TextIO, TypeAlias

import orjson
import structlog
from structlog.typing import FilteringBoundLogger

from proxy.observe.as_json import as_json

Log: TypeAlias = FilteringBoundLogger
_SHORT_TIME: Final = slice(11, 23)
"""The time of day in an ISO 8601 time, to the millisecond."""


def operations_log(level: str, form: str = "json", **always: str | int) -> Log:
    """A logger for lines of `level` and above; `always` stands in each of them. `form`: `json`, `text`, or `auto`, which is
    `text` where standard output is a terminal."""
    as_text = form == "text" or (form == "auto" and _is_terminal(sys.stdout))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            Text(colors=_is_terminal(sys.stdout)) if as_text else structlog.processors.JSONRenderer(serializer=_serialize),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=lambda *_: _Lines(sys.stdout.buffer),
        cache_logger_on_first_use=True,
    )
    log: Log = structlog.get_logger(**always)
    return log


def silent_log() -> Log:
    """A logger whose lines go nowhere: for what another process says."""
    log: Log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    return log


def _is_terminal(file: TextIO) -> bool:
    try:
        return file.isatty()
    except ValueError:  # it is closed
        return False


def _serialize(event: Any, **_: Any) -> bytes:
    return as_json(event)


class Text:
    """Renders an event for people. Names come from clients: whatever could steer a terminal is written as an escape."""

    def __init__(self, *, colors: bool) -> None:
        self._render = structlog.dev.ConsoleRenderer(
            colors=colors, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
        )

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> bytes:
        plain: dict[str, Any] = orjson.loads(as_json(event))
        shown = {_visible(key): _visible(value, keep="\n" if key == "exception" else "") for key, value in plain.items()}
        shown["timestamp"] = shown["timestamp"][_SHORT_TIME]
        return str(self._render(logger, method, shown)).encode(errors="replace")


def _visible(value: Any, keep: str = "") -> Any:
    """Texts in lists and mappings are shown by `repr`, which does the same."""
    if not isinstance(value, str):
        return value
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in value)


class _Lines:
    """Writes lines to a file, if that can be done."""

    def __init__(self, file: BinaryIO) -> None:
        self._lines = structlog.BytesLogger(file)

    def msg(self, line: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the file is closed
            self._lines.msg(line)

    debug = info = warning = error = critical = msg
