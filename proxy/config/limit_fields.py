"""The settings of the limits in `quota.catalogue`. In: a row of the catalogue. Out: the type and default of its setting."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proxy.config.units import Size
from quota.catalogue import Key


def limit_field(key: Key, name: str) -> Any:
    """Type and default of a limit, as `create_model` wants them. `name`: another one than that of the row is deprecated."""
    number = _number(key)
    if name != key.name:
        return number | None, Field(None, description=f"Deprecated name of `{key.name}`.", json_schema_extra={"deprecated": True})
    return number | None, Field(None, description=key.help)


def _number(key: Key) -> Any:
    if key.size:
        return Annotated[Size, Field(ge=1, le=key.maximum)]
    if key.whole:
        return Annotated[int, Field(ge=1, le=int(key.maximum))]
    return Annotated[float, Field(gt=0, le=key.maximum, allow_inf_nan=False)]
