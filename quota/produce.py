"""One Produce request, judged by every kind of quota at once.

In: its batches, with the names of their topics. Out: which of them are refused, with which error code and why; and for how
long its client is throttled. Codes are those of the Kafka protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from quota.decision import Action, Decision
from quota.entity import Entity
from quota.fence import Fence, Fenced, Part
from quota.kinds.bytes_in import OTHERS

NOT_ENOUGH_REPLICAS: Final = 19
"""retried by every client"""
POLICY_VIOLATION: Final = 44
"""retried by none"""
STORAGE_ERROR: Final = 56
"""KAFKA_STORAGE_ERROR: retried, with fresh metadata"""
MAX_IDS: Final = 10
"""Producer ids of one request that are counted; a producer has one."""
MAX_TOLD: Final = 10
"""Topics of one request that a quota tells of one by one; what is to be said of others is said of `OTHERS`, all together."""
FENCE: Final = "sequence_fence"


class Batch(NamedTuple):
    """What one partition gets. `topic` is its name, or its id where the proxy does not know the name of that: `known` is False."""

    topic: str
    known: bool
    topic_id: str | None
    """where the client names it so: what was refused while the name was not known is found by it"""
    partition: int
    size: int
    """bytes"""
    producer_id: int
    epoch: int
    sequence: int


class Refused(NamedTuple):
    code: int
    message: str


@dataclass(slots=True)
class Judgement:
    """What becomes of a request. `refused` by the index of the batch; `throttle` in seconds, capped."""

    refused: dict[int, Refused] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    in_topics: bool = False
    """was what goes on counted in the rates of topics?"""
    slowed: Entity | None = None
    """against whose slowed rate something was counted, and how much for each batch"""
    weights: dict[int, float] = field(default_factory=dict)
    pieces: list[tuple[int, float]] = field(default_factory=list)
    """of a request that was judged piece by piece: the batch before which each ends, and when it was judged"""

    def when(self, i: int) -> float:
        """When batch i was judged, and counted if it was."""
        return next(when for stop, when in self.pieces if i < stop)

    @property
    def throttle(self) -> float:
        """The longest of those told: the most constraining quota wins."""
        return max((decision.throttle for decision in self.decisions), default=0.0)


class Refusals:
    """The refusals of one request as they come, with the fence: batch by batch, in order. `now` is the time."""

    def __init__(self, fence: Fence, batches: Sequence[Batch], owner: Entity) -> None:
        self._fence, self._batches, self._owner = fence, batches, owner
        self.now = 0.0
        self.refused: dict[int, Refused] = {}
        self._user = owner.user or ""
        self._fenced: dict[tuple[str, bool], list[int]] = {}

    def behind(self, i: int) -> bool:
        """Is batch i behind one that was refused before? Then it is refused too, with the same error."""
        batch = self._batches[i]
        if batch.producer_id < 0:
            return False
        for topic in _names(batch):
            part = topic, batch.partition
            fenced = self._fence.blocks(self._user, batch.producer_id, batch.epoch, batch.sequence, part, self.now)
            if fenced is not None:
                break
        else:
            return False
        self.refused[i] = Refused(fenced.code, self._why(batch, fenced))
        self._fenced.setdefault((fenced.quota, fenced.unsure), []).append(i)
        return True

    def _why(self, batch: Batch, fenced: Fenced) -> str:
        if fenced.unsure and fenced.sequence >= batch.sequence:
            return (
                f"More batches of user {self._user} were refused than the proxy remembers for one user. Until some minutes after"
                " the last of these, only producers that begin with sequence 0 go on."
            )
        quota = f"the {fenced.quota} quota" if fenced.quota else "the proxy"
        return (
            f"An earlier batch of this producer for {batch.topic}-{batch.partition}, sequence {fenced.sequence}, was refused by"
            f" {quota} and has to be written first."
        )

    def refuse(self, i: int, code: int, message: str, quota: str) -> None:
        """A quota refuses batch i."""
        batch = self._batches[i]
        self._fence.refused(self._user, batch.producer_id, batch.epoch, batch.sequence, _part(batch), code, quota, self.now)
        self.refused[i] = Refused(code, message)

    def admit(self, i: int) -> None:
        """Batch i goes on."""
        batch = self._batches[i]
        if batch.producer_id >= 0:
            for topic in _names(batch):
                self._fence.admitted(self._user, batch.producer_id, batch.epoch, batch.sequence, (topic, batch.partition))

    def decisions(self) -> list[Decision]:
        """What the fence refused, by the quota that was the cause."""
        return [
            Decision(FENCE, Action.REFUSE, self._owner, tuple(items), len(items), 0, 0.0, self.refused[items[0]].message)
            for items in self._fenced.values()
        ]


class Over:
    """What is to be said of the topics of one request that are over their thresholds."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[Decision | None, list[int]]] = {}

    def alone(self, topic: str) -> bool:
        """Is this topic one of those that are told of one by one?"""
        return topic in self._said or len(self._said) < MAX_TOLD

    def find(self, topic: str) -> list[Decision | None]:
        """What is said of this topic already, None for nothing; no element if it was not asked yet."""
        found = self._said.get(topic if self.alone(topic) else OTHERS)
        return [] if found is None else [found[0]]

    def add(self, topic: str, decision: Decision | None, item: int) -> None:
        """This is said of a topic if it is the first, and concerns this item."""
        key = topic if self.alone(topic) else OTHERS
        said = self._said.get(key)
        if said is None:
            if decision is not None and key == OTHERS:
                decision = replace(decision, entity=Entity(None, None, OTHERS))
            said = self._said[key] = decision, []
        said[1].append(item)

    def decisions(self) -> list[Decision]:
        return [replace(decision, items=tuple(items)) for decision, items in self._said.values() if decision is not None]


class Judging:
    """A Produce request that is judged piece by piece, in its order. Each piece is judged as a request of its own would be:
    whatever its batches count is counted when it is decided that they go on, so others may be judged between two pieces.
    `judgement` says what was decided up to now. `at`: the batch that is next."""

    __slots__ = ("at", "batches", "confirmed", "counted", "full", "ids", "judgement", "over", "rates", "refusals", "slowed")

    def __init__(self, fence: Fence, owner: Entity, batches: Sequence[Batch], *, confirmed: bool, in_topics: bool) -> None:
        self.batches, self.confirmed = batches, confirmed
        self.at = 0
        self.refusals, self.over = Refusals(fence, batches, owner), Over()
        self.judgement = Judgement(self.refusals.refused, in_topics=in_topics)
        self.full: list[Decision] = []
        self.ids: list[Decision] = []
        self.slowed: list[Decision] = []
        self.rates: list[Decision] = []
        self.counted: list[int] = []
        """batches of pieces that were counted against the byte rate"""

    @property
    def done(self) -> bool:
        """Is the whole request judged?"""
        return self.at >= len(self.batches)

    def charged(self) -> list[int]:
        """The batches that go on, as far as that is decided."""
        return [i for i in range(self.at) if i not in self.refusals.refused]

    def finish(self) -> Judgement:
        """What becomes of the request, all of it judged."""
        by_volume: dict[str, list[Decision]] = {}
        for decision in self.full:
            by_volume.setdefault(decision.message, []).append(decision)
        full = [it for said in by_volume.values() for it in as_one(said)]
        kinds = [*self.refusals.decisions(), *full, *as_one(self.ids), *self.over.decisions(), *as_one(self.slowed)]
        self.judgement.decisions = [*kinds, *(replace(it, items=tuple(self.counted)) for it in as_one(self.rates))]
        return self.judgement


def as_one(decisions: Sequence[Decision]) -> Sequence[Decision]:
    """What was said of the same at several pieces of a request: how it stands in the end, and the longest throttle."""
    if len(decisions) < 2:
        return decisions
    items = tuple(i for decision in decisions for i in decision.items)
    return [replace(decisions[-1], items=items, throttle=max(decision.throttle for decision in decisions))]


def _part(batch: Batch) -> Part:
    return batch.topic, batch.partition


def _names(batch: Batch) -> tuple[str, ...]:
    return (batch.topic,) if batch.topic_id in (None, batch.topic) else (batch.topic, batch.topic_id or "")
