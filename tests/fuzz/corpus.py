"""Valid requests with their responses, of every API and version that the proxy understands. In: an API key and a number, which say
all there is to a corpus. Out: pairs, with the places of their lengths."""

from __future__ import annotations

import base64
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from kio.index import load_request_schema

from quota.catalogue import KEYS
from tests import properties
from tests.fuzz.bystander import PRODUCER_ID, TOPIC
from tests.fuzz.places import Place, request_places, response_places
from tests.messages import batch, part_of, produce, request, response, versions_of
from tests.support import HANDLERS

PAIRS = max(100, properties.share(400))
"""Requests with their responses that are made at once: making them takes longer than breaking them."""
PRODUCE, FETCH, HANDSHAKE, CREATE_TOPICS, AUTHENTICATE, ALTER_QUOTAS = 0, 1, 17, 19, 36, 49
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI")
_JWT = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (b'{"alg":"none"}', b'{"sub":"alice","n":[1,{}]}', b"x"))
TOKENS = [b"\0alice\0secret", b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL", b"n,,\x01auth=Bearer " + _JWT + b"\x01\x01", b"`\x82\x01"]


class Pair(NamedTuple):
    """A request and its response: whole frames, and where their lengths stand. None known in versions older than the schemas."""

    request: bytes
    request_places: list[Place]
    response: bytes
    response_places: list[Place]


def understood(key: int) -> list[int]:
    """The versions of an API that requests are made of, lowest first."""
    low, high = HANDLERS[key].versions
    known = sorted(version for version in versions_of(key) if low <= version <= high)
    return [*range(low, known[0]), *known]


@lru_cache(maxsize=1)
def corpus(key: int, number: int) -> list[Pair]:
    """`PAIRS` of them."""
    chance = Random(number << 8 | key)
    return [_pair(key, chance) for _ in range(PAIRS)]


@lru_cache
def logins() -> list[tuple[bytes, bytes]]:
    """Handshakes that come before a login."""
    return [(request(17, 1, 0, mechanism=name), response(17, 1, 0, error_code=0)) for name in MECHANISMS]


def _pair(key: int, chance: Random) -> Pair:
    version = chance.choice(understood(key))
    oldest = min(versions_of(key))
    if version < oldest:
        stand_in = _request(key, _STAND_IN.get(key, oldest), chance)
        return Pair(_older(stand_in, key, version), [], _older_response(key, version, chance), [])
    asked = _request(key, version, chance)
    given = {"error_code": 0} if key in (HANDSHAKE, AUTHENTICATE) and chance.random() < 0.7 else {}
    answer = response(key, version, 1, chance=chance, **given)
    return Pair(asked, request_places(asked, key, version), answer, response_places(answer, key, version))


def _request(key: int, version: int, chance: Random) -> bytes:
    given = {}
    if key == PRODUCE:
        given["acks"] = chance.choice((0, 1, -1))
        if chance.random() < 0.5:
            forged = {"producer_id": chance.choice((PRODUCER_ID, chance.randrange(100))), "epoch": 0, "sequence": 0}
            made = batch(size=chance.randrange(61, 200), **(forged if chance.random() < 0.5 else {}))
            return produce(version, 1, made, chance.choice((TOPIC, "orders")), given["acks"])
    elif key == AUTHENTICATE and chance.random() < 0.7:
        given["auth_bytes"] = chance.choice(TOKENS)
    elif key == HANDSHAKE and chance.random() < 0.7:
        given["mechanism"] = chance.choice(MECHANISMS)
    elif key == ALTER_QUOTAS and chance.random() < 0.7:
        given["entries"] = tuple(_altered(version, chance) for _ in range(chance.randrange(1, 4)))
    return request(key, version, 1, chance=chance, **given)


def _altered(version: int, chance: Random) -> Any:
    """An entry about limits of the proxy, and maybe of brokers."""
    entry = part_of(load_request_schema(ALTER_QUOTAS, version), "entries")
    entity, op = part_of(entry, "entity"), part_of(entry, "ops")
    kinds = chance.sample(["user", "client-id", "ip"], chance.choice((1, 1, 2)))
    keys = chance.sample([*KEYS, "consumer_byte_rate"], chance.choice((1, 2, 3)))
    return entry(
        entity=tuple(entity(entity_type=kind, entity_name=chance.choice((None, "alice", ""))) for kind in kinds),
        ops=tuple(op(key=key, value=chance.uniform(-1, 9), remove=chance.random() < 0.3) for key in keys),
    )


_STAND_IN = {CREATE_TOPICS: 4}
"""The version that one older than the schemas is made of, where it is not the oldest."""


def _older(frame: bytes, key: int, version: int) -> bytes:
    """A request of a version that the schemas do not have, made of one that they have."""
    data = bytearray(frame)
    data[6:8] = version.to_bytes(2, "big")
    if key == PRODUCE:  # without a transactional id
        at = 14 + int.from_bytes(frame[12:14], "big")
        size = int.from_bytes(frame[at : at + 2], "big", signed=True)
        del data[at : at + 2 + max(size, 0)]
    elif key == CREATE_TOPICS and version == 0:  # without `validate_only`
        del data[-1]
    data[:4] = (len(data) - 4).to_bytes(4, "big")
    return bytes(data)


def _older_response(key: int, version: int, chance: Random) -> bytes:
    body = bytes(4) if version else b""  # throttle time
    if key == FETCH:
        records = chance.randbytes(chance.choice((0, 1, 40, 200)))
        partition = chance.randbytes(4 + 2 + 8) + len(records).to_bytes(4, "big") + records
        body += b"\0\0\0\1\0\1t" + b"\0\0\0\2" + 2 * partition
    elif key == CREATE_TOPICS:
        body = b"\0\0\0\1\0\1t\0\0" + (b"\xff\xff" if version else b"")
    else:
        body = b"\0\0\0\1\0\1t\0\0\0\1" + bytes(14) + body
    return (4 + len(body)).to_bytes(4, "big") + b"\0\0\0\1" + body
