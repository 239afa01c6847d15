"""Runs one scenario once at one endpoint. In: a `Scenario`, a `Cluster`. Out: a `RunResult`; `RunError` if the run fails.

This process makes no load: it starts drivers for each phase, lets them begin together, hears their sums each second, reads back
what they wrote, and removes what the run made, whichever way it ends."""

from __future__ import annotations

import json
import queue
import secrets
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from configfile.access import Access
from loadtest import verify
from loadtest.drive.drivers import Drivers, DriversEnded, Forked, drivers
from loadtest.drive.job import ERROR, READY, REPORT, TICK, Job, Report, Start
from loadtest.drive.tally import merged
from loadtest.endpoint import CLIENT_ID, Cluster, EndpointError, librdkafka_settings, login_of, said
from loadtest.payload import Writer
from loadtest.results import checks, sampling
from loadtest.results.counts import Counts, Tick
from loadtest.results.faults import fault_of
from loadtest.results.model import (
    Delivery,
    Driver,
    DriverProcess,
    Endpoint,
    Event,
    PhaseResult,
    RunResult,
    TenantResult,
    Verification,
    Warning,
    WarningCode,
)
from loadtest.results.progress import RunObserver
from loadtest.results.sampling import Host, Sampler, Target, Tree
from loadtest.scenario import AnyLoad, Consume, CreateTopics, Load, NewTopics, Phase, Scenario, Tenant, Writing, assess
from loadtest.scenario import Event as Planned
from loadtest.units import MAX

PREFIX: Final = "loadtest-"
CONNECTED: Final = 90.0
"""Seconds for all clients to connect."""
AHEAD: Final = 0.5
"""Seconds between the start message and the start, so that all drivers have read it."""
GRACE: Final = 15.0
"""Seconds for operations in flight at the end of a phase. Clients that a quota holds back get HELD."""
HELD: Final = 2.0
ENDED: Final = 5.0
"""Seconds for a driver to end once its pipe is closed."""
LOST: Final = 60.0
"""Seconds after the end of a phase until a driver that says nothing is given up."""
PRODUCERS: Final = 1_000_000
"""Numbers of producers that each driver has for itself."""


class RunError(Exception):
    """The run failed. The message says why in one line."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is made."""

    run_id: str = field(default_factory=lambda: secrets.token_hex(4))
    index: int = 0
    count: int = 1
    watch: Mapping[str, Target] = field(default_factory=dict)
    clean_up: bool = True
    """Whether what the run made is removed at its end."""


@dataclass(slots=True)
class Process:
    """A driver, and what it said."""

    job: Job
    child: Forked
    report: Report | None = None
    error: str = ""
    ready: bool = False
    lost: bool = False


class Run:
    """One run. Others call only `make`."""

    def __init__(self, scenario: Scenario, cluster: Cluster, options: Options, observer: RunObserver) -> None:
        self.scenario, self.cluster, self.options = scenario, cluster, options
        self.observer = observer
        self.prefix = f"{PREFIX}{options.run_id}-{options.index}"
        self._topics = {name: topic.name or f"{self.prefix}-{name}" for name, topic in scenario.topics.items()}
        self._partitions: dict[str, int] = {}
        self._starts: verify.Offsets = {}
        self._producers = 1 + options.index * PRODUCERS
        self._written: list[verify.Written] = []
        self._readers: list[verify.Given] = []
        self._warnings: list[Warning] = []
        self._libraries: dict[str, str] = {}
        self._drivers: list[DriverProcess] = []
        self._busy = 0.0

    def make(self, name: str) -> RunResult:
        """`name`: how results call the endpoint. Raises RunError, EndpointError."""
        access = {tenant: self._access(tenant, one) for tenant, one in self.scenario.tenants.items()}
        began, started = time.monotonic(), time.time()
        try:
            self._prepare()
            phases = []
            with drivers() as forks, Sampler({"host": Host(), **self.options.watch}) as sampler:
                for i, phase in enumerate(self.scenario.phases):
                    if i and self.scenario.pause:
                        self.observer.note(f"pausing for {self.scenario.pause:g} s")
                        time.sleep(self.scenario.pause)
                    phases.append(self._phase(phase, access, sampler, forks))
                    self.observer.done(phases[-1])
                    if phase.clean_up:
                        began_removing = time.monotonic()
                        self.cluster.remove_topics(f"{self.prefix}-{phase.name}-")
                        took = time.monotonic() - began_removing
                        self.observer.note(f"the topics of phase {phase.name} were removed after {took:.1f} s")
            verification, deliveries = self._verify()
        finally:
            if self.options.clean_up:
                self._clean_up()
        result = RunResult(
            run_id=self.options.run_id,
            scenario=self.scenario.name,
            definition=self.scenario.model_dump(mode="json", exclude_defaults=True),
            endpoint=Endpoint(name=name, bootstrap=self.cluster.bootstrap, cluster_id=self.cluster.id),
            started=started,
            duration_s=time.monotonic() - began,
            driver_count=self.options.count,
            drivers=[
                Driver(
                    index=self.options.index,
                    machine=checks.machine(),
                    busy_s=self._busy,
                    libraries=self._libraries,
                    processes=self._drivers,
                )
            ],
            phases=phases,
            verification=verification,
            deliveries=deliveries,
            warnings=self._warnings,
        )
        if self.options.count == 1:  # a share of the figures is judged when all are merged
            result.warnings += checks.warnings(result)
            result.assertions = assess(result)
        return result

    def _access(self, name: str, tenant: Tenant) -> Access:
        if tenant.sasl is None:
            return self.cluster.access
        return Access(login_of(name, tenant.sasl), self.cluster.access.tls)

    def _prepare(self) -> None:
        """Topics, with what is to be read from them."""
        wanted = {self._topics[name]: topic for name, topic in self.scenario.topics.items()}
        there = {name: self.cluster.partitions(name) for name in wanted}
        missing = {name: topic for name, topic in wanted.items() if there[name] is None}
        named = [name for name, topic in missing.items() if topic.name is not None]
        if named and self.options.count > 1:
            raise EndpointError(f"topic {named[0]} is not there: what several drivers use under one name has to be made before")
        self.cluster.create(missing)
        for name, topic in wanted.items():
            self._partitions[name] = there[name] or topic.partitions
            if topic.records:
                self._fill(name, topic.records, topic.record_size)
        writes = {self._topics[load.topic] for phase in self.scenario.phases for load in phase.load if isinstance(load, Writing)}
        self._starts = verify.ends(self.cluster, {name: self._partitions[name] for name in writes})

    def _fill(self, topic: str, records: int, size: int) -> None:
        self.observer.note(f"writing {records:,} records of {size:,} bytes to {topic}")
        settings = {"client.id": CLIENT_ID, "log_level": 0, "linger.ms": 20, "message.max.bytes": max(size + 4096, 1 << 20)}
        settings["batch.size"] = max(size + 4096, 1 << 16)  # answers to Fetch are whole batches: smaller ones are finer measures
        producer = Producer({**librdkafka_settings(self.cluster.bootstrap, self.cluster.access), **settings})
        failed: list[str] = []

        def told(error: Any, _: object) -> None:
            if error is not None and not failed:
                failed.append(error.str())

        writer = Writer(b"prepared", size)
        for n in range(records):
            while not failed:
                try:
                    producer.produce(topic, writer.record(0, n, 0), partition=n % self._partitions[topic], on_delivery=told)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(verify.STALL) or failed:
            raise EndpointError(f"topic {topic} cannot be filled: {failed[0] if failed else 'records are not acknowledged'}")

    def _phase(self, phase: Phase, access: Mapping[str, Access], sampler: Sampler, forks: Drivers) -> PhaseResult:
        """Drivers of all its loads, from their start to their reports."""
        jobs = [job for load in phase.load for job in self._jobs(phase, load, access[load.tenant])]
        with _driving(jobs, forks) as (processes, lines):
            self._connect(processes, lines)
            for one in processes:
                sampler.add(one.job.name, Tree(one.child.pid, threads=True))
            at = time.monotonic() + AHEAD
            started = time.time() + AHEAD
            for one in processes:
                _tell(one, Start(at=at))
            length = phase.warm_up + phase.duration
            self.observer.phase(phase.name, length, at)
            events = _Events(phase.events, at, self.observer)
            self._listen(processes, lines, events, at + length)
            since, until = started + phase.warm_up, started + length
            self._measure(processes, sampler, since, until)
        return PhaseResult(
            name=phase.name,
            started=started,
            warmup_s=phase.warm_up,
            duration_s=phase.duration,
            tenants=[self._result(load, [one for one in processes if one.job.load is load]) for load in phase.load],
            watched=[sampling.watched(name, sampler.readings(name), since, until) for name in self.options.watch],
            events=events.done(),
        )

    def _jobs(self, phase: Phase, load: AnyLoad, access: Access) -> Iterator[Job]:
        """A job for each process of a load."""
        tenant = self.scenario.tenants[load.tenant]
        topic = self._topics.get(getattr(load, "topic", ""), "")
        share = tenant.clients * self.options.count
        makes_topics = isinstance(load, CreateTopics | NewTopics)
        for i in range(tenant.processes):
            clients = len(range(i, tenant.clients, tenant.processes))
            yield Job(
                run_id=self.options.run_id,
                name="-".join(part for part in (load.tenant, load.operation, str(i)) if part),
                load=load,
                rate=None if load.rate == MAX else load.rate * clients / share,
                clients=clients,
                bootstrap=self.cluster.bootstrap,
                client_id=tenant.client_id or load.tenant,
                access=access,
                settings=tenant.settings,
                topic=topic,
                partitions=self._partitions.get(topic, 0),
                first_producer=self._producers,
                prefix=f"{self.prefix}-{phase.name}-{load.tenant}-{i}" if makes_topics else self.prefix,
                warm_up=phase.warm_up,
                duration=phase.duration,
                grace=HELD if load.limited or load.rate == MAX else GRACE,
                at_most=-(-load.at_most // (tenant.processes * self.options.count)) if isinstance(load, CreateTopics) else 0,
            )
            self._producers += clients

    def _connect(self, processes: Sequence[Process], lines: queue.Queue[_Line]) -> None:
        """Wait until all are connected. Raises RunError with the error of a driver."""
        deadline = time.monotonic() + CONNECTED
        while not all(one.ready for one in processes):
            try:
                line = lines.get(timeout=max(deadline - time.monotonic(), 0.01))
            except queue.Empty:
                waiting = ", ".join(one.job.name for one in processes if not one.ready)
                raise RunError(f"{waiting}: clients are not connected after {CONNECTED:g} s") from None
            line.apply()
            if line.process.lost:
                raise RunError(f"{line.process.job.name}: {line.process.error or 'the driver ended before it had begun'}")

    def _listen(self, processes: Sequence[Process], lines: queue.Queue[_Line], events: _Events, end: float) -> None:
        """Wait until all have reported or are given up."""
        deadline, told = end + GRACE + LOST, time.monotonic()
        while not all(one.report or one.lost for one in processes):
            now = time.monotonic()
            events.begin(now)
            if now > deadline:
                for one in processes:
                    one.lost = one.lost or one.report is None
                break
            try:
                lines.get(timeout=min(max(events.next() - now, 0.05), 0.5)).apply(self.observer)
            except queue.Empty:
                continue
            if time.monotonic() - told >= 1.0:
                told = time.monotonic()
                self.observer.show(told)

    def _measure(self, processes: Sequence[Process], sampler: Sampler, since: float, until: float) -> None:
        """How busy drivers were."""
        cpus = checks.machine().cpus
        self._busy += sampling.busy_s(sampler.readings("host"), cpus, since, until)
        for one in processes:
            found = sampling.driver(one.job.name, one.child.pid, sampler.readings(one.job.name), since, until)
            lag = one.report.lag if one.report else None
            late = {"lag_p99_ms": lag.percentile_us(99) / 1000, "lag_max_ms": lag.max_us / 1000} if lag else {}
            self._drivers.append(found.model_copy(update={"lost": one.lost, **late}))
            if one.error:
                self._warnings.append(Warning(code=WarningCode.DRIVER_LOST, text=f"{one.job.name}: {one.error}"))

    def _result(self, load: Load, processes: Sequence[Process]) -> TenantResult:
        reports = [one.report for one in processes if one.report is not None]
        report = merged(reports)
        if report.library:
            name, _, rest = report.library.partition(" ")
            self._libraries[name] = rest or version("kio")
        for one in processes:
            if isinstance(load, Writing):
                acknowledged = one.report.acknowledged_records if one.report else []
                first, last = one.job.first_producer, one.job.first_producer + one.job.clients - 1
                aborted = one.report.aborted_records if one.report else []
                self._written.append(verify.Written(load.tenant, report.library, one.job.topic, first, last, acknowledged, aborted))
        if isinstance(load, Consume) and load.verified:
            topic = processes[0].job.topic
            self._readers.append(verify.Given(load.tenant, report.library, topic, report.read_records, report.read_again))
        found: dict[str, Any] = {name: getattr(report, name) for name in Counts.model_fields}
        return TenantResult(
            tenant=load.tenant,
            role=self.scenario.tenants[load.tenant].role,
            operation=str(getattr(load, "operation", "")),
            client=report.library,
            limited=load.limited,
            intended_rate=None if load.rate == MAX else load.rate / self.options.count,
            **found,
        )

    def _verify(self) -> tuple[list[Verification], list[Delivery]]:
        """What became of all records."""
        if not self._written:
            return [], []
        self.observer.note("reading back what was written")
        records = verify.read(self.cluster, self._starts, self.options.run_id)
        return verify.judge(self._written, records), verify.delivered(self._readers, records)

    def _clean_up(self) -> None:
        loads = [load for phase in self.scenario.phases for load in phase.load]
        shares = {f"{self.prefix}-{load.tenant}" for load in loads if isinstance(load, Consume) and load.share}
        for left in self.cluster.remove(self.prefix, sorted(shares)):
            self._warnings.append(Warning(code=WarningCode.LEFT_BEHIND, text=f"left behind: {left}"))
            self.observer.note(f"left behind: {left}")


@dataclass(frozen=True, slots=True)
class _Line:
    """What a driver said; None at its end."""

    process: Process
    text: str | None

    def apply(self, observer: RunObserver | None = None) -> None:
        one = self.process
        if self.text is None:
            one.lost = one.lost or one.report is None
            return
        ((what, value),) = json.loads(self.text).items()
        if what == READY:
            one.ready = True
        elif what == REPORT:
            one.report = Report.model_validate(value)
        elif what == ERROR:
            one.error, one.lost = value, True
        elif what == TICK and observer is not None:
            observer.tick(one.job.name, Tick.model_validate(value), one.job.rate)


@contextmanager
def _driving(jobs: Sequence[Job], forks: Drivers) -> Iterator[tuple[list[Process], queue.Queue[_Line]]]:
    """A process for each job, and their lines. They end with the block. Raises RunError."""
    processes: list[Process] = []
    lines: queue.Queue[_Line] = queue.Queue()

    def listen(one: Process) -> None:
        for text in one.child.answers:
            lines.put(_Line(one, text))
        lines.put(_Line(one, None))

    threads = []
    try:
        for job in jobs:
            one = Process(job, forks.fork())
            _tell(one, job)
            thread = threading.Thread(target=listen, args=(one,), daemon=True)
            thread.start()
            threads.append(thread)
            processes.append(one)
        yield processes, lines
    except DriversEnded as e:
        raise RunError(str(e)) from None
    finally:
        for one in processes:
            with suppress(OSError):
                one.child.orders.close()
        deadline = time.monotonic() + ENDED
        for one, thread in zip(processes, threads, strict=False):  # Ctrl-C may come before the process is among them
            thread.join(max(deadline - time.monotonic(), 0))
            if thread.is_alive():
                one.child.kill()
                thread.join()
            one.child.answers.close()


def _tell(one: Process, what: Job | Start) -> None:
    with suppress(OSError):  # it has ended: its answers show that too
        one.child.orders.write(what.model_dump_json() + "\n")
        one.child.orders.flush()


class _Events:
    """What a phase does to the system, each in a thread of its own."""

    def __init__(self, planned: Sequence[Planned], at: float, observer: RunObserver) -> None:
        self._left = sorted(((at + event.at, event) for event in planned), key=lambda pair: pair[0])
        self._observer, self._found = observer, list[Event]()
        self._threads: list[threading.Thread] = []
        self._wrong: list[str] = []

    def next(self) -> float:
        return self._left[0][0] if self._left else float("inf")

    def begin(self, now: float) -> None:
        while self._left and self._left[0][0] <= now:
            event = self._left.pop(0)[1]
            self._observer.note(f"event: {event.command}")
            self._threads.append(threading.Thread(target=self._do, args=(event,), daemon=True))
            self._threads[-1].start()

    def done(self) -> list[Event]:
        """All events. Raises RunError if one failed, as the figures are then not those of the scenario."""
        for thread in self._threads:
            thread.join()
        if self._wrong:
            raise RunError(self._wrong[0])
        return sorted(self._found, key=lambda event: event.at)

    def _do(self, event: Planned) -> None:
        self._found.append(Event(at=time.time(), text=event.command))
        last, late = "", threading.Event()
        try:
            child = subprocess.Popen(
                shlex.split(event.command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except (OSError, ValueError) as e:
            self._wrong.append(f"event `{event.command}` cannot be run: {e}")
            return

        def end() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(event.timeout, end)
        timer.start()
        with child:
            assert child.stdout is not None
            for line in child.stdout:
                fault = fault_of(line)
                if fault is not None:
                    self._found.append(fault)
                    self._observer.note(f"fault: {fault.kind}, {fault.text}")
                last = line.strip() or last
        timer.cancel()
        if late.is_set():
            self._wrong.append(f"event `{event.command}` was not done after {event.timeout:g} s")
        elif child.returncode:
            self._wrong.append(f"event `{event.command}` ended with exit code {child.returncode}: {last}")


def run_once(scenario: Scenario, cluster: Cluster, options: Options, observer: RunObserver) -> RunResult:
    """Raises RunError, EndpointError."""
    try:
        return Run(scenario, cluster, options, observer).make(cluster.bootstrap)
    except KafkaException as e:
        raise EndpointError(f"{cluster.bootstrap}: {said(e)}") from None
