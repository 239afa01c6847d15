"""Does faults to a `System`, one after the other, as a schedule says. In: a system, a schedule, seconds. Out: each fault with its
times, when what failed is there again.

Limits change every few seconds beside all other faults."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle, islice
from typing import Final

import psutil

from tests.chaos.schedule import BROKERS, KINDS, PROXIES, WORKERS, Kind, Planned
from tests.chaos.system import LIMIT_LEFT, RATES, Proxy, System, quotas
from tests.real.proxies import wait_until

CHANGE: Final = 3.0
"""Seconds between two changes of limits."""
QUOTAS_CHANGED: Final = f"quotas changed every {CHANGE:g} s"
FORGETS: Final = "ledger killed"
"""What it knew of the last seconds may pass once more."""


class Faults:
    """The faults of one run."""

    def __init__(self, system: System, tell: Callable[[str], None]) -> None:
        self._system, self._tell = system, tell
        self._names = count()
        self._ways: dict[str, Callable[[Planned], None]] = {
            "broker killed": self._broker_killed,
            "broker frozen": self._broker_frozen,
            "brokers restarted one by one": self._brokers_restarted,
            "network of a broker cut": self._cut,
            "network of a broker slow": self._slow,
            "connections of a broker reset": self._reset,
            "disk filled up to its limit": self._disk,
            "proxy killed": self._proxy_killed,
            "proxy frozen": lambda fault: self._frozen(self._processes(self._proxy(fault)), fault.seconds),
            "worker killed": self._worker_killed,
            "worker frozen": lambda fault: self._frozen([self._worker(fault)], fault.seconds),
            "proxies restarted one by one": self._proxies_restarted,
            "ledger killed": self._ledger_killed,
            "ledger frozen": self._ledger_frozen,
            "certificate changed": self._certificate,
        }
        assert self._ways.keys() == {kind.name for kind in KINDS}

    def kinds(self) -> list[Kind]:
        """Those that can be done to this system."""
        there = [kind for kind in KINDS if not (self._system.direct and kind.proxies)]
        return [kind for kind in there if self._system.volumes or not kind.name.startswith("disk")]

    def play(self, schedule: Iterator[Planned], until: float) -> None:
        """Faults until this time (`time.monotonic`); a fault that has begun is ended."""
        with self._changing_quotas():
            for fault in schedule:
                if time.monotonic() + fault.pause + fault.seconds + fault.kind.back >= until:
                    break
                time.sleep(fault.pause)
                began = time.time()
                self._ways[fault.kind.name](fault)
                target = f"number {fault.target}" if fault.kind.of > 1 else "all"
                self._told(fault.kind.name, target, began)

    def _told(self, kind: str, target: str, began: float) -> None:
        self._tell(json.dumps({"fault": kind, "target": target, "at": began, "until": time.time()}))

    @contextmanager
    def _changing_quotas(self) -> Iterator[None]:
        over = threading.Event()
        began = time.time()

        def change() -> None:
            for rate in islice(cycle(RATES), 1, None):
                if over.wait(CHANGE):
                    return
                for proxy in self._system.proxies:
                    proxy.change(quotas=proxy.settings["quotas"] | quotas(rate))

        thread = threading.Thread(target=change, daemon=True)
        if self._system.proxies:
            thread.start()
        yield
        over.set()
        if self._system.proxies:
            thread.join()
            self._told(QUOTAS_CHANGED, "all", began)

    def _proxy(self, fault: Planned) -> Proxy:
        return self._system.proxies[fault.target % PROXIES]

    def _worker(self, fault: Planned) -> psutil.Process:
        proxy = self._system.proxies[fault.target // WORKERS]
        workers = wait_until(proxy.workers, "workers to be there")
        return workers[fault.target % WORKERS % len(workers)]

    def _processes(self, proxy: Proxy) -> list[psutil.Process]:
        assert proxy.process is not None
        return [psutil.Process(proxy.process.pid), *proxy.workers()]

    def _broker_killed(self, fault: Planned) -> None:
        self._system.kafka.kill_broker(fault.target)
        time.sleep(fault.seconds)
        self._system.kafka.start_broker(fault.target)

    def _broker_frozen(self, fault: Planned) -> None:
        node = self._system.kafka.node(fault.target)
        node.signal(signal.SIGSTOP)
        time.sleep(fault.seconds)
        node.signal(signal.SIGCONT)

    def _brokers_restarted(self, _: Planned) -> None:
        for number in range(BROKERS):
            self._system.kafka.stop_broker(number)
            self._system.kafka.start_broker(number)

    def _cut(self, fault: Planned) -> None:
        relay = self._system.relays[fault.target]
        self._system.run(relay.cut())
        time.sleep(fault.seconds)
        self._system.run(relay.mend())

    def _slow(self, fault: Planned) -> None:
        relay = self._system.relays[fault.target]
        relay.delay = 0.2
        time.sleep(fault.seconds)
        relay.delay = 0.0

    def _reset(self, fault: Planned) -> None:
        self._system.run(self._system.relays[fault.target].reset())

    def _disk(self, fault: Planned) -> None:
        """Something else takes space, until the proxies have to stop all who write."""
        volumes = self._system.volumes
        assert volumes is not None
        ballast = volumes.fill(fault.target, LIMIT_LEFT // 2)
        time.sleep(fault.seconds)
        ballast.unlink()

    def _proxy_killed(self, fault: Planned) -> None:
        """The process that supervises; its workers end by themselves."""
        proxy = self._proxy(fault)
        proxy.kill()
        time.sleep(fault.seconds)
        proxy.start()

    def _worker_killed(self, fault: Planned) -> None:
        self._worker(fault).kill()

    def _frozen(self, processes: list[psutil.Process], seconds: float) -> None:
        for process in processes:
            process.suspend()
        time.sleep(seconds)
        for process in processes:
            try:
                process.resume()
            except psutil.NoSuchProcess:
                continue  # a worker that answered nothing was replaced

    def _proxies_restarted(self, _: Planned) -> None:
        for proxy in self._system.proxies:
            code = proxy.stop()
            assert code == 0, f"a proxy that was stopped ended with exit code {code}"
            proxy.start()

    def _ledger_killed(self, fault: Planned) -> None:
        self._system.store.kill()
        time.sleep(fault.seconds)
        self._system.store.start()

    def _ledger_frozen(self, fault: Planned) -> None:
        self._system.store.freeze()
        time.sleep(fault.seconds)
        self._system.store.thaw()

    def _certificate(self, _: Planned) -> None:
        self._system.certificate(f"server{next(self._names)}")
