"""localkafka.settings, ready and ports: values and bytes, no Kafka."""

import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from localkafka import LocalCluster
from localkafka.ports import HOST, HeldPort
from localkafka.ready import known_brokers
from localkafka.settings import Listeners, Tls, check_users, cluster_properties, node_properties, render
from localkafka.storage import new_id


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (5, "5"),
        (0.5, "0.5"),
        (True, "true"),
        (r"C:\x", r"C\:\\x"),
        ("é", r"\u00e9"),
        ("a\nb", r"a\nb"),
        ("😀", r"\ud83d\ude00"),
    ],
)
def test_values_are_written_as_java_reads_them(value: str | float | bool, text: str) -> None:
    assert render({"name": value}) == f"name={text}\n"


def test_internal_topics_fit_the_number_of_brokers() -> None:
    one, three = cluster_properties({0: 9}, None), cluster_properties({0: 9, 1: 8, 2: 7}, None)
    assert one["offsets.topic.replication.factor"] == one["transaction.state.log.replication.factor"] == 1
    assert three["offsets.topic.replication.factor"] == three["share.coordinator.state.topic.replication.factor"] == 3
    assert three["controller.quorum.voters"] == "0@127.0.0.1:9,1@127.0.0.1:8,2@127.0.0.1:7"


def test_only_the_clients_listener_asks_for_a_login() -> None:
    assert cluster_properties({0: 9}, {"alice": "secret"})["listener.security.protocol.map"] == (
        "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    )
    assert "CLIENT:PLAINTEXT" in str(cluster_properties({0: 9}, None)["listener.security.protocol.map"])


def test_tls_is_for_the_clients_listener_only(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text("A\nB\n")
    key.write_text("K\n")
    plain = cluster_properties({0: 9}, None, Tls(cert, key))
    assert plain["listener.security.protocol.map"] == "CLIENT:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert r"listener.name.client.ssl.keystore.certificate.chain=A\nB\n" in render(plain)
    assert "listener.name.client.ssl.client.auth" not in plain
    assert "CLIENT:SASL_SSL" in str(cluster_properties({0: 9}, {"a": "b"}, Tls(cert, key))["listener.security.protocol.map"])


@pytest.mark.parametrize(("optional", "auth"), [(False, "required"), (True, "requested")])
def test_clients_are_asked_for_certificates_where_their_authorities_are_known(tmp_path: Path, optional: bool, auth: str) -> None:
    pem = tmp_path / "all.pem"
    pem.write_text("P\n")
    properties = cluster_properties({0: 9}, None, Tls(pem, pem, pem, optional))
    assert properties["listener.name.client.ssl.client.auth"] == auth
    assert properties["listener.name.client.ssl.truststore.certificates"] == "P\n"


def test_metadata_is_in_no_log_dir() -> None:
    properties = node_properties(0, Listeners(1, 2, 3), [Path("/d/a"), Path("/d/b")], Path("/d/metadata"))
    assert properties["log.dirs"] == "/d/a,/d/b"
    assert properties["metadata.log.dir"] == "/d/metadata"
    assert properties["advertised.listeners"] == "CLIENT://127.0.0.1:1,INTERNAL://127.0.0.1:2"


def test_super_users_switch_the_authorizer_on_and_brokers_are_among_them() -> None:
    assert "authorizer.class.name" not in cluster_properties({0: 9}, {"a": "b"})
    properties = cluster_properties({0: 9}, {"a": "b"}, None, ["a"])
    assert "StandardAuthorizer" in str(properties["authorizer.class.name"])
    assert properties["super.users"] == "User:ANONYMOUS;User:a"


def test_a_super_user_who_cannot_log_in_is_refused() -> None:
    with pytest.raises(ValueError, match="super_users: b cannot log in"):
        check_users({"a": "x"}, ["a", "b"])


@pytest.mark.parametrize("users", [{"a b": "x"}, {'a"': "x"}, {"a": ""}, {"a": "x,y"}, {"a": 'x"y'}, {"a": "x]"}])
def test_users_that_would_break_kafkas_notation_are_refused(users: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="user"):
        check_users(users)


@pytest.mark.parametrize("wrong", [{"brokers": 0}, {"brokers": 4}, {"log_dirs": 0}, {"log_dirs": 2, "version": "3.6.2"}])
def test_a_cluster_of_an_impossible_shape_is_refused(wrong: dict[str, int | str]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LocalCluster(**wrong)  # type: ignore[arg-type]


def test_ids_look_as_kafka_writes_them() -> None:
    ids = {new_id() for _ in range(300)}
    assert len(ids) == 300
    assert all(len(text) == 22 and not text.startswith("-") and "=" not in text for text in ids)


class TestHeldPort:
    def test_it_refuses_connections_until_somebody_listens(self) -> None:
        port = HeldPort()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port.number), 5)
        with socket.create_server((HOST, port.number)):  # sets SO_REUSEADDR, as Java does
            socket.create_connection((HOST, port.number), 5).close()
        port.release()

    def test_one_that_somebody_has_is_not_taken(self) -> None:
        with socket.create_server((HOST, 0)) as taken, pytest.raises(OSError, match="in use"):
            HeldPort(taken.getsockname()[1])
        with HeldPort() as port:
            number = port.number
        with HeldPort(number) as again:
            assert again.address == f"{HOST}:{number}"

    def test_nobody_else_is_given_it(self) -> None:
        ports = [HeldPort() for _ in range(200)]
        assert len({port.number for port in ports}) == 200
        with socket.socket() as plain, pytest.raises(OSError, match="in use"):
            plain.bind((HOST, ports[0].number))
        for port in ports:
            port.release()
            port.release()


class TestKnownBrokers:
    @pytest.fixture
    def server(self) -> Iterator[socket.socket]:
        with socket.create_server((HOST, 0)) as server:
            yield server

    @pytest.mark.parametrize("cut", [None, 0, 3, 20])
    def test_an_answer_is_read_whole_or_not_at_all(self, server: socket.socket, cut: int | None) -> None:
        brokers = (
            b"\0\0\0\0" + b"\0\0\0\x01hi\0\0\x23\x84\xff\xff".replace(b"hi", b"\0\x02hi") + b"\0\0\0\x02\0\x01h\0\0\x23\x85\0\x02r1"
        )
        body = b"\0\0\0\0" + b"\0\0\0\x02" + brokers[4:] + b"\0\0\0\0\0\0\0\0"
        whole = len(body).to_bytes(4) + body

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                for byte in whole[:cut]:
                    connection.sendall(bytes([byte]))

        thread = Thread(target=answer)
        thread.start()
        found = known_brokers(server.getsockname()[1])
        thread.join()
        assert found == ({1: 9092, 2: 9093} if cut is None else {})

    def test_a_broker_that_is_down_knows_nobody(self) -> None:
        assert known_brokers(HeldPort().number) == {}
