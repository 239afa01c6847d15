"""What happens to the charges of Produce requests when the broker answers: what it did not write is given back, and what no broker
had confirmed before is counted. Used by `produce` only.

In: what was counted for a request, or what was judged and not counted yet; the broker's answer. Out: meters as they are right,
which users may write to which topics, the answer for the client, with node endpoints replaced (KIP-951, from version 10 on).

A request is counted when it goes on if brokers have let its user write to all of its topics before: an error gives back what was
counted. Else it is counted with the answer, as far as that has no error; so a user who may not write to a topic cannot count
against it, not even until the broker answers. An answer in which a topic has an error revokes the topic for that user.

acks=0: there is no answer, but brokers close the connection where such a request fails. So the proxy asks something of its own
behind it, and what is before its answer was written; on each connection anew, until the topic is `reached`."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from math import ceil
from typing import Final

from proxy.session.client import Client, Counted, TargetTopic
from proxy.session.plans import FrequentPlan, Plan, Request
from proxy.wire import metadata
from proxy.wire.addresses import PRODUCE, patch_addresses, patching_addresses
from proxy.wire.primitives import Buffer, as_bytes
from proxy.wire.produce import FIRST_TOPIC_ID, Skim, errors_of, went_well
from proxy.wire.refusals import Part, Refusal, parts_of, with_refused
from proxy.wire.steps import finish_at_once
from proxy.wire.throttle import tell
from quota.batch import Batch
from quota.decision import Decision
from quota.produce import Judgement, Judging
from quota.rules import Metered

LARGE_ANSWER: Final = 4096
"""Bytes of an answer above which it is looked at in steps: about a hundred partitions."""
AT_ONCE: Final = 100
"""Partitions that are judged or settled in one step, 1 to 8 us each (compiled). A request with more, and its answer, is looked at
in the turns of its connection."""
MAX_NAMED: Final = 10
"""Topics that a decision names."""
MAX_UNSETTLED: Final = 2000
"""Batches and topics that a connection has in requests whose answers settle something; what is beyond waits for an answer, so that
memory is bounded."""
NOTHING: Mapping[Part, int] = {}
"""No errors."""


class Judged:
    """A request that is judged batch by batch, or was. `counted`: is what goes on of it counted then?"""

    __slots__ = ("batches", "client", "counted", "found", "judgement", "judging", "parts", "targets", "version")

    def __init__(
        self,
        client: Client,
        version: int,
        found: Skim,
        targets: Sequence[TargetTopic],
        batches: Sequence[Batch],
        counted: bool,
        now: float,
    ) -> None:
        """`targets`: of each batch."""
        self.client, self.version, self.found, self.targets, self.batches = client, version, found, targets, batches
        self.parts = parts_of(found)
        self.counted = counted
        self.judgement = Judgement()
        engine, rules = client.services.engine, client.rules(now)
        self.judging = Judging(engine, rules, batches, confirmed=counted, answered=found.acks != 0)

    @property
    def limited_size(self) -> int:
        """Bytes for topics that are not exempt."""
        return sum(self.batches[i].size for i in self.judging.limited(range(len(self.batches))))

    def judge(self) -> Generator[None, None, Judgement]:
        """What becomes of it, in steps, each of which is judged as of its own time."""
        client, judging = self.client, self.judging
        while True:
            judging.judge(AT_ONCE, client.now)
            if judging.done:
                break
            if judging.engine.would:  # before somebody else is judged
                client.would_have(PRODUCE, self.version)
            yield
        self.judgement = judging.finish()
        return self.judgement

    def give_up(self, now: float) -> None:
        """It does not go on, as its connection ends: give back what was counted."""
        self.judging.give_up(now)

    def tell(self, decisions: Sequence[Decision]) -> None:
        """Tell the operator what was decided. Of names that no broker has confirmed nothing is told."""
        client, by_broker = self.client, self.client.services.engine.bytes_in.knows
        for decision in decisions:
            names: dict[str, None] = {}
            for i in decision.items:
                if self.counted or by_broker(self.batches[i].topic):
                    names[self.batches[i].topic] = None
                if len(names) == MAX_NAMED:
                    break
            client.services.watcher.decided(decision, client.requester(PRODUCE, self.version, tuple(names)))

    def settle(self, errors: Mapping[Part, int], acks: int) -> Generator[None, None, float]:
        """The broker has answered. Seconds of the throttle that follows, 0 for none. In steps."""
        client, engine = self.client, self.client.services.engine
        sent = [i for i in range(len(self.batches)) if i not in self.judgement.refused]
        failed = [i for i in sent if errors.get(self.parts[i], 0)]
        refused = {self.targets[i].name for i in failed}
        for name in refused:
            engine.confirmed.revoke(self.judging.rules.user, name)
        if self.counted:
            if failed:
                self.judging.credit(failed, client.now)
            return 0.0
        lost = set(failed)
        counting = Judging(engine, self.judging.rules, self.batches)
        for start in range(0, len(sent), AT_ONCE):
            if start:
                yield
            some, now = sent[start : start + AT_ONCE], client.now
            self._confirm(some, refused, acks, now)
            self.judging.credit(some, now)
            counting.count([i for i in some if i not in lost], now)
            if engine.would:
                client.would_have(PRODUCE, self.version)
        found = counting.finish()
        self.tell(found.decisions)
        client.api_sum(PRODUCE).throttle_ms += ceil(found.throttle * 1000)
        throttle, now = found.throttle, client.now
        yield from self.count([i for i in sent if i not in lost])
        return max(throttle - (client.now - now), 0.0)

    def _confirm(self, items: Sequence[int], refused: Collection[str], acks: int, now: float) -> None:
        """Brokers have let the user write to the topics of these batches, but for those that are refused."""
        for target in {id(self.targets[i]): self.targets[i] for i in items}.values():
            if target.name in refused:
                continue
            if acks:
                target.pair = self.client.services.engine.confirmed.confirm(self.judging.rules.user, target.name, now)
            else:
                target.reached = True

    def count(self, items: Sequence[int]) -> Generator[None, None, None]:
        """Add batches to the sums of their topics; a topic of which none is among them is not named. In steps."""
        going, i = set(items), 0
        for n, (part, batches) in enumerate(zip(self.found.topics, self.found.batches or (), strict=True)):
            if n % AT_ONCE == AT_ONCE - 1:
                yield
            mine = range(i, i + len(batches))
            i += len(batches)
            if self.counted or any(j in going for j in mine):
                total = self.client.topic_sum(PRODUCE, part.topic, by_id=self.version >= FIRST_TOPIC_ID)
                total.requests += 1
                for j, batch in zip(mine, batches, strict=True):
                    if j in going:
                        total.record_bytes += batch.size
                        total.records += batch.records or 0


def uncount(client: Client, now: float) -> None:
    """The last request that was counted by topics does not go on, as its connection ends."""
    counted = client.charged.pop()
    for _, to, carried in counted.parts():
        give_back(to, carried, counted.rate, counted.when, now)


def give_back(target: TargetTopic, size: int, rate: Metered | None, when: float, now: float) -> None:
    """Bytes that were counted at `when` were not written: of a topic, and of the rate of the client, if it has one."""
    if target.meter is not None:
        target.meter.give_back(size, now, when)
    if target.rate is not None:
        target.rate.refund(size, now)
    if target.stored is not None:
        target.stored.give_back(size)
    if rate is not None and not target.exempt:
        rate.refund(size, now)


def credit(client: Client, counted: Counted, errors: Mapping[Part, int], now: float) -> None:
    """The broker did not write all of the first request of these. What it had for a topic is given back if nothing of it
    was written; of a part nobody knows the bytes. The topic is revoked, so that the next request to it is judged batch by batch."""
    codes: dict[bytes, list[int]] = {}
    for (topic, _), code in errors.items():
        codes.setdefault(topic if counted.topics is not None else b"", []).append(code)
    for topic, to, carried in counted.parts():
        failed = codes.get(topic, [])
        if not any(failed):
            continue
        client.services.engine.confirmed.revoke(client.user, to.name)
        if not all(failed):
            continue
        give_back(to, carried, counted.rate, counted.when, now)


class ProducePatch(FrequentPlan):
    """Settles what was counted, if `credits`, and replaces node endpoints. Of answers that are like earlier ones it is told their
    number only (`answered`)."""

    __slots__ = ("_addresses", "_client", "_credits", "_version")

    def __init__(self, version: int, client: Client, *, addresses: bool, credits: bool) -> None:
        super().__init__()
        self._version, self._client, self._addresses, self._credits = version, client, addresses, credits

    def in_steps(self, size: int) -> bool:
        return size > LARGE_ANSWER

    def answered(self, count: int) -> None:
        """All of these requests were written."""
        if self._credits:
            client = self._client
            counted = client.charged[0]
            if counted.settle(count):
                client.charged.popleft()
                if counted.topics is not None:
                    client.unsettled -= len(counted.topics)

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        if went_well(frame, 0, len(frame), self._version):
            self.answered(1)
            return [frame]
        yield
        if self._credits:
            errors = errors_of(frame, self._version)
            yield
            self._credit(errors)
            yield
        return (yield from _shown(frame, self._version, self._client)) if self._addresses else [frame]

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        frame = as_bytes(buf)
        if went_well(frame, start, end, self._version):
            self.answered(1)
            return None
        frame = frame[start:end]
        if self._credits:
            self._credit(errors_of(frame, self._version))
        return patch_addresses(PRODUCE, self._version, frame, self._client.endpoint) if self._addresses else None

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        joined = b"".join(chunks)
        return self.finish(joined, 0, len(joined)) or [joined]

    def _credit(self, errors: Mapping[Part, int]) -> None:
        credit(self._client, self._client.charged[0], errors, self._client.now)
        self.answered(1)


class Settle(FrequentPlan):
    """The answer to a request that was judged batch by batch. What is counted only now may throttle the client: where there is a
    rate, nothing behind the request is looked at before, so that one request of each connection is above a rate at most, as ever.
    With `acks` 0 it is the answer to a question of the proxy's own, which the client does not get. Nothing is looked at before that
    comes either: a connection that is closed with an answer on its way is reset, and what is behind may be lost."""

    __slots__ = ("_acks", "_addresses", "_judged", "_mute", "_total")

    def __init__(self, judged: Judged, *, addresses: bool) -> None:
        client = judged.client
        self._judged, self._acks, self._addresses = judged, judged.found.acks, addresses
        self._total = client.api_sum(PRODUCE)
        client.unsettled += len(judged.batches)
        self._mute = 0.0
        engine = client.services.engine
        slowed = judged.judging.rules.produce is not None or engine.limits_topic_in or bool(engine.slowing)
        super().__init__(waits=client.unsettled > MAX_UNSETTLED or (slowed and not judged.counted) or not self._acks)

    @property
    def mute(self) -> float:
        return self._mute

    def in_steps(self, size: int) -> bool:  # noqa: ARG002
        return len(self._judged.batches) > AT_ONCE

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        judged = self._judged
        client, version = judged.client, judged.version
        client.unsettled -= len(judged.batches)
        errors = NOTHING if not self._acks or went_well(frame, 0, len(frame), version) else errors_of(frame, version)
        yield
        self._mute = yield from judged.settle(errors, self._acks)
        self.waits = self.waits or self._mute > 0
        if not self._acks:
            self._total.response_bytes -= len(frame)
            return []
        pieces: list[Buffer] = [frame]
        if self._addresses:
            pieces = yield from _shown(frame, version, client)
        return tell(PRODUCE, version, pieces, ceil(self._mute * 1000)) if self._mute else pieces

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        return self.finish_chunks([buf[start:end]])

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        return finish_at_once(self.work(b"".join(chunks)))


class Last(FrequentPlan):
    """Another plan, but nothing behind the request is looked at before its answer."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Plan) -> None:
        super().__init__(waits=True)
        self._inner = inner

    def holds(self, size: int) -> bool:
        return self._inner.holds(size)

    def in_steps(self, size: int) -> bool:
        return self._inner.in_steps(size)

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        return self._inner.work(frame)

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        return self._inner.finish(buf, start, end)

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        return self._inner.finish_chunks(chunks)


class Merge(FrequentPlan):
    """The answer to what went on of a request, with what was refused. `inner`: what is done with answers otherwise."""

    __slots__ = ("_inner", "_order", "_refused", "_version")

    def __init__(self, version: int, order: Sequence[Part], refused: Mapping[Part, Refusal], inner: Plan | None) -> None:
        super().__init__(waits=inner is not None and inner.waits)
        self._version, self._order, self._refused, self._inner = version, order, refused, inner

    @property
    def mute(self) -> float:
        return 0.0 if self._inner is None else self._inner.mute

    def in_steps(self, size: int) -> bool:  # noqa: ARG002
        return len(self._order) > AT_ONCE

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        merged, inner = (yield from with_refused(frame, self._version, self._order, self._refused)), self._inner
        if inner is None:
            return [merged]
        pieces = yield from inner.work(merged)
        self.waits = inner.waits
        return pieces

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        return self.finish_chunks([buf[start:end]])

    def finish_chunks(self, chunks: list[Buffer]) -> list[Buffer]:
        return finish_at_once(self.work(b"".join(chunks)))


def _shown(frame: bytes, version: int, client: Client) -> Generator[None, None, list[Buffer]]:
    """An answer with the addresses of brokers replaced, in steps."""
    pieces = yield from patching_addresses(PRODUCE, version, frame, client.endpoint)
    return [frame] if pieces is None else pieces


def question(client: Client, request: Request) -> bytes:
    """Something that any broker answers to anybody, and that changes nothing: which brokers there are."""
    return metadata.ask(request.correlation_id, client.client_id or "", (), ())
