"""What a handler asks the broker before it decides: which topics there are, and how large they are.

The answer is waited for however long it takes. A broker handles the requests of a connection one at a time, so the client's own
request would have waited as long. If the proxy stopped waiting, a client could choose what its request costs, by a long poll in
front of it."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from proxy.session.client import HIDDEN, NOT_TOLD, Client
from proxy.session.held_answers import InSteps, Question
from proxy.session.plans import Ask, Pause, Request
from proxy.wire import metadata
from proxy.wire.items import NO_ID, Key
from proxy.wire.primitives import BadBytes, Buffer
from proxy.wire.steps import FEW, MANY, freed

Told = dict[Key, int]
"""What the broker said of topics for one request: partitions by name or id, 0 of those that are not there, `HIDDEN`, or
`NOT_TOLD`."""


def ask_sizes(client: Client, request: Request, keys: Iterable[Key], told: Told) -> Generator[Pause, None, None]:
    """Ask about these topics, in the client's name; the answer is added to `told`. Names come first where there are names and ids:
    a broker takes no mixture, so the handler has to ask again."""
    names: dict[Key, None] = {}
    ids: dict[Key, None] = {}
    for i, key in enumerate(keys):
        if i % MANY == MANY - 1:
            yield None
        (ids if key[0] is None else names)[key] = None
    asked = list(names or ids)
    yield from freed(names, ids)
    frame = yield from metadata.asking(request.correlation_id, client.client_id or "", asked)
    yield Ask(frame, request.correlation_id, _Sizes(client, asked, told, request))


def came(client: Client, name: str, partitions: int) -> None:
    """This topic exists. Who was charged for it stays charged, with what it has where that is less."""
    services = client.services
    for charge in services.expected.seen(name):
        if partitions < charge.amount:
            services.engine.controller_mutations.correct(charge.receipt, charge.item, partitions, client.now)


class _Sizes(Question, InSteps):
    """What the broker says of topics."""

    __slots__ = ("_client", "_keys", "_request", "_told")

    def __init__(self, client: Client, keys: list[Key], told: Told, request: Request) -> None:
        super().__init__()
        self._client, self._keys, self._told, self._request = client, keys, told, (request.key, request.version)

    def work(self, frame: bytes) -> Generator[None, None, list[Buffer]]:
        client = self._client
        try:
            found = yield from _sizes(frame)
        except BadBytes:
            self._complain()
            self._told |= dict.fromkeys(self._keys, NOT_TOLD)
            return []
        for i, key in enumerate(self._keys):
            if i % MANY == MANY - 1:
                yield
            self._told[key] = found.get(key, 0)
        for i, ((name, _), size) in enumerate(found.items()):
            if i % MANY == MANY - 1:
                yield
            if name is not None and size > 0:
                came(client, name, size)
        client.services.cluster.learn_topics(frame, metadata.ASK_VERSION)
        yield from freed(found)
        return []

    def give_up(self) -> None:
        """The broker takes its time, or is busy with what the client sent before: it is said, and waited for."""
        self._complain()

    def _complain(self) -> None:
        topics = tuple(name if name is not None else f"topic id {topic_id.hex()}" for name, topic_id in self._keys)
        self._client.services.watcher.not_told(self._client.requester(*self._request, topics))


def _sizes(frame: bytes) -> Generator[None, None, dict[Key, int]]:
    """Partitions by name and by id; 0 of what is not there, `HIDDEN` of what the client may not see. In steps."""
    found: dict[Key, int] = {}
    for i, topic in enumerate(metadata.read_topics(frame, metadata.ASK_VERSION)):
        if i % FEW == FEW - 1:
            yield
        hidden = topic.error == metadata.TOPIC_AUTHORIZATION_FAILED and not topic.partitions
        size = HIDDEN if hidden else topic.partitions
        if topic.name:
            found[topic.name.decode(), NO_ID] = size
        found[None, topic.topic_id] = size
    return found
