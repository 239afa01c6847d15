"""Connections per second of an address (KIP-612), with an oracle in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from heapq import heappop, heappush
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.hashing import murmur3
from quota.decision import Action
from quota.engine import Engine
from quota.kinds import connections, rates
from quota.kinds.connections import ConnectionLimits, parse_network
from tests.support import limits_of


def engine_of(limits: ConnectionLimits, **more: object) -> Engine:
    return Engine(limits_of(limits, **more), murmur3)  # type: ignore[arg-type]


class Exact:
    """Kafka's rate over 11 samples of 1 s, in fractions: a sample begins with a connection, takes those of the next second, and
    counts until 11 s after its last one. The connection that exceeds the rate makes a debt, which time pays at the rate; then it is
    as if the rate had been used for all of ten samples. What is refused does not count."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.samples: list[tuple[Fraction, Fraction, Fraction]] = []  # (start, last, sum)
        self.paid_at = Fraction(0)

    def arrives(self, now: Fraction) -> bool:
        if now < self.paid_at:
            return False
        if self.paid_at:
            self.samples = [(self.paid_at - n, self.paid_at - n + 1, Fraction(self.rate)) for n in range(10, 0, -1)]
            self.paid_at = Fraction(0)
        self.samples = [sample for sample in self.samples if now - sample[1] < 11]
        start, _, total = self.samples[-1] if self.samples else (Fraction(-100), 0, 0)
        if now - start >= 1 or self.full:
            self.samples.append((now, now, Fraction(1)))
        else:
            self.samples[-1] = start, now, total + 1
        self.full = False
        passed = now - self.samples[0][0]
        over = sum(total for _, _, total in self.samples) - self.rate * (passed + max(10 - passed // 1, 0))
        if over > 0:
            self.paid_at, self.full = now + over / self.rate, True
        return True

    full = False


@given(rate=st.integers(1, 4), gaps=st.lists(st.integers(0, 96), min_size=1, max_size=300))
def test_it_admits_what_exact_arithmetic_admits(rate: int, gaps: list[int]) -> None:
    engine, exact, ticks = engine_of(ConnectionLimits(rate)), Exact(rate), 0
    for gap in gaps:
        ticks += gap
        assert (engine.arrive("10.0.0.1", ticks / 32) is None) == exact.arrives(Fraction(ticks, 32))


@pytest.mark.parametrize("connections_at_once", [1, 30])
def test_a_storm_gets_the_rate_and_no_more(connections_at_once: int) -> None:
    """Over a minute, each connection that is refused comes again as soon as it is closed."""
    engine, rate = engine_of(ConnectionLimits(20)), 20
    due = [(0.0, one) for one in range(connections_at_once)]
    admitted, now = [], 0.0
    while now < 75:
        now, one = heappop(due)
        decision = engine.arrive("10.0.0.1", now)
        if decision is None:
            admitted.append(now)
        heappush(due, (now + (0.001 if decision is None else max(decision.throttle, 0.001)), one))
    measured = sum(15 <= at < 75 for at in admitted)
    assert measured == pytest.approx(rate * 60, rel=0.02)


def test_what_is_refused_is_closed_after_kafkas_delay():
    engine = engine_of(ConnectionLimits(2))
    assert [engine.arrive("10.0.0.1", 0.0) for _ in range(21)] == [None] * 21, "ten seconds of it at once, and one that exceeds it"
    decision = engine.arrive("10.0.0.1", 0.0)
    assert decision is not None
    assert (decision.quota, decision.action, decision.usage, decision.limit) == (connections.NAME, Action.REFUSE, 2.1, 2)
    assert decision.throttle == 0.5, "until the rate is within its limit"
    for _ in range(1000):
        assert engine.arrive("10.0.0.1", 0.0) is not None
    assert engine.arrive("10.0.0.1", 0.5) is None, "what was refused does not count"
    assert engine.arrive("10.0.0.2", 0.0) is None, "others are not concerned"


def test_no_delay_is_longer_than_kafkas():
    engine = engine_of(ConnectionLimits(1), observed={connections.NAME: Action.REFUSE})
    for _ in range(100):
        engine.arrive("10.0.0.1", 0.0)
    engine.change(limits_of(ConnectionLimits(1)))
    decision = engine.arrive("10.0.0.1", 0.0)
    assert decision is not None
    assert decision.throttle == connections.MAX_DELAY


@pytest.mark.parametrize(
    ("one", "other", "prefix", "same"),
    [
        ("10.0.0.1", "10.0.0.2", 64, False),
        ("10.0.0.1", "::ffff:10.0.0.1", 64, True),
        ("2001:db8::1", "2001:db8::ffff:1", 64, True),
        ("2001:db8::1", "2001:db8:0:1::1", 64, False),
        ("2001:db8::1", "2001:db8:0:1::1", 48, True),
        ("2001:db8::1", "2001:db8::2", 128, False),
        ("fe80::1%eth0", "fe80::2%eth1", 64, True),
    ],
)
def test_addresses_share_a_rate_if_they_are_of_one_client(one, other, prefix, same):
    engine = engine_of(ConnectionLimits(1, ipv6_prefix=prefix))
    for _ in range(11):
        assert engine.arrive(one, 0.0) is None
    assert (engine.arrive(other, 0.0) is not None) == same


def test_the_smallest_network_holds():
    networks = {parse_network(name): rate for name, rate in {"10.0.0.0/8": 2.0, "10.1.0.0/16": 3.0, "10.1.2.3": 4.0}.items()}
    engine = engine_of(ConnectionLimits(None, networks))
    for host, rate in {"10.9.0.1": 2, "10.1.9.9": 3, "10.1.2.3": 4}.items():
        assert [engine.arrive(host, 0.0) for _ in range(10 * rate + 1)] == [None] * (10 * rate + 1)
        assert engine.arrive(host, 0.0) is not None
    assert [engine.arrive("11.0.0.1", 0.0) for _ in range(1000)] == [None] * 1000
    assert parse_network("::ffff:10.0.0.0/104") == ip_network("10.0.0.0/8")
    assert engine.arrive("no address", 0.0) is None


def test_an_observed_rate_closes_nothing_and_counts_all():
    engine = engine_of(ConnectionLimits(1), observed={connections.NAME: Action.REFUSE})
    assert [engine.arrive("10.0.0.1", 0.0) for _ in range(13)] == [None] * 13
    assert [decision.action for decision in engine.would] == [Action.REFUSE] * 2
    assert engine.would[-1].usage == pytest.approx(1.3)


def test_many_addresses_take_bounded_memory(monkeypatch):
    monkeypatch.setattr(rates, "MAX_ENTITIES", 9)
    engine = engine_of(ConnectionLimits(1))
    for number in range(100):
        engine.arrive(f"10.0.0.{number}", 0.0)
    assert len(engine.address_connections) <= 10
    for _ in range(3):
        engine.sweep(100.0)
    assert len(engine.address_connections) == 0


@pytest.mark.parametrize("wrong", [{"per_address": 0.0}, {"networks": {ip_network("10.0.0.0/8"): -1.0}}, {"ipv6_prefix": 129}])
def test_a_limit_that_is_none(wrong):
    with pytest.raises(ValueError, match=r"need a limit above 0|1 to 128"):
        ConnectionLimits(**wrong)


def test_an_ipv6_address_with_a_rate_of_its_own_has_a_window_of_its_own():
    engine = engine_of(ConnectionLimits(1, {ip_network("2001:db8::1"): 2.0, ip_network("2001:db8::/56"): 1.0}))
    assert [engine.arrive("2001:db8::1", 0.0) for _ in range(21)] == [None] * 21
    assert [engine.arrive("2001:db8::2", 0.0) for _ in range(11)] == [None] * 11, "what the other one did is not theirs"
    assert engine.arrive("2001:db8::1", 0.0) is not None
    assert engine.arrive("2001:db8::3", 0.0) is not None


def test_addresses_of_ipv4_that_are_written_as_ipv6_name_their_network():
    assert parse_network("::ffff:10.1.2.3/104") == parse_network("10.1.2.3/8") == ip_network("10.0.0.0/8")
