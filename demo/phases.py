"""Runs the scenario on running services. In: the services, parameters. Out: its result; a line on the screen for each phase."""

from __future__ import annotations

from contextlib import ExitStack

from configfile.load import FileError
from demo import figures, plan
from demo.errors import DemoError
from demo.screen import Screen, Tick
from demo.services import Services
from demo.verdict import seconds
from loadtest.endpoint import Cluster, EndpointError
from loadtest.results.model import PhaseResult, RunResult
from loadtest.results.progress import RunObserver
from loadtest.run import Options, RunError, run_once
from loadtest.scenario import load_scenario


class PhaseProgress(RunObserver):
    """Shows a line for each phase of the run."""

    def __init__(self, services: Services, screen: Screen) -> None:
        self._services, self._screen = services, screen
        self._bar, self._tick, self._began, self._settle_at = ExitStack(), None, 0.0, None
        self._more = ""

    _tick: Tick | None
    _settle_at: float | None
    """when the quotas beside those of the storms become `_more`"""

    def run(self, parameters: dict[str, str]) -> RunResult:
        """Raises DemoError, and errors of the services."""
        try:
            scenario = load_scenario(plan.SCENARIO, parameters)
            cluster = Cluster.at(self._services.proxy.bootstrap, self._services.access)
            with self._bar:
                return run_once(scenario, cluster, Options(clean_up=False), self)
        except (FileError, EndpointError, RunError) as error:
            self._services.check()
            raise DemoError(f"the load failed: {error}") from None

    def phase(self, name: str, length: float, now: float) -> None:
        self._bar.close()
        self._began, self._settle_at = now, None
        if name == plan.FLOOD:
            self._services.settle("")  # no thresholds of topics
            self._settle_at, self._more = now + plan.FAIR_AFTER, plan.OVERLOAD
        if name == plan.DISK:
            self._services.limit_disk()
            self._settle_at, self._more = now + length * plan.ROOM_AFTER, ""  # as if somebody had made room on the disk
        self._tick = self._bar.enter_context(self._screen.bar(plan.TITLES.get(name, "warming up"), length))

    def show(self, now: float) -> None:
        self._services.check()
        if self._settle_at is not None and now > self._settle_at:
            self._services.settle(self._more)
            self._settle_at = None
        if self._tick is not None:
            self._tick(now - self._began)

    def note(self, text: str) -> None:
        self._bar.close()
        self._screen.line(f"  {text}")

    def done(self, phase: PhaseResult) -> None:
        self._bar.close()
        self._services.check()
        if phase.name in (plan.FLOOD, plan.DISK):
            self._services.settle(more=None)
        if phase.name in plan.TITLES:
            self._screen.step(plan.TITLES[phase.name], _short(figures.felt(phase)))


def _short(felt: figures.Felt) -> str:
    if felt.produce and not felt.new_topics:
        return f"produce p99 of the orders {felt.produce.p99:.0f} ms"
    if not (felt.produce and felt.new_topics):
        return "nothing could be measured"
    least = "≥ " if felt.new_topics.pending else ""
    return f"produce p99 {felt.produce.p99:.0f} ms, new topics usable after {least}{seconds(felt.new_topics.median)}"
