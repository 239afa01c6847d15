"""What tenants and stored bytes cost where every other quota is on and nothing is exceeded, with the settings of `make bench`:
`python -m tests.quota.cost_every_quota`, with KAFKA_QUOTA_PROXY_PURE=1 for pure Python. No test: figures are for people.

CPU of a request and its answer in a session, without sockets, which cost as much again at least. Cases take turns of half a
millisecond, as the machine is not the same all the time, and a tenth of them is quicker than the figure that is shown. `--only CASE
SETTINGS READS` does one of them alone, for tools that count instructions (`valgrind --tool=callgrind`)."""

from __future__ import annotations

import statistics
import sys
import time
from random import Random
from typing import Any

from benchmarks.bench.__main__ import EVERY_QUOTA, QUOTAS
from proxy.config.limits import limits_of
from proxy.config.models import Settings
from tests.apis.produce_frames import records, write, written
from tests.messages import request
from tests.support import World
from tests.wire.test_fetch import fetched

ROUNDS, SHORT = 4_000, 0.0005
VERSION = 12
_THROTTLE = 9
"""Where an answer to Fetch says how long its client has to wait."""
WITHOUT, WITH = "without", "with tenants"


def calm(settings: dict[str, Any]) -> dict[str, Any]:
    """Without volumes, which nobody looks at here: those that are well cost nothing."""
    return settings | {"quotas": {name: it for name, it in settings["quotas"].items() if name != "storage"}}


SETTINGS: dict[str, dict[str, Any]] = {WITHOUT: calm(QUOTAS), "without again": calm(QUOTAS), WITH: calm(EVERY_QUOTA)}
"""the second is the noise"""
ONE = {("t1", 0): records(100)}
MANY = {(f"t{topic}", partition): records(1000) for topic in range(10) for partition in range(10)}


def frames(case: str) -> tuple[bytes, bytes, int]:
    """A read of requests, the answers to it, and how many there are."""
    if case == "fetch":
        answer = bytearray(fetched(VERSION, Random(3), ("t1", [1000] * 10)))
        answer[_THROTTLE : _THROTTLE + 4] = bytes(4)  # the broker throttles nobody
        return request(1, VERSION, 1, chance=Random(1)), bytes(answer), 1
    parts, count = {"produce": (ONE, 1), "ten produces in a read": (ONE, 10), "produce 10 x 10": (MANY, 1)}[case]
    asked = b"".join(write(parts, number) for number in range(count))
    return asked, b"".join(written(list(parts), number) for number in range(count)), count


CASES = ("produce", "ten produces in a read", "produce 10 x 10", "fetch")


class Case:
    """A client that sends the same again and again, and a broker that answers."""

    def __init__(self, case: str, settings: dict[str, Any], *, shared: bool = False) -> None:
        world = World()
        if shared:
            world.engine.publish()
        world.engine.change(limits_of(Settings.model_validate(settings)))
        for budget in world.engine.stored.budgets:
            budget.begin()
            budget.finish(0)
        self._dialogue = world.dialogue("ANONYMOUS")
        self._asked, self._answered, self.count = frames(case)
        for _ in range(3):  # the first one connects
            self._dialogue.client(self._asked)
            self._dialogue.broker(self._answered)
        self.took: list[float] = []

    def round(self, reads: int) -> None:
        session, port = self._dialogue.session, self._dialogue.port
        start = time.thread_time_ns()
        for _ in range(reads):
            session.client_bytes(self._asked, 1.0)
            session.broker_bytes(self._answered, 1.0)
        self.took.append((time.thread_time_ns() - start) / reads / self.count)
        assert len(b"".join(port.broker)) >= reads * len(self._asked)
        port.broker.clear()
        port.client.clear()


def main() -> None:
    if sys.argv[1:2] == ["--only"]:
        Case(sys.argv[2], SETTINGS[sys.argv[3]]).round(int(sys.argv[4]))
        return
    for case in CASES:
        made = {name: Case(case, settings) for name, settings in SETTINGS.items()}
        made |= {f"{name}, shared": Case(case, SETTINGS[name], shared=True) for name in (WITHOUT, WITH)}
        made[WITHOUT].round(200)
        reads = max(1, round(SHORT * 1e9 / (made[WITHOUT].took.pop() * made[WITHOUT].count)))
        for _ in range(ROUNDS):
            for one in made.values():
                one.round(reads)
        least = quantiles(made[WITHOUT].took)[0]
        for name, one in made.items():
            tenth = quantiles(one.took)[0]
            print(f"{case:<24}{name:<22}{tenth / 1e3:9.3f} µs{(tenth / least - 1) * 100:+7.1f} %")


def quantiles(took: list[float]) -> list[float]:
    """Of each tenth."""
    return statistics.quantiles(took, n=10)


if __name__ == "__main__":
    main()
