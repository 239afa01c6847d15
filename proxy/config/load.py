"""The settings file as settings. In: a file, what the command line replaces. Out: `Settings`, or `SettingsError` with a line for
each mistake. How files are read and mistakes told stands in `configfile`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from configfile.load import FileError as SettingsError
from configfile.load import merge, read, validated
from proxy.config.models import Settings

__all__ = ["SettingsError", "load_settings"]

EXAMPLE: Final = "upstream: {bootstrap_servers: [kafka:9092]}"


def load_settings(
    path: Path | None, overrides: Mapping[str, Any] | None = None, every_listener: Mapping[str, Any] | None = None
) -> Settings:
    """The settings of a file (None: no file), with some replaced, e.g. {"upstream": {"bootstrap_servers": [...]}}, by
    the command line; `every_listener` is replaced in each of them."""
    data, lines = ({}, {}) if path is None else read(path, EXAMPLE)
    merged = merge(data, overrides or {})
    if every_listener:
        more = merged.get("more_listeners")
        merged["listen"] = _with(merged.get("listen", {}), every_listener)
        if isinstance(more, dict):
            merged["more_listeners"] = {name: _with(listener, every_listener) for name, listener in more.items()}
    settings = validated(Settings, merged, str(path) if path else "settings", lines)
    if path is not None:
        settings.stands_in(str(path), lines)
    return settings


def _with(section: Any, over: Mapping[str, Any]) -> Any:
    """A section with some settings replaced; what is no section stays, to be refused."""
    return {**section, **over} if isinstance(section, dict) else section
