"""How many examples property tests try. In: how many find defects that are rare. Out: settings for Hypothesis.

Before a push they try a tenth of them, always the same ones: a test that fails then fails because of the change, and seeded defects
(`make mutants`) are caught by these as well. `make test-all` (`--nightly`) tries all of them, and others each time.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

ALL = 100
"""Examples of a test that says no number."""
SHARE = 10

# A machine that is busy with other tests makes no example wrong.
_ANY_MACHINE: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("push", max_examples=ALL // SHARE, derandomize=True, **_ANY_MACHINE)
settings.register_profile("nightly", max_examples=ALL, print_blob=True, **_ANY_MACHINE)


def share(count: int) -> int:
    """So many at night, and a tenth of them before a push."""
    return max(1, count * settings.default.max_examples // ALL)


def examples(count: int, **more: Any) -> settings:
    """A share of so many examples. A decorator, as `settings` is; `more` is of its arguments."""
    return settings(max_examples=share(count), **more)
