"""What the producer id quota adds to a Produce request that is like earlier ones: `python -m tests.quota.cost_recognized`, with
KAFKA_QUOTA_PROXY_PURE=1 for pure Python. No test: figures are for people.

In: a request with one batch, again and again, through a session. Out: µs of CPU a request, least of several rounds, with nobody
counted, with everybody counted, and with a limit in each mode; and what each adds to the first."""

from __future__ import annotations

import time
from typing import Any

from quota.kinds.producer_ids import Mode
from tests.apis.test_produce_producer_ids import ANYONE
from tests.messages import batch, produce
from tests.support import World

REQUESTS, ROUNDS = 5_000, 15
CASES: dict[str, dict[str, Any]] = {
    "nobody is counted": {"count_unlimited": False},
    "counted, no limit": {},
    "a limit, throttle": {"producer_ids": {ANYONE: 100}},
    "a limit, reject": {"producer_ids": {ANYONE: 100}, "ids_mode": Mode.REJECT},
}


class Case:
    """A client of this proxy that sent the same before."""

    def __init__(self, world: World) -> None:
        self._dialogue = world.dialogue("alice")
        frame = produce(9, 1, batch(producer_id=7, epoch=0, sequence=0), acks=0)
        for _ in range(3):
            self._dialogue.client(frame)
        self._read = frame * 10
        self.least = float("inf")

    def round(self) -> None:
        """acks=0, so that nothing waits for an answer."""
        session, port, read = self._dialogue.session, self._dialogue.port, self._read
        start = time.process_time()
        for _ in range(REQUESTS // 10):
            session.client_bytes(read, 1.0)
        self.least = min(self.least, (time.process_time() - start) / REQUESTS)
        port.broker.clear()


def compare(cases: dict[str, Case], base: str) -> None:
    """Print what each case takes, and how much more than `base`."""
    for _ in range(ROUNDS):  # in turns, as the machine is not the same all the time
        for case in cases.values():
            case.round()
    least = cases[base].least
    for name, case in cases.items():
        print(f"{name:<20}{case.least * 1e6:8.2f} µs{(case.least - least) * 1e6:+8.2f}")


def main() -> None:
    compare({name: Case(World(**settings)) for name, settings in CASES.items()}, "nobody is counted")


if __name__ == "__main__":
    main()
