"""Brokers that join, move and leave, and the ports of the proxy that stand for them."""

from collections.abc import Collection, Mapping

import pytest

from proxy.cluster.brokers import Brokers, Change
from proxy.cluster.routes import NameRoute, PortRoute
from proxy.config.units import HostPort, PortRange
from proxy.wire.metadata import Broker

BOOTSTRAP = [HostPort("seed-a", 9092), HostPort("seed-b", 9092)]


class Room:
    """Brokers with ports that are numbers; `taken` ones cannot be had."""

    def __init__(
        self,
        first: int = 9193,
        last: int = 9202,
        forget_after: float = 600.0,
        reserved: Collection[int] = (),
        given: Mapping[int, HostPort] | None = None,
    ) -> None:
        self.now = 0.0
        self.taken: set[int] = set()
        self.open: dict[int, int] = {}
        self.changes: list[Change] = []
        self.asked: list[tuple[int, int]] = []
        self.route = PortRoute(None, PortRange(first, last), {9192, *reserved}, self._listen, self._unlisten)
        self.route.bootstrap_port = 9192
        self.brokers = Brokers(BOOTSTRAP, self.changes.append, lambda: self.now, forget_after, given)
        self.brokers.lead_by(self.route)

    def _listen(self, node_id: int, port: int) -> int | None:
        self.asked.append((node_id, port))
        got = port or 40_000 + len(self.asked)
        if got in self.taken or got in self.open.values():
            return None
        self.open[node_id] = got
        return got

    def _unlisten(self, node_id: int) -> None:
        del self.open[node_id]

    def port(self, node_id: int | None) -> int:
        host, port = self.route.endpoint(node_id, "10.0.0.9")
        assert host == "10.0.0.9"
        return port

    def learn(self, *brokers: tuple[int, str], at: float | None = None) -> None:
        self.now = self.now if at is None else at
        self.brokers.learn([Broker(node_id, host, 9092) for node_id, host in brokers])


def test_a_broker_is_at_first_plus_id_modulo_size():
    room = Room()
    room.learn((3, "c"), (17, "q"), (0, "a"))
    assert {node_id: room.port(node_id) for node_id in (0, 3, 17)} == {0: 9193, 3: 9196, 17: 9200} == room.open
    assert room.changes == [Change(joined=(0, 3, 17))]
    assert room.brokers.broker_addresses(17) == [HostPort("q", 9092)]
    assert len(room.brokers) == 3


def test_who_has_no_port_is_shown_at_the_bootstrap_port():
    room = Room()
    assert room.port(None) == room.port(5) == 9192
    assert room.brokers.broker_addresses(5) == []


def test_two_brokers_for_one_port_get_two():
    room = Room()
    room.learn((1, "a"), (11, "b"), (2, "c"))
    assert sorted(room.open) == [1, 2, 11]
    assert len(set(room.open.values())) == 3
    assert room.open[1] == 9194


def test_more_brokers_than_ports_are_all_reachable_somehow():
    room = Room(9193, 9194)
    room.learn((0, "a"), (1, "b"), (2, "c"))
    assert set(room.open) == {0, 1}
    assert room.port(2) == 9192


def test_a_port_that_cannot_be_had_is_tried_again():
    room = Room()
    room.taken.add(9194)
    room.learn((1, "a"))
    assert room.port(1) == 9192
    room.learn((1, "a"))
    assert room.port(1) == 9192
    room.taken.clear()
    room.learn((1, "a"))
    assert room.port(1) == 9194
    assert room.changes == [Change(joined=(1,))]


def test_ports_that_are_free_anyhow():
    room = Room(0, 0)
    room.learn((1, "a"), (2, "b"))
    assert {port for _, port in room.asked} == {0}
    assert room.port(1) != room.port(2)


def test_a_broker_that_moves_keeps_its_port():
    room = Room()
    room.learn((1, "a"), (2, "b"))
    room.learn((1, "z"), (2, "b"))
    assert room.changes[1:] == [Change(moved=(1,))]
    assert room.brokers.broker_addresses(1) == [HostPort("z", 9092)]
    assert len(room.asked) == 2


def test_the_same_list_again_changes_nothing():
    room = Room()
    for second in range(5):
        room.learn((1, "a"), (2, "b"), at=float(second))
    assert len(room.changes) == 1
    assert len(room.asked) == 2


def test_a_broker_that_is_no_longer_named_is_kept_for_a_while_then_forgotten():
    room = Room(forget_after=60)
    room.learn((1, "a"), (2, "b"), at=0)
    room.learn((1, "a"), at=50)
    room.learn((1, "a"), at=60)
    assert room.port(2) == 9195
    assert room.brokers.broker_addresses(2) == [HostPort("b", 9092)]
    room.learn((1, "a"), at=60.1)
    assert room.changes[-1] == Change(left=(2,))
    assert room.port(2) == 9192
    assert room.brokers.broker_addresses(2) == []
    assert room.open == {1: 9194}


def test_a_broker_that_is_named_all_the_time_is_never_forgotten():
    room = Room(forget_after=60)
    for second in range(0, 1000, 50):
        room.learn((1, "a"), at=float(second))
    assert room.open == {1: 9194}


def test_a_broker_that_comes_back_in_time_has_not_left():
    room = Room(forget_after=60)
    room.learn((1, "a"), (2, "b"), at=0)
    room.learn((1, "a"), at=50)
    room.learn((1, "a"), (2, "b"), at=59)
    room.learn((1, "a"), (2, "b"), at=118)
    assert [change.left for change in room.changes] == [()]


def test_an_empty_list_says_nothing_about_brokers():
    room = Room()
    room.learn((1, "a"))
    room.learn(at=1.0)
    assert room.brokers.broker_addresses(1) == [HostPort("a", 9092)]
    assert room.port(1) == 9194


def test_a_broker_without_a_host_is_not_there():
    room = Room()
    room.learn((1, ""), (2, "b"))
    assert set(room.open) == {2}


def test_live_brokers_are_asked_first_and_bootstrap_servers_after_them():
    room = Room()
    assert room.brokers.addresses() == BOOTSTRAP
    room.learn((1, "a"), (2, "seed-a"))
    assert room.brokers.addresses() == [HostPort("a", 9092), HostPort("seed-a", 9092), HostPort("seed-b", 9092)]


def test_clients_that_bootstrap_are_spread():
    room = Room()
    room.learn((1, "a"))
    firsts = [room.brokers.bootstrap_addresses()[0] for _ in range(6)]
    assert sorted(firsts) == sorted([*BOOTSTRAP, HostPort("a", 9092)] * 2)
    assert all(sorted(room.brokers.bootstrap_addresses()) == sorted([*BOOTSTRAP, HostPort("a", 9092)]) for _ in range(3))


@pytest.mark.parametrize("node_id", [-1, 2**31 - 1])
def test_strange_ids_have_a_port_of_the_range(node_id):
    room = Room()
    room.learn((node_id, "a"))
    assert 9193 <= room.port(node_id) <= 9202


def test_a_proxy_at_the_last_port_there_is_does_not_fail():
    from proxy.config.listeners import Listener

    ports = Listener(bootstrap=HostPort("a", 65535)).ports()
    room = Room(*ports)
    room.learn((1, "a"))
    assert room.brokers.broker_addresses(1)


def test_a_port_of_the_proxy_itself_is_no_brokers():
    room = Room(reserved={9194, 9195})
    room.learn((1, "a"), (2, "b"), (3, "c"))
    assert room.open == {1: 9196, 2: 9197, 3: 9198}


def test_the_name_to_advertise_is_shown_instead_of_the_address_that_was_reached():
    route = PortRoute("kafka.example", PortRange(0, 0), (), lambda node_id, _: 40_000 + node_id, lambda _: None)
    route.bootstrap_port = 9192
    route.cover([1])
    assert [route.endpoint(node_id, "10.0.0.9") for node_id in (None, 1)] == [("kafka.example", 9192), ("kafka.example", 40_001)]


def test_names_for_brokers():
    route = NameRoute("kafka.example", "b{id}-{advertise}")
    route.bootstrap_port = 443
    assert route.endpoint(None, "10.0.0.9") == ("kafka.example", 443)
    assert route.endpoint(12, "10.0.0.9") == ("b12-kafka.example", 443)
    assert route.node_of("b12-kafka.example") == route.node_of("B12-KAFKA.example") == 12
    for other in (None, "", "kafka.example", "b-kafka.example", "bx-kafka.example", "b12-kafkaxexample", "b12-kafka.example.org"):
        assert route.node_of(other) is None


def test_brokers_that_are_given_have_ports_before_anybody_tells_of_them_and_keep_them():
    room = Room(given={1: HostPort("b", 9092), 2: HostPort("c", 9092)})
    assert room.open == {}
    room.brokers.begin()
    assert room.open == {1: 9194, 2: 9195}
    assert room.changes == [Change(joined=(1, 2))]
    assert room.brokers.addresses() == [HostPort("b", 9092), HostPort("c", 9092), *BOOTSTRAP]
    room.learn((1, "elsewhere"), (3, "d"))
    assert room.brokers.broker_addresses(1) == [HostPort("elsewhere", 9092)]
    room.learn((3, "d"), at=10_000.0)
    room.learn(at=20_000.0)
    assert room.open == {1: 9194, 2: 9195}
