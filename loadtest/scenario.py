"""What a scenario may say. In: YAML. Out: a `Scenario`, or `FileError` that names the key, the line and what would be right.

The models are the reference: `kafka-quota-proxy loadtest schema` prints them as a JSON schema. An operation is what a rate
counts: a record written or read, a connection, a partition that is created or deleted, a new producer id, a question to the
controller."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import Field, PositiveInt, model_validator

from configfile.base import Model, Name
from configfile.load import FileError, Lines, dotted, read, validated
from configfile.units import Size
from loadtest.assertions import AnyAssertion
from loadtest.payload import HEADER_SIZE
from loadtest.results.model import AssertionResult, RunResult
from loadtest.units import MAX, Duration, Rate, SomeTime, Word

EXAMPLE: Final = "phases: [{name: steady, duration: 30s, load: […]}]"
_PARAMETER: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PATH: Final = re.compile(r"[^.\[\]]+|\[\d+\]")


class Parameter(Model):
    """A value that `--set NAME=VALUE` gives, and that stands for `${NAME}` elsewhere in the file."""

    text: str
    """What it is, for people."""
    default: bool | int | float | str | None = None
    """Its value when none is given; without a default it has to be given."""


class Topic(Model):
    """A topic that loads name."""

    name: Name | None = None
    """Its name at the cluster, where that matters (a quota may name it). One that is there is used as it is, and stays. By
    default a new one with a name of the run's own."""
    partitions: PositiveInt = 3
    """Of a topic that the run makes."""
    replicas: int = Field(-1, ge=-1, le=100)
    """Of a topic that the run makes; -1: the cluster's default."""
    config: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Settings of a topic that the run makes, `retention.ms` say."""
    records: int = Field(0, ge=0, le=100_000_000)
    """Records that are written before the first phase, for those who read."""
    record_size: Size = Field(1024, ge=HEADER_SIZE)
    """Bytes of each of them."""


class Login(Model):
    """SASL for a tenant, in place of the endpoint's. Passwords do not stand in scenarios."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    username: Name
    password_env: Name | None = None
    """Environment variable with the password."""
    password_file: Name | None = None
    """File with the password; a line break at its end does not count."""

    @model_validator(mode="after")
    def _one(self) -> Login:
        if (self.password_env is None) == (self.password_file is None):
            raise ValueError("set exactly one of `password_env` and `password_file`")
        return self


class Tenant(Model):
    """Somebody who makes load, as quotas see it: by user and client id."""

    client_id: Name | None = None
    """By default the tenant's name."""
    role: Literal["", "victim", "offender"] = ""
    """How results show it."""
    clients: int = Field(1, ge=1, le=10_000)
    """Clients with connections of their own; a rate is of all together."""
    processes: int = Field(1, ge=1, le=64)
    """Processes that clients are spread over, when one cannot make the load."""
    sasl: Login | None = None
    """Its login; by default that of the endpoint (`--command-config`)."""
    settings: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Settings of librdkafka beside those that operations set, `compression.type` say."""

    @model_validator(mode="after")
    def _spread(self) -> Tenant:
        if self.processes > self.clients:
            raise ValueError(f"`processes` {self.processes}: at most as many as `clients`, {self.clients}")
        if secret := next((key for key in self.settings if "password" in key or key == "sasl.jaas.config"), None):
            raise ValueError(f"`settings.{secret}`: passwords do not stand in scenarios; `sasl.password_env` names where one is")
        return self


class Load(Model):
    """What all operations have."""

    tenant: Name
    """Who does it."""
    rate: Rate
    """Operations per second of all its clients, at even intervals whatever happens to earlier ones; `max`: as fast as possible."""
    limited: bool = False
    """Whether a quota is expected to hold it back. Where it is not, a rate that is not reached fails the run."""
    sweep: bool = False
    """Whether `loadtest sweep` varies its rate."""


class Writing(Load):
    operation: str
    topic: Name
    """One of `topics`."""
    size: Size = Field(1024, ge=HEADER_SIZE, le=1 << 30)
    """Bytes of each record."""
    acks: Literal["all", 0, 1] = "all"
    """Which replicas acknowledge. Of what is not acknowledged (0) no loss can be seen."""
    idempotent: bool = True
    """Whether the producer is idempotent; without acks=all it is not."""
    transaction: int = Field(0, ge=0, le=1_000_000)
    """Records of each transaction; 0: none."""
    client: Literal["librdkafka", "kafka-python", "aiokafka"] = "librdkafka"
    """Who writes."""
    linger: Duration = 0.005
    """How long a batch waits for more records."""

    @model_validator(mode="after")
    def _agree(self) -> Writing:
        if self.transaction and (self.acks != "all" or not self.idempotent):
            raise ValueError("a transaction needs `acks: all` and `idempotent: true`")
        if self.client != "librdkafka" and (self.transaction or self.operation != "produce"):
            raise ValueError(f"`client: {self.client}` writes by `operation: produce`, without transactions")
        return self


class Produce(Writing):
    """Writes records, which are verified after the run. A transaction that is aborted counts as failed; its records must not be
    found."""

    operation: Literal["produce"]


class EndToEnd(Writing):
    """Writes records and reads them in the same process: latencies are from when a record was due to when it was read."""

    operation: Literal["end_to_end"]


class Consume(Load):
    """Reads a topic from its beginning, again and again."""

    operation: Literal["consume"]
    topic: Name
    """One of `topics`, with `records` or written to by others."""
    group: bool = False
    """Whether clients are members of a group that commits; else each reads its share of the partitions by itself."""
    share: bool = False
    """Whether they are members of a share group (KIP-932), of which each is given other records, and acknowledges them."""
    verified: bool = False
    """Whether the members have to be given every record of the run that the topic has in the end. They read on after the phase
    until nothing comes any more."""

    @model_validator(mode="after")
    def _members(self) -> Consume:
        if self.group and self.share:
            raise ValueError("a client is a member of a `group`, or of a `share` group")
        if self.verified and not (self.group or self.share):
            raise ValueError("`verified` needs `group: true` or `share: true`")
        return self


class Asking(Load):
    """What is asked by the protocol itself, without a client library."""

    closed: bool = False
    """Whether each client begins an operation only when its last one has ended; latencies count from then."""


class Connect(Asking):
    """Opens a connection, asks for versions, logs in, asks for metadata, closes it."""

    operation: Literal["connect"]


class CreateTopics(Asking):
    """Creates topics; those that a quota refuses are sent again when their throttle time is over. An operation is a partition."""

    operation: Literal["create_topics"]
    topics: int = Field(1, ge=1, le=10_000)
    """Topics of each request."""
    partitions: int = Field(1, ge=1, le=10_000)
    """Partitions of each topic."""
    replicas: int = Field(-1, ge=-1, le=100)
    """-1: the cluster's default."""
    at_most: int = Field(1000, ge=1, le=1_000_000)
    """Topics in all."""
    retry: bool = True
    """Whether what was refused is sent again."""
    delete: bool = False
    """Whether each topic is deleted again as soon as it is there, which counts as an operation for each partition, too."""
    client: Literal["protocol", "librdkafka", "kafka-python"] = "protocol"
    """Who asks: librdkafka does not know error 89 (CreateTopics version 4), kafka-python does, and waits as it is told."""

    @model_validator(mode="after")
    def _can(self) -> CreateTopics:
        if self.delete and self.client != "protocol":
            raise ValueError("`delete` needs `client: protocol`")
        return self


class NewTopics(Load):
    """Makes a topic and writes a first record to it, with librdkafka: latencies are until that is acknowledged."""

    operation: Literal["new_topics"]
    replicas: int = Field(-1, ge=-1, le=100)
    """-1: the cluster's default."""


class ProducerIds(Asking):
    """New producers: each connects, logs in, gets a producer id, writes one record to each partition of one broker, and is gone."""

    operation: Literal["producer_ids"]
    topic: Name
    """One of `topics`."""
    client: Literal["protocol", "librdkafka"] = "protocol"
    """What the producers are. One of librdkafka's writes one record to any partition, and gives up after 5 s."""


class AskController(Asking):
    """Asks the controller whether a topic could be created: what everybody else feels of a busy controller."""

    operation: Literal["ask_controller"]


class AskMetadata(Asking):
    """Asks for the cluster's metadata on a connection that stays: requests that cost a broker little, for quotas of requests."""

    operation: Literal["ask_metadata"]


AnyLoad = Annotated[
    Produce | EndToEnd | Consume | Connect | CreateTopics | NewTopics | ProducerIds | AskController | AskMetadata,
    Field(discriminator="operation"),
]


class Event(Model):
    """Something that is done to the system while load runs."""

    at: Duration
    """After the beginning of the phase, warm-up included."""
    command: Name
    """Command and arguments; no shell interprets them. It has to end with exit code 0. Of what it prints, lines such as
    `{"fault": "broker killed", "target": "broker 2", "at": 1800000000.5, "until": 1800000009.1}` are faults, which results show."""
    timeout: SomeTime = 60.0
    """How long it may take."""


class Phase(Model):
    """Loads that run at the same time."""

    name: Word
    warm_up: Duration = 5.0
    """What is left out of all figures but the series."""
    duration: SomeTime
    """The measured part."""
    load: list[AnyLoad] = Field(min_length=1)
    events: list[Event] = Field(default_factory=list)
    clean_up: bool = False
    """Whether topics that its loads made are removed before the next phase, rather than after the run."""

    @model_validator(mode="after")
    def _fits(self) -> Phase:
        for event in self.events:
            if event.at >= self.warm_up + self.duration:
                raise ValueError(f"an event at {event.at:g}s: the phase is over after {self.warm_up + self.duration:g}s")
        return self


class Scenario(Model):
    """Who does what, for how long, and what has to be so."""

    name: str = ""
    """By default that of the file."""
    description: str = ""
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    topics: dict[Word, Topic] = Field(default_factory=dict)
    tenants: dict[Word, Tenant] = Field(min_length=1)
    phases: list[Phase] = Field(min_length=1)
    pause: Duration = 0.0
    """Between two phases, so that windows of quotas pass."""
    assertions: list[AnyAssertion] = Field(default_factory=list)

    @model_validator(mode="after")
    def _known(self) -> Scenario:
        for wrong in self._unknown():
            raise ValueError(wrong)
        return self

    def _unknown(self) -> Iterator[str]:
        """Names that nothing has."""
        phases = [phase.name for phase in self.phases]
        yield from (f"two phases have the name {name!r}" for name in phases if phases.count(name) > 1)
        for i, phase in enumerate(self.phases):
            for j, load in enumerate(phase.load):
                at = f"`phases[{i}].load[{j}]`"
                yield from _lacking(f"{at}: tenant", [load.tenant], list(self.tenants))
                if isinstance(load, Writing | Consume | ProducerIds):
                    yield from _lacking(f"{at}: topic", [load.topic], list(self.topics))
            pairs = [(load.tenant, load.operation) for load in phase.load]
            twice = [pair for pair in pairs if pairs.count(pair) > 1]
            yield from (f"`phases[{i}]`: tenant {tenant!r} has two loads with {operation}" for tenant, operation in twice)
        for i, one in enumerate(self.assertions):
            at = f"`assertions[{i}]`"
            yield from _lacking(f"{at}: phase", [one.phase, getattr(one, "compared_with", None)], phases)
            single = (getattr(one, "tenant", None), getattr(one, "as_tenant", None))
            several = (*getattr(one, "tenants", ()), *getattr(one, "shared_with", ()))
            yield from _lacking(f"{at}: tenant", [*single, *several], list(self.tenants))

    def scaled(self, factor: float) -> Scenario:
        """The same with other durations of phases; limits in assertions stay."""
        phases = [
            phase.model_copy(
                update={
                    "warm_up": phase.warm_up * factor,
                    "duration": phase.duration * factor,
                    "events": [event.model_copy(update={"at": event.at * factor}) for event in phase.events],
                }
            )
            for phase in self.phases
        ]
        return self.model_copy(update={"phases": phases, "pause": self.pause * factor})

    def at_rate(self, rate: float) -> Scenario:
        """The same with this rate for the loads that are swept, all together; with only one load, it is that.

        Raises FileError when no load is marked."""
        loads = [load for phase in self.phases for load in phase.load]
        swept = [load for load in loads if load.sweep] or (loads if len(loads) == 1 else [])
        if not swept:
            raise FileError(f"{self.name}: which rate is swept? Mark a load with `sweep: true`")
        total = sum(load.rate for load in swept if load.rate != MAX)
        if not total:
            total = len(swept)
        phases = []
        for phase in self.phases:
            load = [
                one.model_copy(update={"rate": rate * (1.0 if one.rate == MAX else one.rate) / total}) if one in swept else one
                for one in phase.load
            ]
            phases.append(phase.model_copy(update={"load": load}))
        return self.model_copy(update={"phases": phases})


def assess(result: RunResult) -> list[AssertionResult]:
    """Every assertion of the scenario that ran, in its order."""
    return [assertion.assess(result) for assertion in Scenario.model_validate(result.definition).assertions]


def _lacking(what: str, wanted: list[str | None], there: list[str]) -> Iterator[str]:
    for name in wanted:
        if name is not None and name not in there:
            yield f"{what} {name!r} is not there; there {'is' if len(there) == 1 else 'are'} {', '.join(there) or 'none'}"


def load_scenario(path: Path, given: Mapping[str, str] | None = None, *, name: str | None = None) -> Scenario:
    """A scenario with what `--set` gives: values of parameters, or of keys such as `phases[0].duration`."""
    data, lines = read(path, EXAMPLE, kind="key")
    parameters = validated(_Parameters, {"parameters": data.get("parameters", {})}, str(path), lines, kind="key").parameters
    values: dict[str, Any] = {key: one.default for key, one in parameters.items()}
    for key, text in (given or {}).items():
        value = _scalar(key, text)
        if key in parameters:
            values[key] = value
        elif _PARAMETER.fullmatch(f"${{{key}}}") and key not in Scenario.model_fields:
            there = ", ".join(parameters) or "none"
            raise FileError(
                f"--set {key}: the scenario has no such parameter (there are: {there}); a key is as `phases[0].duration`"
            )
        else:
            _put(data, key, value)
    data = {**data, **{key: _filled(value, values, str(path), lines, (key,)) for key, value in data.items() if key != "parameters"}}
    found = validated(Scenario, data, str(path), lines, kind="key")
    return found if found.name else found.model_copy(update={"name": name or path.stem})


class _Parameters(Model):
    parameters: dict[str, Parameter]


def _scalar(key: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise FileError(f"--set {key}={text}: is not YAML; write text in quotes") from None


def _put(data: Any, path: str, value: Any) -> None:
    """Replaces what stands at `phases[0].duration`; keys that are missing are made, elements of lists are not."""
    parts = [part if part[0] != "[" else int(part[1:-1]) for part in _PATH.findall(path)]
    wrong = FileError(f"--set {path}: there is no such place in the scenario")
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        if isinstance(part, int):
            if not isinstance(data, list) or part >= len(data):
                raise wrong
        elif not isinstance(data, dict):
            raise wrong
        elif not last:
            data.setdefault(part, {})
        if last:
            data[part] = value
        else:
            data = data[part]


def _filled(data: Any, values: Mapping[str, Any], where: str, lines: Lines, key: tuple[str | int, ...]) -> Any:
    """Data with values for `${name}`. A text that is nothing else takes the value as it is: a number stays one."""
    if isinstance(data, dict):
        return {name: _filled(value, values, where, lines, (*key, name)) for name, value in data.items()}
    if isinstance(data, list):
        return [_filled(value, values, where, lines, (*key, i)) for i, value in enumerate(data)]
    if not isinstance(data, str):
        return data

    def value_of(match: re.Match[str]) -> Any:
        name = match[1]
        at = f"{where}: line {lines.get(key, 1)}: `{dotted(key)}`"
        if name not in values:
            raise FileError(f"{at}: there is no parameter {name!r}; there are {', '.join(values) or 'none'}")
        if values[name] is None:
            raise FileError(f"{at}: the parameter {name!r} has no default: give --set {name}=VALUE")
        return values[name]

    if entire := _PARAMETER.fullmatch(data):
        return value_of(entire)
    return _PARAMETER.sub(lambda match: str(value_of(match)), data)
