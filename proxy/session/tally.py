"""Sums of traffic: sessions add to them, observers read them at the end of each interval. No clock, no I/O.

A sum belongs to one (principal, client id, topic, API). Sessions keep a reference to the sums they add to, so that
counting is plain attribute arithmetic; they give it back when they end. Each principal has a share of `max_keys`
(`quota.fair_share`); what is beyond it goes to one sum of that principal for each API, with client id `<other>`. So memory stays
bounded whatever clients call themselves, and no principal loses its lines because of others."""

from __future__ import annotations

from typing import Final, NamedTuple

from quota.fair_share import FairShare

OTHER: Final = "<other>"


class TallyKey(NamedTuple):
    """Whose traffic.

    `topic` is None for whole requests, else the lines are about the part of Produce or Fetch for that topic. `topic_id` is set
    where the client used an id whose name is not known.
    """

    principal: str
    client_id: str | None
    topic: str | None
    topic_id: bytes | None
    api_key: int


class Sum:
    """One row of the usage log in the making. Fields as in docs/log-format.md."""

    # fmt: off
    __slots__ = (
        "key", "mutations", "record_bytes", "records", "references", "refused", "request_bytes", "requests",
        "response_bytes", "throttle_ms", "unnamed",
    )
    # fmt: on

    def __init__(self, key: TallyKey) -> None:
        self.key = key
        self.unnamed = key.topic_id is not None
        self.references = 0
        self.clear()

    def clear(self) -> None:
        self.requests = self.request_bytes = self.response_bytes = 0
        self.record_bytes = self.records = self.mutations = self.throttle_ms = 0
        self.refused: dict[str, int] = {}

    def refuse(self, quota: str, items: int) -> None:
        self.refused[quota] = self.refused.get(quota, 0) + items


class Row(NamedTuple):
    """What a sum held at the end of an interval."""

    key: TallyKey
    requests: int
    request_bytes: int
    response_bytes: int
    record_bytes: int
    records: int
    mutations: int
    throttle_ms: int
    refused: dict[str, int]


class Tally:
    """All sums of one proxy."""

    def __init__(self, max_keys: int = 10_000) -> None:
        self._sums: dict[TallyKey, Sum] = {}
        self._shares = FairShare(max_keys)

    def __len__(self) -> int:
        return len(self._sums)

    def take(self, key: TallyKey) -> Sum:
        """The sum of this key, to add to until it is given back."""
        found = self._sums.get(key)
        if found is None and not self._shares.has_room(key.principal):
            key = TallyKey(key.principal, OTHER, None if key.topic is None else OTHER, None, key.api_key)
            found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = Sum(key)
            self._shares.charge(key.principal, 1)
        found.references += 1
        return found

    def give_back(self, taken: Sum) -> None:
        taken.references -= 1

    def by_api(self) -> dict[int, list[int]]:
        """By API key: requests, request bytes and response bytes of the running interval. In one go, or what the end of an interval
        moves on meanwhile would be missing or counted twice."""
        found: dict[int, list[int]] = {}
        for s in self._sums.values():
            if s.key.topic is None:
                totals = found.get(s.key.api_key)
                if totals is None:
                    totals = found[s.key.api_key] = [0, 0, 0]
                totals[0] += s.requests
                totals[1] += s.request_bytes
                totals[2] += s.response_bytes
        return found

    def sums(self) -> list[Sum]:
        """All that there are now, to be closed one by one."""
        return list(self._sums.values())

    def close(self, s: Sum) -> Row | None:
        """What a sum has held in the interval that ends, None for nothing. It starts at zero again; one that no connection holds is
        dropped."""
        row = None
        if s.requests or s.response_bytes:
            row = Row(
                s.key,
                s.requests,
                s.request_bytes,
                s.response_bytes,
                s.record_bytes,
                s.records,
                s.mutations,
                s.throttle_ms,
                s.refused,
            )
            s.clear()
        if not s.references:
            del self._sums[s.key]
            self._shares.give_back(s.key.principal)
        return row
