"""Runs an attack once, with all victims beside it. In: an attack. Out: what each victim noticed, and what the attack took.

Proxies live as long as nobody is hurt; after that, new ones take their place, so that an attack is judged by what it did itself."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench.measure import memory
from benchmarks.isolation.attack import Attack
from benchmarks.isolation.attacker import AttackProcess, Tally, Target
from benchmarks.isolation.attacks import ATTACKS
from benchmarks.isolation.tenants import FULL, Tenants, settings, sharing
from benchmarks.isolation.victims import Noticed, Victims
from tests.conftest import QUICK_START
from tests.real.proxies import ProxyProcess, wait_until
from tests.redis_server import RedisServer, program

SECONDS = 1.2
"""How long alice is watched alone at least."""
LOOK = 0.2
"""Seconds between two looks at what the proxy holds."""
SETTLED = 30.0
"""Seconds that the proxy has to answer after an attack."""
WRITTEN = 60.0
"""Seconds that it has from then on to write its log: more than a busy machine takes."""
FAULTS = ("internal error", "usage log cannot be written")
"""Events of the operations log that nobody may cause."""


class Watch:
    """What a proxy holds at most while it is looked at: `held` bytes by its own account, `grown` bytes of RSS, `fences`,
    `connections`, `files` that it has open."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self.held = self.fences = self.connections = 0.0
        self.grown = self.files = 0
        self.failures: list[str] = []
        self._proxy = proxy
        self._before = memory(proxy.process.pid, "VmRSS")

    def look(self, seconds: float) -> None:
        """Again and again, for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(LOOK)
            self._once()

    def end(self) -> None:
        """Once more, when the attack is over."""
        deadline = time.monotonic() + SETTLED
        while not self._once():
            if time.monotonic() > deadline:
                self.failures.append(f"the proxy does not answer within {SETTLED:g} s after the attack")
                return
        deadline = time.monotonic() + WRITTEN
        while self._proxy.metric("usage_log_waiting_lines"):
            if time.monotonic() > deadline:
                self.failures.append(f"the usage log is not written within {WRITTEN:g} s after the attack")
                return
            time.sleep(LOOK)

    def _once(self) -> bool:
        pid = self._proxy.process.pid
        self.files = max(self.files, len(os.listdir(f"/proc/{pid}/fd")))
        self.grown = max(self.grown, memory(pid, "VmRSS") - self._before)
        try:
            figures = self._proxy.figures()
        except OSError:
            return False
        self.held = max(self.held, figures["memory_held_bytes"])
        self.connections = max(self.connections, figures["client_connections"])
        self.fences = max(self.fences, sum(value for name, value in figures.items() if name.startswith("sequence_fences{")))
        return True


@dataclass(frozen=True, slots=True)
class Outcome:
    """`noticed` by quota kind; `took`: what the proxy held at most; `partitions` that the attacker's topics had."""

    noticed: dict[str, Noticed]
    tally: Tally
    seconds: float
    took: Watch
    partitions: int
    written: dict[str, int]
    """records in topics on the volume that is full"""
    failures: list[str]
    """faults that the proxy tells of, a proxy that does not answer, a usage log that is not written"""


class Matrix:
    """All attacks, each run when its outcome is first asked for."""

    def __init__(self, tenants: Tenants, attackers: AttackProcess, folder: Path, ledger: str | None) -> None:
        self._tenants, self._attackers, self._folder, self._ledger = tenants, attackers, folder, ledger
        self._stack = ExitStack()
        self._proxies: list[ProxyProcess] = []
        self._generation = 0
        self._known: dict[str, Outcome] = {}
        self._written = dict.fromkeys(FULL, 0)

    def of(self, attack: Attack) -> Outcome:
        if attack.name not in self._known:
            self._known[attack.name] = self._run(attack)
        return self._known[attack.name]

    def alone(self) -> tuple[dict[str, Noticed], dict[str, float]]:
        """What the victims notice when nobody attacks; and by kind of quota, what a tenant used at most. What was used is no
        longer told some seconds later, so it is looked at meanwhile, and for longer where the machine is busy."""
        proxy = self._proxy()
        victims = self._victims(proxy)
        began, used = time.monotonic(), dict[str, float]()
        while (passed := time.monotonic() - began) < SECONDS or (passed < SETTLED and not all(used.values())):
            time.sleep(LOOK)
            for tenant in json.loads(proxy.get("/tenants")[1])["tenants"]:
                for quota in tenant["quotas"]:
                    used[quota["quota"]] = max(quota["usage"], used.get(quota["quota"], 0.0))
        return victims.finish(), used

    def close(self) -> None:
        self._stack.close()
        self._proxies = []

    def _run(self, attack: Attack) -> Outcome:
        proxy = self._proxy()
        user = f"mallory-{ATTACKS.index(attack)}"
        began = time.monotonic()
        victims = self._victims(proxy)
        watch = Watch(proxy)
        try:
            self._attackers.begin(attack.name, self._target(user))
            watch.look(attack.seconds)
            tally = self._attackers.end()
        finally:
            noticed = victims.finish()
        watch.end()
        written = {topic: self._tenants.end(topic) - had for topic, had in self._written.items()}
        made = self._tenants.remove(user + "-")
        told = [line for each in self._proxies for fault in FAULTS for line in each.lines(fault)]
        failures = watch.failures + [str(line) for line in told]
        found = Outcome(noticed, tally, time.monotonic() - began, watch, made, written, failures)
        if failures or any(each.hurt for each in noticed.values()) or any(written.values()):
            self._written = {topic: self._tenants.end(topic) for topic in FULL}
            self._give_up()
        return found

    def _victims(self, proxy: ProxyProcess) -> Victims:
        victims = Victims(proxy.bootstrap, self._tenants.written)
        victims.start()
        return victims

    def _target(self, user: str) -> Target:
        started = self._proxies[0].lines("started")[0]
        fleet = self._proxies[1].bootstrap if len(self._proxies) > 1 else None
        at = started["listeners"]
        return Target(at["main"], at["other"], at["balanced"], fleet, user, self._tenants.new_id())

    def _proxy(self) -> ProxyProcess:
        """The one that victims are at."""
        if not self._proxies:
            names = ("p0",) if self._ledger is None else ("p0", "p1")
            self._proxies = [self._stack.enter_context(self._new(name)) for name in names]
            for proxy in self._proxies:
                wait_until(lambda proxy=proxy: proxy.metric("storage_throttle_factor") == 0, "the full volume to be seen")
        return self._proxies[0]

    def _new(self, name: str) -> ProxyProcess:
        run = f"run-{self._generation}"  # what former proxies counted is not of these
        ledger = {} if self._ledger is None else {"ledger": {"kind": "redis", "servers": [self._ledger], "namespace": run}}
        given = {"proxy_id": name, **settings(self._tenants), **ledger}
        return ProxyProcess(self._folder / run / name, self._tenants.address, given)

    def _give_up(self) -> None:
        """These proxies are not used again; how they end is not looked at, as they were hurt."""
        for proxy in self._proxies:
            proxy.process.kill()
            proxy.process.wait()
        self._proxies = []
        self._generation += 1
        self._stack.pop_all()


@contextmanager
def matrix(folder: Path) -> Iterator[Matrix]:
    """With a fleet of two where there is a Redis."""
    with ExitStack() as stack:
        tenants = stack.enter_context(sharing(folder / "kafka", QUICK_START))
        attackers = stack.enter_context(AttackProcess())
        ledger = stack.enter_context(RedisServer(folder / "redis")).address if program() is not None else None
        made = Matrix(tenants, attackers, folder, ledger)
        stack.callback(made.close)
        yield made
