"""The settings of the limits in `quota.catalogue`. In: a row of the catalogue. Out: the type and default of its setting."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proxy.config.units import Size
from quota.catalogue import Key


def limit_field(key: Key, name: str) -> Any:
    """Type and default of a limit, as `create_model` wants them. `name`: another one than that of the row is deprecated."""
    number = Annotated[Size, Field(ge=1, le=key.maximum)] if key.size else _number(key.maximum)
    if name != key.name:
        return number | None, Field(None, description=f"Deprecated name of `{key.name}`.", json_schema_extra={"deprecated": True})
    return number | None, Field(None, description=key.help)


def _number(maximum: float) -> Any:
    return Annotated[float, Field(gt=0, le=maximum, allow_inf_nan=False)]
