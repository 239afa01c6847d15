"""How tests are shared out to several workers of pytest-xdist (`make test`). In: the tests of a run. Out: which worker runs which,
and in which order.

The tests of a file stay together, as its fixtures are shared by them; so do files that share a Spark session. Only where what they
share is made in a moment, and they take minutes, tests of one file are units of their own (`PARTS`).
What takes longest comes first. Files that share a cluster come one after the other in the same worker, as long as there are
others for the other workers, so that each cluster is started once and ends early (`tests/cluster_pool.py`). If they took longer
than all others, a second worker gets such a cluster, soon rather than at the end. Files whose tests mostly wait come one after the
other too: else several workers wait at the same time, and nobody uses the processors. Nothing depends on it: in any other order,
and in one process, tests pass as well.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.loopback import WORKER

SPARK = "spark"
TOGETHER = {SPARK: ("tests/reports/", "tests/example/test_report.py", "tests/chart/test_entrypoint.py")}
"""Name → the beginnings of paths. They are a unit, as a file is otherwise. The demo, with a Spark of its own for a moment, is none
of Spark's: a unit that takes too long is the one that all others wait for in the end."""

PARTS = {"tests/chart/test_api_server.py": 2}
"""Files → how many units their tests are dealt to, by their names."""

KAFKA = "pytest.mark.kafka"
"""What stands in each file that needs a cluster."""
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
    SPARK: 300,
    "tests/demo/test_demo_command.py": 155,
    "tests/real/test_loadtest.py": 155,
    "tests/isolation/": 145,
    "tests/real/test_workers.py": 85,
    "tests/real/test_ledger_topic.py": 80,
    "tests/real/test_storage.py": 75,
    "tests/real/test_clients.py": 75,
    "tests/chart/test_api_server.py": 105,
    "tests/real/test_client_quotas.py": 70,
    "tests/real/test_mutations.py": 60,
    "tests/localkafka/test_local_cluster.py": 55,
    "tests/real/test_refused_produce.py": 50,
    "tests/real/test_confirmed_topics.py": 50,
    "tests/real/test_ledger.py": 50,
    "tests/real/test_tenants.py": 50,
    "tests/chart/test_controller.py": 90,
    "tests/example/": 50,
    "tests/real/test_topic_rates.py": 47,
    "tests/real/test_upstream_faults.py": 47,
    "tests/real/test_rates.py": 47,
    "tests/real/test_flows.py": 45,
    "tests/real/test_every_api.py": 45,
    "tests/localkafka/test_local_jars.py": 45,
    "tests/real/test_broker_ids.py": 38,
    "tests/real/test_log_topic.py": 38,
    "tests/real/test_loadtest_results.py": 36,
    "tests/chart/test_rendered.py": 36,
    "tests/real/test_sasl_clients.py": 35,
    "tests/fleet/test_store.py": 35,
    "tests/real/test_overload.py": 32,
    "tests/real/test_client_libraries.py": 30,
    "tests/real/test_drain.py": 27,
    "tests/real/test_named_topics.py": 27,
    "tests/contracts/test_parallel.py": 25,
    "tests/localkafka/test_local_repository.py": 25,
    "tests/real/test_upstream_security.py": 12,
    "tests/real/test_console.py": 12,
    "tests/real/test_shield.py": 12,
    "tests/real/test_faults.py": 7,
    "tests/real/test_addresses.py": 5,
    "tests/real/test_systemd.py": 3,
    "tests/real/test_throttles.py": 2,
    "tests/real/test_workers_rate.py": 1,
    "tests/real/": 20,
    "tests/contracts/test_wheel.py": 20,
    "tests/process/test_workers.py": 19,
    "tests/clients/test_limits.py": 18,
    "tests/clients/test_console_page.py": 18,
    "tests/simulation/test_simulation.py": 18,
    "tests/chart/test_changes.py": 18,
    "tests/bench/test_bench.py": 16,
    "tests/chart/test_refused.py": 16,
    "tests/quota/test_fleet.py": 16,
    "tests/contracts/test_make_venv.py": 16,
    "tests/fuzz/test_compare.py": 16,
    "tests/fleet/test_ledger.py": 14,
    "tests/apis/test_produce_fast_path.py": 14,
    "tests/fuzz/test_sessions.py": 13,
    "tests/docs/test_troubleshooting.py": 12,
    "tests/contracts/test_compiled.py": 10,
    "tests/wire/test_items.py": 10,
    "tests/quota/test_producer_ids.py": 10,
    "tests/apis/test_throttle_time.py": 10,
    "tests/chart/test_scraped.py": 10,
    "tests/localkafka/test_local_tools.py": 9,
    "tests/localkafka/test_local_command.py": 9,
    "tests/docs/test_site.py": 8,
    "tests/quota/test_bloom.py": 8,
    "tests/loadtest/test_scenario.py": 7,
    "tests/process/test_signals.py": 7,
    "tests/chart/test_ship.py": 6,
    "tests/quota/test_algorithms.py": 6,
    "tests/session/test_steps.py": 6,
    "tests/localkafka/": 3,
    "tests/": 2,
}
"""Units, or the beginnings of their paths → seconds, measured (`--cpu`, November 2026); the first that fits counts."""


def import_own_part(root: Path, ignored: tuple[str, ...]) -> None:
    """Import those of the test modules that are the part of this worker, before it collects all of them. Python and pytest keep
    what they compiled: so in a fresh clone each worker compiles a part, where all would compile everything at the same time.
    `ignored`: beginnings of paths that are not collected."""
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    packages = {path.parent for path in root.glob("tests/**/__init__.py")}
    modules = [path for path in sorted(root.glob("tests/**/test_*.py")) if path.parent in packages]
    for path in [path for path in modules if not str(path).startswith(ignored)][WORKER::workers]:
        with suppress(Exception, pytest.skip.Exception), warnings.catch_warnings():  # collecting it will say what is wrong
            warnings.simplefilter("ignore")
            importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


def unit_of(test: str) -> str:
    """What runs together with this test. `test`: as pytest names it, or its file."""
    path = test.partition("::")[0]
    if (parts := PARTS.get(path)) is not None:
        return f"{path}::{crc32(test.encode()) % parts}"
    return next((name for name, starts in TOGETHER.items() if path.startswith(starts)), path)


@cache
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
    text = (root / unit.partition("::")[0]).read_text()
    clusters = clusters_of(text) if KAFKA in text else frozenset()
    return clusters | ({WAITING} if unit in MOSTLY_WAIT else set())


def choose(left: dict[str, frozenset[str]], own: frozenset[str], others: Sequence[frozenset[str]]) -> str:
    """The unit that a worker gets. `left`: unit → what it needs; `own`: what that needed which the worker got before; `others`: the
    same of each other worker."""
    length: Counter[str] = Counter()  # of all that needs it
    for unit, needs in left.items():
        length.update(dict.fromkeys(needs, seconds_of(unit)))
    share = sum(map(seconds_of, left)) / (1 + len(others))

    def free(need: str) -> bool:
        """Nobody else has it, or who has it would be the last to end."""
        workers = sum(need in taken for taken in others)
        return need in own or not workers or length[need] > workers * share

    def worth(unit: str) -> tuple[bool, int, int, int, int]:
        needs, seconds = left[unit], seconds_of(unit)
        return all(map(free, needs)), len(needs & own), max(seconds, *(length[need] for need in needs), 0), -len(needs), seconds

    return max(left, key=worth)


def scheduler(config: pytest.Config, log: Any) -> Any:
    """A scheduler of pytest-xdist that works as this module says."""
    from xdist.scheduler import LoadScopeScheduling

    class LongestFirst(LoadScopeScheduling):
        def __init__(self) -> None:
            super().__init__(config, log)
            self._needs: dict[str, frozenset[str]] = {}
            self._own: dict[Any, frozenset[str]] = {}

        def _split_scope(self, nodeid: str) -> str:
            unit = unit_of(nodeid)
            if unit not in self._needs:
                self._needs[unit] = needs_of(unit, config.rootpath)
            return unit

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
            unit = choose(left, own, [self._own.get(other, frozenset()) for other in self.nodes if other is not node])
            self._own[node] = self._needs[unit]
            self.workqueue.move_to_end(unit, last=False)
            super()._assign_work_unit(node)

    return LongestFirst()
