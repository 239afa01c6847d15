"""DescribeClientQuotas: key 48, versions 0-1, and AlterClientQuotas: key 49, versions 0-1 (KIP-546). Charge nothing.

So Kafka's own tools and the AdminClients of all languages see the proxy's quotas beside those of the brokers. A broker knows
nothing of the proxy's keys (`quota.keys`), so these never reach one. `connection_creation_rate` of an address (KIP-612) is the
proxy's too, as brokers see no address but that of the proxy.

- describing: the broker is asked as ever, and what it answers is added to; if it refuses, so does the proxy;
- altering: an entry with a key of the proxy's is judged here first, as a whole: the user has to be one of `quotas.admins`, else 31
  CLUSTER_AUTHORIZATION_FAILED; anything wrong is 42 INVALID_REQUEST, and nothing of the entry is done. What is left of the
  request for the broker goes there next, in the client's name. Entries that the broker takes then come to the proxy's own keys;
  those are answered once they are written. Should writing fail then, the entry fails, although a broker's key in it is set: doing
  it again does no harm.

It does not read requests that do not alter any of its keys; these pass as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

from proxy.session.client import Client
from proxy.session.dynamic_quotas import Alteration, DynamicQuotas
from proxy.session.held_answers import LARGE, Answer, InSteps, Question
from proxy.session.plans import FORWARD, Ask, Decided, Forward, Handling, Pause, Request, Wait
from proxy.wire import client_quotas as wire
from proxy.wire.client_quotas import DONE, Component, Entry, Filter, Op, Result, Who
from proxy.wire.primitives import BadBytes, Buffer
from proxy.wire.steps import FEW, MANY
from quota import addresses
from quota.addresses import DEFAULT_ADDRESS, AddressEntity
from quota.entity import DEFAULT, Entity
from quota.keys import Values, is_own, named, wrong_entity, wrong_key, wrong_together, wrong_value
from quota.overrides import Change
from quota.tenants import TenantEntity, owner_of

USER, CLIENT_ID = "user", "client-id"
IP: Final = "ip"
"""An address (KIP-612). Brokers know the type, and have the same limit for it; but they see the address of the proxy alone, so a
limit of theirs would hold for all clients together."""
TENANT: Final = "tenant"
"""An entity type that no broker knows: entries about it have keys of the proxy only, so they never reach one."""
NOT_ALLOWED, INVALID = 31, 42
"""CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST"""

STRANGE = Result(-1, "The proxy does not understand what the broker says of this request.")
UNSAID = Result(-1, "The broker says nothing of this entity.")


def who_of(entity: Entity) -> Who:
    """An entity of a limit as the protocol has it."""
    if isinstance(entity, TenantEntity):
        return ((TENANT, entity.topic),)
    if isinstance(entity, AddressEntity):
        return ((IP, None if entity == DEFAULT_ADDRESS else entity.topic),)
    parts = ((USER, entity.user), (CLIENT_ID, entity.client_id))
    return tuple((kind, None if name == DEFAULT else name) for kind, name in parts if name is not None)


def entity_of(who: Who) -> Entity:
    """The other way round; ValueError, with a message for people, for what has no limits of the proxy's."""
    names: dict[str, str] = {}
    if [kind for kind, _ in who] == [TENANT]:
        tenant = owner_of(who[0][1] or "")
        if (wrong := wrong_entity(tenant)) is not None:
            raise ValueError(wrong)
        return tenant
    if [kind for kind, _ in who] == [IP]:
        return addresses.entity_of(who[0][1])
    for kind, name in who:
        if kind not in (USER, CLIENT_ID):
            raise ValueError(
                f"limits of the proxy are of a {USER}, a {CLIENT_ID} or both, or of a {TENANT} or an {IP} alone, not of {kind!r}"
            )
        if kind in names:
            raise ValueError(f"{kind} stands twice in one entity")
        if name == DEFAULT:
            raise ValueError(f"{DEFAULT!r} is not a name of a {kind}; the default has none")
        names[kind] = DEFAULT if name is None else name
    entity = Entity(names.get(USER), names.get(CLIENT_ID))
    if (wrong := wrong_entity(entity)) is not None:
        raise ValueError(wrong)
    return entity


MAX_READ: Final = 8192
"""Bytes of a request that are read of users who may not alter quotas, and of a filter: two milliseconds' worth."""


class DescribeClientQuotas:
    key, versions = wire.DESCRIBE, wire.VERSIONS

    def request(self, client: Client, request: Request) -> Decided:
        if request.size > MAX_READ:
            return FORWARD
        try:
            request.join()
            wanted = wire.read_filter(bytes(request.buf[request.body : request.end]), request.version)
        except BadBytes:  # for the broker to judge
            return FORWARD
        return Forward(_Both(client.services.dynamic_quotas, _spelled(wanted), request.version))


def _spelled(wanted: Filter) -> Filter:
    """Addresses as limits have them: 2001:DB8::1 asks for 2001:db8::1."""
    return Filter(tuple(map(_spelled_part, wanted.components)), wanted.strict)


def _spelled_part(component: Component) -> Component:
    if component.type != IP or component.match_type != wire.EXACT:
        return component
    try:
        return component._replace(match=addresses.entity_of(component.match).topic)
    except ValueError:  # no limit has such a name
        return component


class _Both(InSteps):
    """The broker's answer with the proxy's limits in it."""

    __slots__ = ("_dynamic_quotas", "_version", "_wanted")

    def __init__(self, dynamic_quotas: DynamicQuotas, wanted: Filter, version: int) -> None:
        super().__init__()
        self._dynamic_quotas, self._wanted, self._version = dynamic_quotas, wanted, version

    def in_steps(self, size: int) -> bool:
        return size > LARGE or len(self._dynamic_quotas.table) > FEW

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        try:
            pieces = None if wire.is_error(frame, self._version) else (yield from self._with_own(frame))
        except BadBytes:  # of a newer broker: better without the proxy's than not at all
            pieces = None
        return [frame] if pieces is None else pieces

    def _with_own(self, frame: bytes) -> Generator[None, None, list[Buffer] | None]:
        found: dict[Who, Values] = {}
        for i, (entity, values) in enumerate(self._dynamic_quotas.table.items()):
            if i % FEW == FEW - 1:
                yield
            if self._wanted.matches(who := who_of(entity)):
                found[who] = values
        return (yield from wire.with_entries(frame, self._version, found)) if found else None


@dataclass(slots=True)
class _Order:
    """An AlterClientQuotas request that is about limits of the proxy. `results` by number of the entry, as they come; `own` are
    the changes of entries that are right; `theirs` is what the broker has to judge of each."""

    entries: list[Entry]
    validate_only: bool
    results: dict[int, Result] = field(default_factory=dict)
    own: dict[int, list[Change]] = field(default_factory=dict)
    theirs: dict[int, Entry] = field(default_factory=dict)
    throttle_ms: int = 0

    def accepted(self) -> Generator[None, None, list[Change]]:
        """What is to be done of the proxy's own, now that nothing is wrong with the rest of these entries. In steps."""
        found: list[Change] = []
        for n, (i, changes) in enumerate(self.own.items()):
            if n % MANY == MANY - 1:
                yield
            if self.results.get(i, DONE) == DONE:
                found += changes
        return found

    def written(self, alteration: Alteration) -> None:
        """The changes were written, or not."""
        if alteration.refusal is not None:
            for i in self.own:
                if self.results.get(i, DONE) == DONE:
                    self.results[i] = Result(*alteration.refusal)

    def answer(self, request: Request) -> Generator[None, None, bytes]:
        results: list[tuple[Who, Result]] = []
        for i, entry in enumerate(self.entries):
            if i % MANY == MANY - 1:
                yield
            results.append((entry.who, self.results.get(i, DONE)))
        return (yield from wire.alter_response(request.correlation_id, request.version, self.throttle_ms, results))


class AlterClientQuotas:
    key, versions = wire.ALTER, wire.VERSIONS

    def request(self, client: Client, request: Request) -> Handling:
        order = yield from _read(client, request)
        if order is None:
            return FORWARD
        if order.theirs:
            yield from _ask(client, request, order)
        if not order.validate_only and (changes := (yield from order.accepted())):
            alteration = client.services.dynamic_quotas.alter(changes, client.requester(self.key, request.version))
            yield Wait(alteration)
            order.written(alteration)
        return Answer((yield from order.answer(request)))


def _read(client: Client, request: Request) -> Generator[None, None, _Order | None]:
    """The request, judged as far as the proxy can; None when it is the broker's alone. In steps."""
    if request.size > MAX_READ and not client.services.dynamic_quotas.may_alter(client.user):  # the broker answers it alone
        return None
    try:
        request.join()
        body = bytes(request.buf[request.body : request.end])
        entries, validate_only = yield from wire.read_alterations(body, request.version)
    except BadBytes:  # for the broker to judge
        return None
    if not any(_is_own(entry, op) for entry in entries for op in entry.ops):
        return None
    order = _Order(entries, validate_only)
    times: Counter[frozenset[tuple[str, str | None]]] = Counter()
    for i, entry in enumerate(entries):
        if i % MANY == MANY - 1:
            yield
        times[frozenset(entry.who)] += 1
    for i, entry in enumerate(entries):
        if i % FEW == FEW - 1:
            yield
        own = [op for op in entry.ops if _is_own(entry, op)]
        theirs = tuple(op for op in entry.ops if not _is_own(entry, op))
        if own:
            try:
                order.own[i] = _judge(client, entry.who, own, times[frozenset(entry.who)])
            except _Refused as e:
                order.results[i] = e.result
                continue
        if theirs or not own:
            order.theirs[i] = Entry(entry.who, theirs)
    return order


def _is_own(entry: Entry, op: Op) -> bool:
    """Is this the proxy's to judge? Of tenants all is, as no broker knows them."""
    return is_own(op.key) or any(kind == TENANT for kind, _ in entry.who)


class _Refused(Exception):
    """An entry that is not done, and why."""

    def __init__(self, error: int, message: str) -> None:
        super().__init__(message)
        self.result = Result(error, message)


def _judge(client: Client, who: Who, ops: Sequence[Op], times: int) -> list[Change]:
    """The changes of one entry; `_Refused` when any of them is not right. `times`: how often its entity stands in the request."""
    dynamic_quotas = client.services.dynamic_quotas
    if not dynamic_quotas.may_alter(client.user):
        raise _Refused(NOT_ALLOWED, f"{client.principal} may not alter {ops[0].key}: it is not in the proxy's `quotas.admins`.")
    if (closed := dynamic_quotas.closed()) is not None:
        raise _Refused(*closed)
    try:
        entity = entity_of(who)
    except ValueError as e:
        raise _Refused(INVALID, f"{ops[0].key}: {e}.") from None
    if times > 1:
        raise _Refused(INVALID, f"{named(entity)} is {times} times in the request; it must be there once.")
    for key, count in Counter(op.key for op in ops).items():
        if count > 1:
            raise _Refused(INVALID, f"{key} of {named(entity)} is {count} times in the request; it must be there once.")
    changes = [Change(entity, op.key, None if op.remove else op.value) for op in ops]
    wrongs = [wrong_key(change.entity, change.key) for change in changes]
    wrongs += [wrong_value(*change) for change in changes if change.value is not None]  # type: ignore[arg-type]
    wrongs.append(wrong_together(dynamic_quotas.outlook(changes).get(entity, {})))
    if (wrong := next(filter(None, wrongs), None)) is not None:
        raise _Refused(INVALID, f"{named(entity)}: {wrong}.")
    return changes


def _ask(client: Client, request: Request, order: _Order) -> Generator[Pause, None, None]:
    """Let the broker judge its part."""
    frame = yield from wire.alter_request(
        request.correlation_id,
        client.client_id or "",
        request.version,
        list(order.theirs.values()),
        validate_only=order.validate_only,
    )
    yield Ask(frame, request.correlation_id, _Verdicts(order, request.version))


class _Verdicts(Question, InSteps):
    """What the broker says of its part."""

    __slots__ = ("_order", "_version")

    def __init__(self, order: _Order, version: int) -> None:
        super().__init__()
        self._order, self._version = order, version

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        order = self._order
        try:
            order.throttle_ms, results = yield from wire.read_results(frame, self._version)
        except BadBytes:
            order.results |= dict.fromkeys(order.theirs, STRANGE)
        else:
            for i, entry in order.theirs.items():
                order.results[i] = results.get(frozenset(entry.who), UNSAID)
        return []

    def give_up(self) -> None:
        """A client waits for what its broker says, however long that takes: so it does here."""
