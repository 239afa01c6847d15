"""Work that fails is tried again after delays that double, and from the first delay on after it has succeeded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proxy.backoff import Backoff, retry
from tests.fleet.simulated import run_simulated


async def times(outcomes: str, backoff: Backoff, failed: Callable[[Exception], None] = lambda _: None) -> list[float]:
    """When each attempt began. `f` is a failure, `s` a success after a second; other errors end it."""
    loop, began = asyncio.get_running_loop(), list[float]()
    script = iter(outcomes)

    async def work() -> None:
        began.append(loop.time())
        match next(script, None):
            case "f":
                raise OSError
            case "s":
                await asyncio.sleep(1)
            case _:
                raise LookupError

    with pytest.raises(LookupError):
        await retry(work, backoff, failed, OSError)
    return began


def test_delays_double_up_to_the_slowest_and_begin_anew_after_a_success() -> None:
    began = run_simulated(times("ffffsff", Backoff(0.25, 1.0)))
    assert began == pytest.approx([0, 0.25, 0.75, 1.75, 2.75, 3.75, 4.0, 4.5])


def test_the_first_delay_is_no_longer_than_the_slowest() -> None:
    assert run_simulated(times("ff", Backoff(9.0, 0.5))) == pytest.approx([0, 0.5, 1.0])


def test_who_is_told_of_a_failure_may_reset_the_delay() -> None:
    backoff = Backoff(0.25, 5.0)
    assert run_simulated(times("fff", backoff, lambda _: backoff.reset())) == pytest.approx([0, 0.25, 0.5, 0.75])
