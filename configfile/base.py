"""What all models of settings have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from configfile.units import HostPort

Name = Annotated[str, Field(min_length=1)]
FileName = Annotated[str, Field(min_length=1)]

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def _as_written(schema: dict[str, Any]) -> None:
    """In a JSON schema sizes, durations and addresses are texts: so are their defaults. Numeric bounds do not apply to addresses;
    those of sizes and durations are for integers."""
    for setting in schema.get("properties", {}).values():
        if "string" not in setting.get("type", ""):
            continue
        if setting["type"] == "string":
            for bound in _BOUNDS:
                setting.pop(bound, None)
        default = setting.get("default")
        if isinstance(default, list | tuple):
            setting["default"] = str(HostPort(*default))
        elif isinstance(default, float):
            setting["default"] = f"{default:g}s"
        elif isinstance(default, int):
            setting["default"] = f"{default >> 20}MiB" if default % (1 << 20) == 0 else str(default)


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, json_schema_extra=_as_written)
