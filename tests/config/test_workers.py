"""How many workers there are, and which part of the limits each has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from proxy.cli import main
from proxy.config.alone import enforces_alone
from proxy.config.load import SettingsError, load_settings
from proxy.config.models import Settings
from proxy.config.workers import processors, settings_of_worker, worker_count

FIXED = {"listen": {"bootstrap": "127.0.0.1:9192"}}
HERE = len(os.sched_getaffinity(0))


def groups(folder: Path, own: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A file like /proc/self/cgroup, and a folder like /sys/fs/cgroup."""
    for name, text in files.items():
        (folder / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "fs" / name).write_text(text)
    (folder / "cgroup").write_text(own)
    return folder / "cgroup", folder / "fs"


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, HERE),
        ("0::/pod/me\n", {"pod/me/cpu.max": "max 100000\n", "pod/cpu.max": "50000 100000\n"}, 1),
        ("0::/pod\n", {"pod/cpu.max": "100000 100000\n"}, 1),
        ("0::/pod\n", {"pod/cpu.max": "nonsense\n"}, HERE),
        ("0::/gone\n", {}, HERE),
        ("3:memory:/me\n2:cpu:/me\n", {"cpu/me/cpu.cfs_quota_us": "90000\n", "cpu/me/cpu.cfs_period_us": "100000\n"}, 1),
        ("2:cpu:/me\n", {"cpu/me/cpu.cfs_quota_us": "-1\n", "cpu/me/cpu.cfs_period_us": "100000\n"}, HERE),
        ("2:cpu,cpuacct:/me\n", {"cpu,cpuacct/me/cpu.cfs_quota_us": "1\n", "cpu,cpuacct/me/cpu.cfs_period_us": "1\n"}, 1),
    ],
)
def test_processors_are_those_that_control_groups_allow(own: str, files: dict[str, str], expected: int, tmp_path: Path) -> None:
    assert processors(*groups(tmp_path, own, files)) == expected


def test_more_than_there_are_is_no_limit(tmp_path: Path) -> None:
    assert processors(*groups(tmp_path, "0::/\n", {"cpu.max": "99900000 100000\n"})) == HERE


@pytest.mark.parametrize(("text", "expected"), [("1", 1), ("0", 1), ("999", HERE), ("", HERE), ("many", HERE)])
def test_a_pod_that_asks_for_less_gets_less(text: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_PROCESSORS", text)
    assert processors(*groups(tmp_path, "0::/\n", {})) == expected


def test_the_image_says_how_many_where_the_settings_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.model_validate({}).workers == 1
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_WORKERS", "auto")
    assert Settings.model_validate({}).workers == "auto"
    assert Settings.model_validate({**FIXED, "workers": 3}).workers == 3
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_WORKERS", "2")
    assert Settings.model_validate(FIXED).workers == 2
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_WORKERS", "many")
    with pytest.raises(ValidationError, match="a number of processes from 1 to 256, or auto"):
        Settings.model_validate({})


def test_auto_is_as_many_as_have_memory_for_a_request() -> None:
    limits = {"memory_total": "1MiB", "max_frame": "1MiB"}
    assert worker_count(Settings.model_validate({**FIXED, "workers": "auto", "limits": limits})) == 1
    assert worker_count(Settings.model_validate({**FIXED, "workers": "auto"})) == min(processors(), 10)
    assert worker_count(Settings.model_validate({"listen": {"bootstrap": "127.0.0.1:0"}, "workers": "auto"})) == 1
    assert worker_count(Settings.model_validate({**FIXED, "workers": 7})) == 7


def test_parts_of_connections_add_up_to_the_limit_and_other_limits_are_for_all() -> None:
    limits = {"max_connections": 11, "memory_total": "1GiB", "max_connections_per_principal": 5}
    settings = Settings.model_validate({**FIXED, "more_listeners": {"b": {"bootstrap": "127.0.0.1:9500"}}, "limits": limits})
    parts = [settings_of_worker(settings, number, 3) for number in range(3)]
    assert sum(part.limits.max_connections for part in parts) == 11
    assert {part.limits.memory_total for part in parts} == {1 << 30}
    assert {part.limits.max_connections_per_principal for part in parts} == {5}
    assert all(listener.reuse_port for part in parts for listener in part.listeners.values())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, None),
        ({"listen": {"bootstrap": "127.0.0.1:9192", "reuse_port": True}}, "`listen.reuse_port` shares ports"),
        ({"more_listeners": {"b": {"bootstrap": "127.0.0.1:9500", "reuse_port": True}}}, "`more_listeners.b.reuse_port`"),
        ({"ledger": {"replicas": 3}}, "each of 3 proxies"),
        ({"ledger": {"kind": "redis", "servers": ["a:1"], "replicas": 3}}, None),
        ({"ledger": {"kind": "kafka", "replicas": 3}}, None),
        ({**FIXED, "workers": 4}, None),
    ],
)
def test_who_enforces_alone_beside_others_says_so(settings: dict[str, Any], said: str | None, tmp_path: Path) -> None:
    reason = enforces_alone(Settings.model_validate(settings))
    assert (reason is None) == (said is None)
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps(settings))
    checked = CliRunner().invoke(main, ["check-config", str(file)])
    assert checked.exit_code == 0
    assert ("warning" in checked.output) == (said is not None)
    assert said is None or said in checked.output


def test_deprecated_names_are_taken_and_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("quotas: {entities: [{user: a, producer_byte_rate: 1MiB, cluster_request_rate: 5}]}")
    (entity,) = load_settings(file).quotas.entities
    assert entity.limits() == {"cluster_producer_byte_rate": 1 << 20, "cluster_request_rate": 5}
    checked = CliRunner().invoke(main, ["check-config", str(file)])
    assert checked.exit_code == 0
    assert "`quotas.entities[].producer_byte_rate` is deprecated: write `cluster_producer_byte_rate`" in checked.output
    assert "request_rate" not in checked.output
    file.write_text("quotas: {entities: [{user: a, producer_byte_rate: 1MiB, cluster_producer_byte_rate: 1MiB}]}")
    with pytest.raises(SettingsError, match="`producer_byte_rate` is the deprecated name of `cluster_producer_byte_rate`"):
        load_settings(file)
    file.write_text("quotas: {entities: [{client_id: a, connection_rate: 1}]}")
    with pytest.raises(SettingsError, match="is for users only"):
        load_settings(file)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("workers: 0", "a number of processes from 1 to 256, or auto"),
        ("workers: 257", "a number of processes from 1 to 256, or auto"),
        ("workers: many", "a number of processes from 1 to 256, or auto"),
        ("workers: true", "a number of processes from 1 to 256, or auto"),
        ("workers: 2\nlisten: {bootstrap: '127.0.0.1:0'}", "`workers` share their ports"),
        ("workers: 2\nlisten: {broker_ports: 0}", "`workers` share their ports"),
        ("workers: 11", "set it higher, or fewer `workers`"),
    ],
)
def test_what_cannot_be_says_what_would_be_right(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=problem):
        load_settings(file)
