"""Room demo, play: the phases, one after the other.

In: a stage. Out: figures of each phase, and of the delivery of all records. Leaves to others: the parts (stage), the
arithmetic (figures).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from demo import figures, plan
from demo.clock import now
from demo.errors import DemoError
from demo.figures import Felt, PhaseFigures
from demo.processes import Program
from demo.stage import Stage

Tick = Callable[[float], None]
"""Told now and then how many seconds of a phase have passed."""

_POLL = 0.1  # seconds
_READER_LIMIT = 30.0  # seconds
_PRODUCER_LIMIT = 70.0  # seconds beyond the phase: to start, and to get the last records acknowledged


@dataclass(frozen=True)
class _Part:
    """The programs of one phase."""

    producer: Program
    newcomer: Program
    storms: dict[str, Program]

    @property
    def all(self) -> list[Program]:
        return [self.producer, self.newcomer, *self.storms.values()]


class Play:
    """Plays phases on a stage; the reader reads from before the first to after the last."""

    def __init__(self, stage: Stage, replicas: int) -> None:
        self._stage = stage
        self._replicas = replicas
        self._reader = stage.run("the reader", "reader", stage.bootstrap)
        self._producers: list[Program] = []

    def warm_up(self) -> None:
        """A phase that nobody measures."""
        with self._perform(plan.Phase(0, "warm-up"), plan.WARM_UP) as part:
            self._watch(part, plan.WARM_UP, lambda _passed: None)

    def phase(self, phase: plan.Phase, seconds: int, tick: Tick) -> PhaseFigures:
        """Play one phase of so many seconds. Errors: DemoError, NodeError."""
        with self._perform(phase, seconds) as part:
            self._watch(part, seconds, tick)
        return _figures(part, seconds)

    def finish(self) -> figures.Delivery:
        """Let the reader read the rest; what was delivered."""
        self._reader.end(_READER_LIMIT)
        records = [event for producer in self._producers for kind in ("unmeasured", "record") for event in producer.events(kind)]
        return figures.delivery(records, {event["id"] for event in self._reader.events("read")})

    @contextmanager
    def _perform(self, phase: plan.Phase, seconds: int) -> Iterator[_Part]:
        stage, name = self._stage, f"phase{phase.number}"
        storms = {storm.client_id: self._storm(storm, seconds) for storm in phase.storms}
        newcomer = stage.run(f"the newcomer of {name}", "newcomer", stage.bootstrap, seconds, f"team-{name}", self._replicas)
        producer = stage.run(f"the producer of {name}", "producer", stage.bootstrap, seconds, name)
        self._producers.append(producer)
        part = _Part(producer, newcomer, storms)
        try:
            yield part
        finally:
            for program in part.all:
                program.kill()

    def _storm(self, storm: plan.Storm, seconds: int) -> Program:
        shape = (storm.topics, storm.partitions, plan.storm_partitions(seconds))
        return self._stage.run(storm.client_id, "storm", storm.kind, self._stage.bootstrap, storm.client_id, *shape)

    def _watch(self, part: _Part, seconds: float, tick: Tick) -> None:
        """Wait until the producer is done."""
        begin = now()
        while part.producer.running:
            self._stage.check()
            for program in (self._reader, *part.all):
                program.check()
            if now() > begin + seconds + _PRODUCER_LIMIT:
                raise DemoError(f"{part.producer.name} was not done {_PRODUCER_LIMIT:.0f} s after its time")
            tick(min(now() - begin, seconds))
            time.sleep(_POLL)
        part.producer.check()


def _figures(part: _Part, seconds: int) -> PhaseFigures:
    begin, end = (float(next(part.producer.events(kind))["at"]) for kind in ("begin", "end"))
    records = [(event["due"] - begin, event["ms"]) for event in part.producer.events("record") if not event["error"]]
    asked = [(event["topic"], event["at"]) for event in part.newcomer.events("asked")]
    usable = {event["topic"]: event["seconds"] for event in part.newcomer.events("usable")}
    failed = {event["topic"] for event in part.newcomer.events("failed")}
    half = seconds / 2

    def felt(since: float, until: float) -> Felt:
        within = [(topic, at) for topic, at in asked if since <= at - begin < until]
        produced = [(due, ms) for due, ms in records if since <= due < until]
        return Felt(figures.latencies(produced), figures.waits(within, usable, failed, end))

    storms = {
        client_id: figures.storm_figures(list(program.events("sends")), list(program.events("answered")), end)
        for client_id, program in part.storms.items()
    }
    return PhaseFigures(seconds, felt(float("-inf"), float("inf")), felt(float("-inf"), half), felt(half, float("inf")), storms)
