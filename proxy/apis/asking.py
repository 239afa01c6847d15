"""What a handler asks the broker before it decides: which topics there are, and how large they are."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.session.client import NOT_TOLD, Client
from proxy.session.plans import Ask, Question, Request
from proxy.wire import metadata
from proxy.wire.items import NO_ID, Key
from proxy.wire.primitives import BadBytes, Buffer


def ask(client: Client, request: Request, keys: Iterable[Key]) -> Ask:
    """Ask about these topics, in the client's name; the answer stands in `client.asked` when the request is looked at again.
    Names come first where there are names and ids: a broker takes no mixture, and the handler asks again."""
    wanted = dict.fromkeys(keys)
    names = [name for name, _ in wanted if name is not None]
    ids = [] if names else [topic_id for _, topic_id in wanted]
    frame = metadata.ask(request.correlation_id, client.client_id or "", names, ids)
    asked: list[Key] = [(name, NO_ID) for name in names] + [(None, topic_id) for topic_id in ids]
    return Ask(frame, request.correlation_id, _Sizes(client, asked))


class _Sizes(Question):
    """What the broker says of topics."""

    __slots__ = ("_client", "_keys")

    def __init__(self, client: Client, keys: list[Key]) -> None:
        super().__init__()
        self._client, self._keys = client, keys

    def finish(self, buf: Buffer, start: int, end: int) -> list[Buffer] | None:
        if self.waits:
            frame = bytes(buf[start:end])
            try:
                found = _sizes(frame)
            except BadBytes:
                self._tell(NOT_TOLD)
            else:
                self._client.asked |= {key: found.get(key, 0) for key in self._keys}
                self._client.services.cluster.learn_topics(frame, metadata.ASK_VERSION)
        return []

    def give_up(self) -> None:
        super().give_up()
        self._tell(NOT_TOLD)

    def _tell(self, size: int) -> None:
        self._client.asked |= dict.fromkeys(self._keys, size)


def _sizes(frame: bytes) -> dict[Key, int]:
    """Partitions by name and by id; 0 of what is not there, or may not be seen."""
    found: dict[Key, int] = {}
    for topic in metadata.read_topics(frame, metadata.ASK_VERSION):
        if topic.name:
            found[topic.name.decode(), NO_ID] = topic.partitions
        found[None, topic.topic_id] = topic.partitions
    return found
