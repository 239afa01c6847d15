"""Scenarios: what is right, and that every mistake is told with key, line and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter

from loadtest.cli import loadtest
from loadtest.library import find, names
from loadtest.scenario import CreateTopics, FileError, Produce, Scenario, load_scenario

RIGHT = """
parameters:
  rate: {text: Records per second, default: 100}
  where: {text: Which quota}
topics:
  records: {partitions: 2}
tenants:
  writer: {clients: 2}
phases:
  - name: first
    duration: 10s
    load:
      - {tenant: writer, operation: produce, topic: records, rate: "${rate}", size: 2KiB}
assertions:
  - {check: rate, tenant: writer, of: bytes, quota: 1MiB, within: 5%}
"""


def load(folder: Path, text: str, **given: str) -> Scenario:
    path = folder / "mine.yaml"
    path.write_text(text)
    return load_scenario(path, given)


def mistake(folder: Path, text: str, **given: str) -> str:
    with pytest.raises(FileError) as e:
        load(folder, text, **given)
    return str(e.value)


def test_a_scenario_is_read_with_its_defaults(tmp_path: Path) -> None:
    scenario = load(tmp_path, RIGHT)
    (one,) = scenario.phases[0].load
    assert isinstance(one, Produce)
    assert (scenario.name, one.rate, one.size, one.acks, one.idempotent) == ("mine", 100.0, 2048, "all", True)
    assert scenario.phases[0].warm_up == 5


def test_parameters_and_keys_are_set(tmp_path: Path) -> None:
    scenario = load_scenario(_file(tmp_path, RIGHT), {"rate": "7", "phases[0].duration": "2s", "tenants.writer.clients": "5"})
    assert (scenario.phases[0].load[0].rate, scenario.phases[0].duration, scenario.tenants["writer"].clients) == (7.0, 2.0, 5)


def test_a_rate_may_be_as_fast_as_possible(tmp_path: Path) -> None:
    assert load(tmp_path, RIGHT, rate="max").phases[0].load[0].rate == "max"


def _file(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def replaced(old: str, new: str) -> str:
    assert old in RIGHT
    return RIGHT.replace(old, new)


MISTAKES = {
    "an unknown key": (replaced("size: 2KiB", "sise: 2KiB"), 13, "`phases[0].load[0].sise`", "`size` is probably meant"),
    "a key of another operation": (replaced("size: 2KiB", "partitions: 2"), 13, "`phases[0].load[0].partitions`", "no such key"),
    "an unknown operation": (
        replaced("operation: produce", "operation: write"),
        13,
        "`phases[0].load[0]`",
        "connect, consume, create_topics",
    ),
    "no operation": (replaced("operation: produce, ", ""), 13, "`phases[0].load[0]`", "`operation` is one of"),
    "an unknown check": (replaced("check: rate", "check: rates"), 15, "`assertions[0]`", "delivered, done, errors, fairness"),
    "a rate of zero": (replaced('"${rate}"', "0"), 13, "`phases[0].load[0].rate`", "a rate above 0"),
    "a negative rate": (replaced('"${rate}"', "-3"), 13, "`phases[0].load[0].rate`", "a rate above 0"),
    "a record without room for its header": (replaced("2KiB", "10"), 13, "`phases[0].load[0].size`", "greater than or equal to 36"),
    "a tenant that is not there": (
        replaced("tenant: writer, operation", "tenant: write, operation"),
        2,
        "",
        "tenant 'write' is not there",
    ),
    "a topic that is not there": (
        replaced("topic: records", "topic: record"),
        2,
        "",
        "topic 'record' is not there; there is records",
    ),
    "a phase without load": (
        replaced("load:\n      - {tenant", "load: []\n    events:\n      - {tenant"),
        12,
        "`phases[0].load`",
        "",
    ),
    "a phase of no length": (replaced("duration: 10s", "duration: 0s"), 11, "`phases[0].duration`", "a duration above 0"),
    "an unknown parameter": (replaced("${rate}", "${rates}"), 13, "`phases[0].load[0].rate`", "there is no parameter 'rates'"),
    "a parameter without value": (replaced('"${rate}"', '"${where}"'), 13, "`phases[0].load[0].rate`", "give --set where=VALUE"),
    "more processes than clients": (
        replaced("clients: 2}", "clients: 2, processes: 3}"),
        8,
        "`tenants.writer`",
        "at most as many as",
    ),
    "a password": (
        replaced("clients: 2}", "settings: {sasl.password: s3cret}}"),
        8,
        "`tenants.writer`",
        "do not stand in scenarios",
    ),
    "an event after the end": (
        replaced("    load:\n", "    events: [{at: 1m, command: ls}]\n    load:\n"),
        10,
        "`phases[0]`",
        "over after 15s",
    ),
    "a transaction that is not idempotent": (
        replaced("size: 2KiB", "transaction: 5, idempotent: false"),
        13,
        "`phases[0].load[0]`",
        "a transaction needs `acks: all`",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_key_line_and_what_would_be_right(tmp_path: Path, name: str) -> None:
    text, line, key, right = MISTAKES[name]
    told = mistake(tmp_path, text)
    assert "s3cret" not in told
    assert f"mine.yaml: line {line}: " in told or (not key and "mine.yaml: " in told)
    assert key in told
    assert right in told


def test_what_is_set_wrongly_is_told(tmp_path: Path) -> None:
    assert "no such parameter (there are: rate, where)" in mistake(tmp_path, RIGHT, rat="3")
    path = _file(tmp_path, RIGHT)
    with pytest.raises(FileError, match="there is no such place"):
        load_scenario(path, {"phases[3].duration": "3s"})
    with pytest.raises(FileError, match=r"phases\[0\]\.load\[0\]\.lingers"):
        load_scenario(path, {"phases[0].load[0].lingers": "3s"})


@pytest.mark.parametrize("name", names())
def test_what_comes_along_is_right(name: str) -> None:
    given = {"rolling-restart": {"restart": "true-command"}, "chaos": {"faults": "true-command"}}.get(name, {})
    scenario = load_scenario(find(name), given)
    assert scenario.description
    assert scenario.assertions
    again = Scenario.model_validate(scenario.model_dump(mode="json", exclude_defaults=True))
    assert again == scenario, "results hold their scenario, and `merge` reads it back"


def test_the_library_has_what_the_readme_says() -> None:
    wanted = "produce consume end-to-end connections mutation-storm producer-id-storm disk-fill topic-bytes-in noisy-neighbour"
    assert set(names()) >= {*wanted.split(), "rolling-restart", "stored-bytes", "mixed-day", "byte-rate", "fairness"}


def test_a_scale_is_of_durations_alone(tmp_path: Path) -> None:
    scenario = load(tmp_path, RIGHT).scaled(0.5)
    assert (scenario.phases[0].warm_up, scenario.phases[0].duration, scenario.phases[0].load[0].rate) == (2.5, 5.0, 100.0)


def test_a_sweep_sets_the_rate_of_the_only_load_or_of_those_that_are_marked(tmp_path: Path) -> None:
    assert load(tmp_path, RIGHT).at_rate(30).phases[0].load[0].rate == 30
    others = """      - {tenant: writer, operation: connect, rate: 50, sweep: true}
      - {tenant: writer, operation: ask_controller, rate: 150, sweep: true}
assertions:
"""
    first, second, third = load(tmp_path, RIGHT.replace("assertions:\n", others)).at_rate(400).phases[0].load
    assert (first.rate, second.rate, third.rate) == (100, 100, 300)
    with pytest.raises(FileError, match="sweep: true"):
        load(tmp_path, RIGHT.replace("assertions:\n", others).replace(", sweep: true", "")).at_rate(3)


def test_creating_topics_counts_partitions() -> None:
    one = TypeAdapter(CreateTopics).validate_python(
        {"tenant": "t", "operation": "create_topics", "rate": 40, "topics": 5, "partitions": 4}
    )
    from loadtest.drive.job import Job
    from loadtest.drive.pace import Pace
    from loadtest.drive.raw import pace

    job = Job.model_construct(load=one, at_most=1000)
    found = pace(job, Pace(40.0, 0.0, 0.0, 10.0))
    assert (found.rate, found.weight, found.max_count, found.count(0.0, 10.0)) == (2.0, 20, 200, 400)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "nothing", "--bootstrap", "127.0.0.1:1"], "there is no scenario 'nothing'"),
        (["run", "produce", "--bootstrap", "kafka"], "'kafka' is not right: an address"),
        (["run", "produce", "--bootstrap", "127.0.0.1:1", "--set", "rate"], "--set rate: must be KEY=VALUE"),
        (["run", "produce", "--bootstrap", "127.0.0.1:1", "--driver-count", "2"], "--run-id"),
        (["run", "produce", "--bootstrap", "127.0.0.1:1", "--driver-index", "2"], "of 1 drivers the first is 0"),
        (["run", "produce", "--bootstrap", "127.0.0.1:1", "--json", "/nowhere/r.json"], "--json /nowhere/r.json"),
        (["run", "produce", "--bootstrap", "127.0.0.1:1", "--command-config", "/nowhere"], "/nowhere: cannot be read"),
        (["run", "produce", "--bootstrap", "127.0.0.1:1", "--watch", "proxy"], "NAME=PID"),
        (["run", "rolling-restart", "--bootstrap", "127.0.0.1:1"], "give --set restart=VALUE"),
        (["run", "produce", "--bootstrap", "127.0.0.1:1"], "127.0.0.1:1: cannot be reached"),
        (["sweep", "mixed-day", "--bootstrap", "127.0.0.1:1", "--from", "9", "--to", "2"], "127.0.0.1:1: cannot be reached"),
        (["check", "produce", "--set", "rate=0"], "a rate above 0"),
        (["show", "nothing"], "there is no scenario 'nothing'"),
    ],
)  # fmt: skip
def test_what_is_given_wrongly_is_one_line_and_exit_code_2(arguments: list[str], told: str) -> None:
    ended = CliRunner().invoke(loadtest, arguments)
    assert ended.exit_code == 2, ended.output
    assert told in ended.output
    assert len(ended.output.strip().splitlines()) == 1


def test_list_show_check_and_schema() -> None:
    runner = CliRunner()
    assert "noisy-neighbour" in runner.invoke(loadtest, ["list"]).output
    assert runner.invoke(loadtest, ["show", "produce"]).output == find("produce").read_text()
    assert "produce: right, 1 phase(s), 35 s" in runner.invoke(loadtest, ["check", "produce"]).output
    assert '"tenants"' in runner.invoke(loadtest, ["schema"]).output
