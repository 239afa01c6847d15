"""The parts that need no Kafka: the out folder, the settings, the usage log, the scenario."""

import json
import sys
from datetime import UTC, datetime
from importlib.abc import MetaPathFinder
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

from benchmarks.local_proxy import LocalProxy, ProxyError
from demo import history, plan
from demo.cli import demo
from demo.errors import UsageError
from demo.folder import prepare
from demo.screen import Screen
from demo.throttling import Throttling, throttling_by_client
from loadtest.scenario import CreateTopics, load_scenario
from proxy.cli import main
from proxy.config.load import load_settings


def test_the_folder_of_an_earlier_run_is_cleared(tmp_path: Path) -> None:
    folder = prepare(tmp_path / "deep" / "out")
    for made in (folder.usage, folder.report):
        made.mkdir()
        (made / "old").touch()
    folder.proxy_log.touch()
    (folder.path / "notes.txt").touch()
    prepare(folder.path)
    assert sorted(path.name for path in folder.path.iterdir()) == ["notes.txt", "password", "proposed.yaml", "proxy.yaml"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "proxy.yaml").write_text("listen: {}\n")
    with pytest.raises(UsageError, match="holds files that no demo wrote"):
        prepare(tmp_path)
    assert (tmp_path / "proxy.yaml").read_text() == "listen: {}\n"
    assert (tmp_path / "logs").exists()


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--out .*file/out: Not a directory"):
        prepare(tmp_path / "file" / "out")


def test_a_wrong_folder_ends_the_command_with_2(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    run = CliRunner().invoke(demo, ["--out", str(tmp_path)])
    assert run.exit_code == 2
    assert "holds files that no demo wrote" in run.output


def test_the_proxy_accepts_the_settings(tmp_path: Path) -> None:
    settings = load_settings(prepare(tmp_path).settings, {})
    limits = {entity.client_id: entity for entity in settings.quotas.entities}
    assert list(limits) == ["storm-new", "storm-old"]
    assert {entity.user for entity in settings.quotas.entities} == {"ci"}
    assert settings.quotas.topics is not None
    assert {entity.controller_mutations_rate for entity in limits.values()} == {plan.MUTATIONS_RATE}
    assert {entity.controller_mutations_burst for entity in limits.values()} == {plan.MUTATIONS_BURST}


def test_the_proxy_accepts_the_limit_of_the_disk(tmp_path: Path) -> None:
    folder = prepare(tmp_path)
    folder.settings.write_text(plan.settings_yaml(folder.password, plan.disk_limit(1 << 30)))
    quotas = load_settings(folder.settings, {}).quotas
    assert quotas.topics is None, "so that one quota at a time is seen"
    assert quotas.storage is not None
    assert quotas.storage.limits is not None
    hard, soft = quotas.storage.limits
    assert (soft.min_available_bytes, hard.min_available_bytes) == ((1 << 30) - plan.SOFT_ROOM, (1 << 30) - plan.HARD_ROOM)


def test_nobody_else_reads_the_password_of_the_tenants(tmp_path: Path) -> None:
    folder = prepare(tmp_path)
    assert folder.password.stat().st_mode & 0o077 == 0
    assert folder.password.read_text() not in folder.settings.read_text()
    assert prepare(tmp_path).password.read_text(), "another run has another one"


def test_the_report_proposes_a_quota_that_can_be_read(tmp_path: Path) -> None:
    (entity,) = load_settings(prepare(tmp_path).proposed, {}).quotas.entities
    assert (entity.user, entity.cluster_producer_byte_rate) == (plan.ARCHIVE, plan.PROPOSED_RATE)


def test_two_weeks_of_history_end_where_the_live_minutes_begin(tmp_path: Path) -> None:
    began = datetime(2026, 11, 23, 21, 40, tzinfo=UTC)
    history.write(tmp_path, began.timestamp())
    (file,) = tmp_path.glob("usage-*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["proxy"] for line in lines} == {"generated-history"}
    usage = [line for line in lines if line["type"] == "usage"]
    assert usage[0]["start"] == "2026-11-09T21:00:00.000Z"
    assert usage[-1]["end"] == "2026-11-23T21:00:00.000Z"
    assert {line["principal"] for line in usage} == {"User:archive", "User:shop", "User:clicks"}
    volumes = [line for line in lines if line["type"] == "volume"]
    assert all(line["log_dir"].startswith("/generated/") for line in volumes)
    first, last = (volumes[i]["topic_bytes"]["archive"] for i in (0, -2))
    assert last > first + 500 * (1 << 30)


def test_a_storm_is_larger_than_the_burst_and_has_an_end() -> None:
    assert plan.MUTATIONS_BURST < plan.storm_partitions(5) <= plan.storm_partitions(300) <= 1500


def test_the_usage_log_is_summed_by_client(tmp_path: Path) -> None:
    line = {"type": "usage", "api": "CreateTopics", "client_id": "a", "throttle_ms": 1000, "refused": {"controller_mutations": 3}}
    written = {**line, "api": "Produce", "refused": {"storage": 2, "sequence_fence": 1}}
    lines = [line, line, {**line, "client_id": "b"}, written, {**line, "client_id": None}, {"type": "gap"}]
    text = "".join(json.dumps(each) + "\n" for each in lines)
    (tmp_path / "usage-p-1-000001.jsonl").write_text(text + '{"type": "us')
    assert throttling_by_client(tmp_path) == {"a": Throttling(6, 2000), "b": Throttling(3, 1000)}
    assert throttling_by_client(tmp_path, "Produce") == {"a": Throttling(3, 1000, refused_by_disk=2)}


def test_the_scenario_says_what_the_plan_says() -> None:
    scenario = load_scenario(plan.SCENARIO, plan.parameters(5, 3, Path("/password")))
    assert [phase.name for phase in scenario.phases[1:]] == list(plan.TITLES)
    unlimited, limited = ({load.tenant: load for load in phase.load} for phase in scenario.phases[2:4])
    for storm in plan.STORMS:
        for load in (unlimited[storm.unlimited], limited[storm.client_id]):
            assert isinstance(load, CreateTopics)
            assert (load.topics, load.partitions) == (storm.topics, storm.partitions)
            assert load.at_most * storm.partitions >= plan.storm_partitions(5) > plan.MUTATIONS_BURST
    logins = {tenant.sasl.username for tenant in scenario.tenants.values() if tenant.sasl is not None}
    assert logins == set(plan.TENANTS)


def test_a_proxy_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("no_such_key: 1\n")
    with pytest.raises(ProxyError, match="no_such_key"), LocalProxy(tmp_path / "settings.yaml", tmp_path / "log"):
        pass


class Without(MetaPathFinder):
    """As if a package were not installed."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, *_: object) -> None:
        if name == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_without_a_checkout_the_command_says_where_the_demo_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "demo"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [Without("demo"), *sys.meta_path])
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 2
    assert "`make demo` in a checkout" in result.output


def test_titles_in_any_script_have_one_width() -> None:
    out = StringIO()
    screen = Screen(Console(file=out, width=100))
    for title in ("plain", "日本語のトピック", "emoji 🚀"):
        screen.step(title, "done")
    assert len({cell_len(line.partition("done")[0]) for line in out.getvalue().splitlines()}) == 1
