"""docs/settings.md. In: the models. Out: Markdown with every setting, its default and its meaning."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from configfile.load import model_in
from proxy.config.models import Settings
from proxy.config.units import parse_duration, parse_size

_HEAD = """# Settings

Made from the models in `proxy/config/models.py` by `make docs`; a test fails when this page is out of date.
`kafka-quota-proxy check-config FILE` checks a file and names the key, the line and what would be right;
`kafka-quota-proxy check-config --print-schema` prints the JSON Schema.

Sizes are bytes or numbers with a unit (`64MiB`, `1GB`); durations are ISO 8601 (`PT1M`) or short (`30s`, `500ms`, `5m`);
addresses are `host:port`. Limits under `quotas.entities` are called as in `quotas alter`; the names
without `cluster_` that files of version 0.1 have (`producer_byte_rate`, `request_rate`, ...) are deprecated and still taken;
`check-config` names them.

| setting | default | meaning |
|---|---|---|
"""


def reference() -> str:
    """The page."""
    return _HEAD + "".join(f"| `{name}` | {default} | {text} |\n" for name, default, text in _rows(Settings, ""))


def _rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        if field.json_schema_extra == {"deprecated": True}:
            continue
        inner, shape = model_in(field.annotation), str(field.annotation)
        if inner is None or shape.startswith("dict"):  # sections by name have the settings of another section
            yield prefix + name, _default(field, prefix + name), " ".join((field.description or "").split())
            continue
        many = "[]" if shape.startswith("list") else ""
        if many or field.default is None:
            yield prefix + name + many, "none" if many else "not set", " ".join((inner.__doc__ or "").split())
        yield from _rows(inner, f"{prefix}{name}{many}.")


def _default(field: FieldInfo, name: str) -> str:
    if name == "proxy_id":
        return "the host's name"
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "not set"
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value) or "none"
    if value == {}:
        return "none"
    parsers = [part.func for part in field.metadata if isinstance(part, BeforeValidator)]
    if parse_size in parsers:
        return f"`{value >> 20}MiB`" if value >= 1 << 20 else f"`{value >> 10}KiB`"
    return f"`{value:g}s`" if parse_duration in parsers else f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
