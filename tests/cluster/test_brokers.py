"""Brokers that join, move and leave, and the ports of the proxy that stand for them."""

from collections.abc import Collection, Mapping

import pytest

from proxy.cluster.brokers import Brokers, Change, Mistaken
from proxy.cluster.routes import NameRoute, PortRoute
from proxy.config.broker_ports import BrokerPorts
from proxy.config.listeners import Listener
from proxy.config.models import Settings
from proxy.config.units import HostPort, PortRange, parse_broker_ids
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
        ids: list[int | str] | None = None,
    ) -> None:
        self.now = 0.0
        self.taken: set[int] = set()
        self.open: dict[int, int] = {}
        self.changes: list[Change] = []
        self.asked: list[tuple[int, int]] = []
        self.complaints: list[tuple[int, str]] = []
        ports = BrokerPorts(PortRange(first, last), parse_broker_ids(ids) if ids else (), frozenset({9192, *reserved}))
        self.route = PortRoute(None, ports, self._listen, self._unlisten, lambda *told: self.complaints.append(told))
        self.route.bootstrap_port = 9192
        self.brokers = Brokers(BOOTSTRAP, self.changes.append, lambda: self.now, forget_after, given)
        self.brokers.lead_by(self.route)

    def _listen(self, node_id: int, port: int) -> int | None:
        self.asked.append((node_id, port))
        got = port or 40_000 + len(self.asked)
        if got in self.taken or got in self.open.values():
            raise OSError(98, "Address already in use")
        self.open[node_id] = got
        return got

    def _unlisten(self, node_id: int) -> None:
        del self.open[node_id]

    def port(self, node_id: int | None) -> int | None:
        """None where the broker is shown nowhere."""
        host, port = self.route.endpoint(node_id, "10.0.0.9")
        assert host in ("10.0.0.9", f"broker-{node_id}-has-no-port.invalid")
        return port if host == "10.0.0.9" else None

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


def test_who_is_not_known_yet_is_shown_at_the_port_it_will_have():
    room = Room()
    assert (room.port(None), room.port(5)) == (9192, 9198)
    assert room.brokers.broker_addresses(5) == []


def test_of_two_brokers_for_one_port_the_lower_has_it_in_whichever_order_they_come():
    for first, second in ((101, 201), (201, 101)):
        room = Room()
        room.learn((first, "a"))
        room.learn((first, "a"), (second, "b"), (302, "c"))
        assert room.open == {101: 9194, 302: 9195}
        assert (room.port(101), room.port(201), room.port(301), room.port(302)) == (9194, None, None, 9195)
        assert room.complaints == [(201, "its port 9194 is that of broker 101")]
        room.learn((first, "a"), (second, "b"), (302, "c"))
        assert len(room.complaints) == 1


def test_when_the_lower_has_left_the_other_has_the_port():
    room = Room(forget_after=60)
    room.learn((101, "a"), (201, "b"))
    room.learn((201, "b"), at=61)
    assert room.open == {201: 9194}
    assert room.route.refused == {}


def test_ids_that_are_named_have_ports_in_their_order():
    room = Room(9193, 9202, ids=[101, 201, "301-303"])
    room.learn((303, "e"), (201, "b"), (101, "a"), (4, "x"))
    assert room.open == {101: 9193, 201: 9194, 303: 9197}
    assert [room.port(node_id) for node_id in (302, 4, 5)] == [9196, None, None]
    assert room.complaints == [(4, "it is not among `broker_ids`")]


def test_more_brokers_than_ports():
    room = Room(9193, 9194)
    room.learn((0, "a"), (1, "b"), (2, "c"))
    assert room.open == {0: 9193, 1: 9194}
    assert room.port(2) is None


def test_a_port_that_cannot_be_had_is_tried_again():
    room = Room()
    room.taken.add(9194)
    room.learn((1, "a"))
    assert room.port(1) is None, "whoever has it is no broker"
    room.learn((1, "a"))
    assert room.complaints == [(1, "its port 9194 cannot be had: Address already in use")]
    room.taken.clear()
    room.learn((1, "a"))
    assert room.port(1) == 9194
    assert room.route.refused == {}
    assert room.changes == [Change(joined=(1,))]


def test_ports_that_are_free_anyhow():
    room = Room(
        *Listener(bootstrap=HostPort("127.0.0.1", 0)).ports(),
        reserved=Settings(listen=Listener(bootstrap=HostPort("127.0.0.1", 0))).fixed_ports,
    )
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
    ports = Listener(bootstrap=HostPort("a", 65535)).ports()
    room = Room(*ports)
    room.learn((1, "a"))
    assert room.brokers.broker_addresses(1)


def test_a_port_of_the_proxy_itself_is_no_brokers():
    room = Room(reserved={9194})
    room.learn((1, "a"), (2, "b"), (3, "c"))
    assert room.open == {2: 9195, 3: 9196}
    assert room.complaints == [(1, "its port 9194 is one at which the proxy itself listens")]


def test_an_address_that_is_another_brokers_is_told():
    room = Room(given={1: HostPort("a", 9092), 2: HostPort("b", 9092), 3: HostPort("c", 9092), 4: HostPort("alias", 9092)})
    room.brokers.begin()
    room.learn((1, "a"), (2, "c"), (5, "b"))
    assert room.changes[-1].mistaken == (Mistaken(2, HostPort("b", 9092), 5), Mistaken(3, HostPort("c", 9092), 2))
    assert room.changes[-1].left == (3,), "no client is led there any more"
    assert room.brokers.wrongly_given() == list(room.changes[-1].mistaken), "as long as it stands in the settings"
    assert sorted(room.open) == [1, 2, 4, 5]
    room.learn((1, "a"), (2, "c"), (5, "b"), (3, "d"))
    assert room.changes[-1] == Change(joined=(3,))
    room.learn((1, "a"), (2, "b"), (3, "c"))
    assert room.brokers.wrongly_given() == []


def test_the_name_to_advertise_is_shown_instead_of_the_address_that_was_reached():
    route = PortRoute("kafka.example", BrokerPorts(PortRange(0, 0)), lambda node_id, _: 40_000 + node_id, print, print)
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
