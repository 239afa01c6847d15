"""Ports of brokers whose ids are given in the settings: two for one port are refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.config.load import load_settings

TEXT = "upstream: {{bootstrap_servers: ['k:9092'], brokers: {{101: 'a:9092', 201: 'b:9092'}}}}\nlisten: {{{}}}\n"
WRONG = {
    "broker_ports: 9193-9202": [
        "`listen`",
        "broker 201 of `upstream.brokers`: its port 9194 is that of broker 101",
        "`broker_ids`",
    ],
    "broker_ids: [101]": ["broker 201 of `upstream.brokers`: it is not among `broker_ids`"],
    "broker_ids: [101-203, 201]": ["no id stands twice", "201"],
    "broker_ids: [all]": ["[101, 201, 301] or [100-109, 200-209]"],
    "broker_ids: []": ["[101, 201, 301]"],
    "broker_ports: 9193-9194, broker_ids: [101, 201-202]": ["`broker_ids` are 3, and `broker_ports` 9193-9194 are 2"],
    "broker_ports: 0, broker_ids: [101, 201]": ["`broker_ids` need fixed `broker_ports`"],
}


def check(tmp_path: Path, listen: str) -> tuple[int, str]:
    file = tmp_path / "settings.yaml"
    file.write_text(TEXT.format(listen))
    done = CliRunner().invoke(main, ["check-config", str(file)])
    return done.exit_code, done.output


@pytest.mark.parametrize("listen", WRONG)
def test_what_leaves_a_broker_without_port_is_refused(tmp_path: Path, listen: str) -> None:
    code, said = check(tmp_path, listen)
    assert code == 2
    assert [part for part in WRONG[listen] if part not in said] == [], said


@pytest.mark.parametrize("listen", ["broker_ids: [101, 201, 300-350]", "broker_ids: ['100-109', 201]", "broker_ports: 9193-9499"])
def test_what_has_a_port_for_each_is_right(tmp_path: Path, listen: str) -> None:
    code, said = check(tmp_path, listen)
    assert code == 0, said


def test_a_port_of_the_proxy_is_no_brokers(tmp_path: Path) -> None:
    code, said = check(tmp_path, "bootstrap: '127.0.0.1:9188'")
    assert code == 2, said
    assert "its port 9190 is one at which the proxy itself listens" in said


@pytest.mark.parametrize("second", ["k1:9092", "K1:9092"])
def test_two_ids_for_one_broker_are_refused(tmp_path: Path, second: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"upstream: {{bootstrap_servers: ['k:9092'], brokers: {{1: 'k1:9092', 2: 'k2:9092', 3: '{second}'}}}}\n")
    done = CliRunner().invoke(main, ["check-config", str(file)])
    assert done.exit_code == 2
    assert f"`upstream`: `brokers`: 1 and 3 are both at {second}; clients of one would reach the other" in done.output


def test_ids_come_back_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(TEXT.format("broker_ids: [101, '200-209']"))
    assert load_settings(file).listen.model_dump()["broker_ids"] == [101, "200-209"]
