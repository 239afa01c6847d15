"""How tests are shared out to several workers of pytest-xdist (`make test`). In: the tests of a run. Out: which worker runs which,
and in which order.

The tests of a file stay together, as its fixtures are shared by them; so do files that share a Spark session. Only where what they
share is made in a moment, and they take minutes, tests of one file are units of their own (`PARTS`).
What takes longest comes first. Files that share a cluster come one after the other in the same worker, as long as there are
others for the other workers, so that each cluster is started once and ends early (`tests/cluster_pool.py`). So do files whose tests
mostly wait: else several workers wait at the same time, and nobody uses the processors. Nothing depends on it: in any other order,
and in one process, tests pass as well.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

SPARK = "spark"
TOGETHER = {SPARK: ("tests/reports/", "tests/example/test_report.py", "tests/chart/test_entrypoint.py")}
"""Name → the beginnings of paths. They are a unit, as a file is otherwise. The demo, with a Spark of its own for a moment, is none
of Spark's: a unit that takes too long is the one that all others wait for in the end."""

PARTS = {"tests/chart/test_api_server.py": 2}
"""Files → how many units their tests are dealt to, in turn."""

CLUSTERS = ("kafka1", "kafka3", "tenants1", "tenants3", "secure_kafka")
"""Fixtures that several files share."""

WAITING = "waiting"
MOSTLY_WAIT = (
    "tests/clients/test_limits.py",
    "tests/fleet/test_ledger.py",
    "tests/loadtest/test_scenario.py",
    "tests/process/test_workers.py",
)
"""Files that take far longer than they take of a processor (`--cpu` has both)."""

SECONDS = {
    SPARK: 350,
    "tests/demo/test_demo_command.py": 160,
    "tests/real/test_loadtest.py": 155,
    "tests/isolation/": 115,
    "tests/real/test_client_quotas.py": 70,
    "tests/real/test_ledger_topic.py": 70,
    "tests/real/test_workers.py": 65,
    "tests/real/test_clients.py": 65,
    "tests/real/test_storage.py": 60,
    "tests/localkafka/test_local_cluster.py": 55,
    "tests/real/test_mutations.py": 55,
    "tests/real/test_rates.py": 50,
    "tests/real/test_topic_rates.py": 50,
    "tests/real/test_upstream_faults.py": 50,
    "tests/real/test_refused_produce.py": 50,
    "tests/real/test_ledger.py": 50,
    "tests/real/test_confirmed_topics.py": 50,
    "tests/real/test_tenants.py": 45,
    "tests/fleet/test_store.py": 40,
    "tests/real/test_sasl_clients.py": 35,
    "tests/localkafka/test_local_jars.py": 35,
    "tests/real/": 25,
    "tests/example/": 20,
    "tests/localkafka/test_local_repository.py": 20,
    "tests/contracts/test_parallel.py": 20,
    "tests/chart/test_rendered.py": 20,
    "tests/clients/test_limits.py": 20,
    "tests/clients/test_console_page.py": 18,
    "tests/fleet/test_ledger.py": 15,
    "tests/bench/test_bench.py": 13,
    "tests/chart/test_refused.py": 13,
    "tests/contracts/test_wheel.py": 12,
    "tests/localkafka/": 10,
    "tests/process/test_workers.py": 10,
    "tests/docs/": 10,
    "tests/simulation/": 10,
    "tests/quota/test_fleet.py": 7,
    "tests/loadtest/test_scenario.py": 7,
    "tests/contracts/test_make_venv.py": 7,
    "tests/chart/test_api_server.py": 70,
    "tests/chart/test_controller.py": 50,
    "tests/chart/": 7,
    "tests/fuzz/": 5,
    "tests/": 3,
}
"""Units, or the beginnings of their paths → seconds, measured (`--cpu`, November 2026); the first that fits counts."""


def import_own_part(root: Path, ignored: tuple[str, ...]) -> None:
    """Import those of the test modules that are the part of this worker, before it collects all of them. Python and pytest keep
    what they compiled: so in a fresh clone each worker compiles a part, where all would compile everything at the same time.
    `ignored`: beginnings of paths that are not collected."""
    number, count = (int(os.environ[name].removeprefix("gw")) for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"))
    packages = {path.parent for path in root.glob("tests/**/__init__.py")}
    modules = [path for path in sorted(root.glob("tests/**/test_*.py")) if path.parent in packages]
    for path in [path for path in modules if not str(path).startswith(ignored)][number::count]:
        with suppress(Exception, pytest.skip.Exception), warnings.catch_warnings():  # collecting it will say what is wrong
            warnings.simplefilter("ignore")
            importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


def unit_of(path: str) -> str:
    """What runs together with the tests of this file."""
    return next((name for name, starts in TOGETHER.items() if path.startswith(starts)), path)


def part_of(path: str, number: int) -> str:
    """The unit of the `number`th test of a file (from 0)."""
    return f"{unit_of(path)}::{number % PARTS[path]}" if path in PARTS else unit_of(path)


def seconds_of(unit: str) -> int:
    return next(seconds for start, seconds in SECONDS.items() if unit.startswith(start))


def clusters_of(text: str) -> frozenset[str]:
    """The clusters that a test file asks for by name, or by the fixture `proxy` of `tests/real`."""
    named = {name for name in CLUSTERS if re.search(rf"\b{name}\b", text)}
    own_proxy = re.search(r"^def proxy\(", text, re.MULTILINE)
    if not own_proxy and re.search(r"^def test_\w+\([^)]*\bproxy: ProxyProcess\b", text, re.MULTILINE):
        named.add("kafka3")
    return frozenset(named)


def needs_of(unit: str, root: Path) -> frozenset[str]:
    """What one worker at a time has, as long as there is something else to do: clusters, and the time for waiting."""
    if unit in TOGETHER:
        return frozenset()
    return clusters_of((root / unit.partition("::")[0]).read_text()) | ({WAITING} if unit in MOSTLY_WAIT else set())


def choose(left: dict[str, frozenset[str]], own: frozenset[str], taken: frozenset[str]) -> str:
    """The unit that a worker gets. `left`: unit → what it needs; `own`: what that needed which the worker got before; `taken`: the
    same of all workers."""

    def worth(unit: str) -> tuple[bool, int, int]:
        needs = left[unit]
        return not (needs - own) & taken, len(needs & own), seconds_of(unit)

    return max(left, key=worth)


def scheduler(config: pytest.Config, log: Any) -> Any:
    """A scheduler of pytest-xdist that works as this module says."""
    from xdist.scheduler import LoadScopeScheduling

    class LongestFirst(LoadScopeScheduling):
        def __init__(self) -> None:
            super().__init__(config, log)
            self._needs: dict[str, frozenset[str]] = {}
            self._own: dict[Any, frozenset[str]] = {}
            self._units: dict[str, str] = {}
            self._seen: Counter[str] = Counter()

        def _split_scope(self, nodeid: str) -> str:
            if nodeid not in self._units:
                path = nodeid.split("::", 1)[0]
                self._units[nodeid] = unit = part_of(path, self._seen[path])
                self._seen[path] += 1
                if unit not in self._needs:
                    self._needs[unit] = needs_of(unit, config.rootpath)
            return self._units[nodeid]

        def remove_node(self, node: Any) -> str | None:
            """A worker has ended. If it crashed, others get its units, but none that is done: who has nothing to run reports
            nothing, and so gets nothing more, and the run never ends."""
            units = self.assigned_work[node]
            self.assigned_work[node] = {unit: tests for unit, tests in units.items() if not all(tests.values())}
            crashed: str | None = super().remove_node(node)
            return crashed

        def _reschedule(self, node: Any) -> None:
            """A worker begins a test when it knows the next one, or that there is none. So it is told: one that comes for a worker
            that crashed may get a single test, and nothing that it reports would make the scheduler look at it again."""
            if node not in self.registered_collections:
                return
            super()._reschedule(node)
            while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

        def _assign_work_unit(self, node: Any) -> None:
            own = self._own.get(node, frozenset())
            left = {unit: self._needs[unit] for unit in self.workqueue}
            unit = choose(left, own, frozenset().union(*self._own.values()))
            self._own[node] = self._needs[unit]
            self.workqueue.move_to_end(unit, last=False)
            super()._assign_work_unit(node)

    return LongestFirst()
