"""How far a limit of stored bytes is passed on a real broker: `python -m tests.real.cost_stored_bytes [MB/s] [PROXIES]`.

Idempotent producers of librdkafka write at this pace in all (50 MB/s), through one proxy or several without a ledger, to a topic of
a tenant that may have 400 MB stored; looks are as by default (60 s, near the limit 5 s). When nothing went on for two looks, it
prints the pace that was reached until nine tenths of the limit and until the limit, and the most that was on the broker's disk."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.real.proxies import ProxyProcess
from tests.real.tenancy import access, tenant_cluster, upstream
from tests.real.test_stored_bytes import MB, create, on_disk

LIMIT, NEAR, RECORD, PRODUCERS = 400 * MB, 5.0, 10_000, 2
TENANTS: dict[str, Any] = {"apps": {"topic_prefixes": ["apps."], "stored_bytes_hard": LIMIT}}


class Load:
    """Producers that write together at a pace, in bytes per second."""

    def __init__(self, addresses: list[str], pace: float) -> None:
        more = {"enable.idempotence": True, "linger.ms": 5, "batch.size": 500_000, "log_level": 0}
        self._producers = [Producer(access(addresses[i % len(addresses)], **more)) for i in range(PRODUCERS * len(addresses))]
        self._pace, self._began, self._sent = pace, time.monotonic(), 0
        self.acknowledged = 0
        self.last = self._began
        """when the last record was written"""
        self.near = self._began
        """when nine tenths of the limit were written"""

    def reached(self, until: float, size: float) -> float:
        """The pace in MB per second if `size` bytes were written by the time `until`."""
        return size / MB / (until - self._began)

    def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            due = int(self._pace * (time.monotonic() - self._began)) // RECORD
            for _ in range(min(due - self._sent, 500)):
                try:
                    producer = self._producers[self._sent % len(self._producers)]
                    producer.produce("apps.a", bytes(RECORD), partition=self._sent % 3, on_delivery=self._written)
                except BufferError:
                    break
                self._sent += 1
            for producer in self._producers:
                producer.poll(0.001)

    def _written(self, error: object, _: object) -> None:
        assert error is None, error
        self.acknowledged += RECORD
        self.last = time.monotonic()
        if self.acknowledged <= 0.9 * LIMIT:
            self.near = self.last


def main(pace: float, proxies: int) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(tenant_cluster(1))
        create(kafka, "apps.a")
        settings = {"tenants": TENANTS, "upstream": upstream()}
        running = [stack.enter_context(ProxyProcess(folder / str(i), kafka.bootstrap_servers, settings)) for i in range(proxies)]
        load, most = Load([proxy.bootstrap for proxy in running], pace * MB), 0
        while time.monotonic() - load.last < 2 * NEAR + 1:
            load.run(0.5)
            most = max(most, on_disk(kafka, "apps."))
        near, all_of_it = load.reached(load.near, 0.9 * LIMIT), load.reached(load.last, load.acknowledged)
        print(
            f"{near:.1f} MB/s until nine tenths of the limit of {LIMIT / MB:.0f} MB, {all_of_it:.1f} MB/s until the limit;"
            f" at most {most / MB:.1f} MB were on disk"
        )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 50.0, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
