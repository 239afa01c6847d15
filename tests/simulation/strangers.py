"""Clients that do wrong: bytes that are no requests, halves of requests, many connections. In: what, and chance. Out: bytes;
nothing of it may be felt by anybody else."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from tests.simulation import messages as m
from tests.simulation.network import Network, Node


class Mute(asyncio.Protocol):
    """Reads nothing of what it is told."""

    transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


class Stranger:
    """Some connections of somebody who has not logged in, or has and sends what is broken."""

    def __init__(self, network: Network, what: str, chance: Random, address: tuple[str, int]) -> None:
        self.network, self.what, self.chance, self.address = network, what, chance, address
        self.node = Node(f"stranger with {what}")
        self._open: list[Mute] = []

    async def run(self, seconds: float) -> None:
        for _ in range(self.chance.randint(20, 60) if self.what == "many" else self.chance.randint(1, 5)):
            try:
                _, protocol = await self.network.connect(Mute, *self.address)
            except OSError:
                continue
            self._open.append(protocol)
            protocol.transport.write(self._bytes())
        await asyncio.sleep(seconds)
        self.close()

    def close(self) -> None:
        for protocol in self._open:
            protocol.transport.abort() if self.chance.random() < 0.5 else protocol.transport.close()
        self._open.clear()

    def _bytes(self) -> bytes:
        chance = self.chance
        login = m.request(m.HANDSHAKE, 1, 1, "stranger", mechanism="PLAIN") + m.request(
            m.AUTHENTICATE, 2, 2, "stranger", auth_bytes=b"\0stranger\0" + chance.choice((b"right", b"wrong"))
        )
        whole = m.request(
            m.METADATA, 9, 3, "stranger", topics=None, allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
        )  # fmt: skip
        data = bytearray(login + whole * 3 if chance.random() < 0.7 else whole)
        if self.what == "nonsense":
            for _ in range(chance.randint(1, 8)):
                data[chance.randrange(len(data))] = chance.randrange(256)
        elif self.what == "half":
            del data[chance.randrange(1, len(data)) :]
        return bytes(data)
