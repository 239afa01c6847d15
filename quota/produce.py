"""One Produce request, judged by every kind of quota at once.

In: its batches, with the names of their topics. Out: which of them are refused, with which error code and why; and for how
long its client is throttled. Codes are those of the Kafka protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quota.decision import Action, Decision
from quota.entity import Entity
from quota.fence import Fence, Fenced, Part

NOT_ENOUGH_REPLICAS: Final = 19
"""retried by every client"""
POLICY_VIOLATION: Final = 44
"""retried by none"""
STORAGE_ERROR: Final = 56
"""KAFKA_STORAGE_ERROR: retried, with fresh metadata"""
MAX_IDS: Final = 10
"""Producer ids of one request that are counted; a producer has one."""
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

    @property
    def throttle(self) -> float:
        """The longest of those told: the most constraining quota wins."""
        return max((decision.throttle for decision in self.decisions), default=0.0)


class Refusals:
    """The refusals of one request as they come, with the fence: batch by batch, in order."""

    def __init__(self, fence: Fence, batches: Sequence[Batch], owner: Entity, now: float) -> None:
        self._fence, self._batches, self._owner, self._now = fence, batches, owner, now
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
            fenced = self._fence.blocks(self._user, batch.producer_id, batch.epoch, batch.sequence, part, self._now)
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
        self._fence.refused(self._user, batch.producer_id, batch.epoch, batch.sequence, _part(batch), code, quota, self._now)
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


def _part(batch: Batch) -> Part:
    return batch.topic, batch.partition


def _names(batch: Batch) -> tuple[str, ...]:
    return (batch.topic,) if batch.topic_id in (None, batch.topic) else (batch.topic, batch.topic_id or "")
