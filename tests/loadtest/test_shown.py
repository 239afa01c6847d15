"""What people see of results: tables, a live view, a page that needs nothing else, and commands on files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from loadtest.cli import loadtest
from loadtest.library import load
from loadtest.results.compare import in_turn
from loadtest.results.counts import Tick
from loadtest.results.files import AnyResult, write
from loadtest.results.model import AssertionResult, Endpoint, Event, RunResult, Verification, Warning, WarningCode, Watched
from loadtest.results.sweep import find_knee
from loadtest.results.terminal import View, print_result
from tests.browser import BROWSER, browsed, until
from tests.loadtest.made import START, driver, phase, run, tenant
from tests.loadtest.test_sweep import at


def page(result: AnyResult) -> str:
    """It needs matplotlib, which only the worker that runs these tests is to import."""
    from loadtest.results.page import page as made

    return made(result)


EVIL = "<img src=x onerror=document.title='pwned'>\x1b[31m"


def full_run(name: str = "victim", **different: Any) -> RunResult:
    """A result with something of everything, in which every text is `name`."""
    seen = Watched(name=name, cpu_s=2.0, cpu_max=0.5, memory_bytes=1 << 20, first=int(START), cpu=[0.2] * 9, memory=[1 << 20] * 9)
    events = [Event(at=START + 5, text=name)]
    one, other = tenant(name, role=name, failed={name: 3}), tenant("offender", limited=True, acknowledged=500)
    known = {
        "scenario": name,
        "definition": {name: name},
        "endpoint": Endpoint(name=name, bootstrap=name),
        "verification": [Verification(client=name, acknowledged=1000, consumed=999, lost=1, examples=[name])],
        "assertions": [AssertionResult(name=name, wanted=name, got=name, passed=False, text=name)],
        "warnings": [Warning(code=WarningCode.DRIVER_LOST, text=name)],
    }
    return run(phase(one, other, watched=[seen], events=events, warmup_s=2.0), **known | different)


def comparison(p99_factor: int = 2) -> AnyResult:
    points = [Endpoint(name=name, bootstrap=name) for name in ("direct", "proxy")]

    def run_once(endpoint: Endpoint) -> RunResult:
        us = 10_000 * (p99_factor if endpoint is points[1] else 1)
        return run(phase(tenant(latencies=[us] * 100)), endpoint=endpoint)

    return in_turn(points, 5, run_once)


def printed(result: AnyResult) -> str:
    console = Console(file=StringIO(), width=160)
    print_result(console, result)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_tables_say_what_failed_and_what_figures_are_worth() -> None:
    text = printed(full_run())
    assert "Failed: 1 of 1 assertions do not hold." in text
    assert "⚠ driver-lost: victim" in text
    assert [word for word in ("offender", "FAILS", "p99.9", "Lost", "Watched") if word not in text] == []
    assert "Passed: the rates were reached." in printed(run())


def test_a_comparison_and_a_sweep_have_a_verdict() -> None:
    assert "worse" in printed(comparison())
    assert "3,300 per second held: this is the knee." in printed(find_knee(lambda rate: at(3300, rate), low=3200))


def test_names_from_a_scenario_steer_no_terminal() -> None:
    assert "\x1b" not in printed(full_run(EVIL))


@pytest.mark.parametrize("made", [full_run, comparison, lambda: find_knee(lambda rate: at(300, rate), low=100)])
def test_a_page_loads_nothing(made: Callable[[], AnyResult]) -> None:
    text = page(made())
    assert text.count("<svg") >= 2
    assert "default-src 'none'" in text
    assert not [
        word for word in ("<script", "http://", "https://", "<link", "@import") if word in text.replace("http://www.w3.org", "")
    ]


def test_a_page_has_its_warnings() -> None:
    warnings = [Warning(code=WarningCode.DRIFT, text="the tide came in")]
    assert "<b>drift: </b>the tide came in" in page(full_run(warnings=warnings))
    assert "found no problem in its own measurement" in page(full_run(warnings=[]))


def test_ids_of_plots_are_unique() -> None:
    import re

    ids = re.findall(r'\bid="([^"]+)"', page(full_run()))
    assert len(ids) == len(set(ids)) > 0


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")
def test_a_browser_shows_it_at_the_width_of_a_laptop_and_a_phone(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(full_run(EVIL)))

    async def look() -> None:
        async with browsed(file.as_uri(), tmp_path / "profile") as ask:
            for width in (1366, 390):
                await ask.look(width, 900, dark=False)
                await ask(until(f"innerWidth === {width}"))
                assert await ask("document.documentElement.scrollWidth") <= width
            assert await ask("document.images.length") == 0
            assert (await ask("document.title")).startswith("Load test: <img")

    asyncio.run(look())


def test_the_live_view_shows_rates_and_failures() -> None:
    console = Console(file=StringIO(), width=140, force_terminal=True)
    view = View(console, "produce", "proxy")
    view.phase("load", 30.0, now=100.0)
    for second in (1, 2, 3):
        counted = Tick(acknowledged=102 * second, failed=second, bytes=second << 20, latency_max_us=5000)
        view.tick("victim", counted, 100)
    console.print(view.drawn(now=112.0))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert [word for word in ("produce at proxy", "12 of 30 s", "102", "3.0 MiB", "5 ms", "█") if word not in text] == []


def test_where_nobody_looks_a_line_comes_now_and_then() -> None:
    console = Console(file=StringIO(), width=140)
    with View(console, "produce", "proxy") as view:
        view.phase("load", 30.0, now=0.0)
        for second in range(1, 26):
            view.tick("victim", Tick(acknowledged=100 * second, bytes=10 * second, latency_max_us=5000), None)
            view.show(now=float(second))
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().splitlines() == [
        "produce at proxy: load, 30 s",
        "  10 s  victim 100/s, 0 failed",
        "  20 s  victim 100/s, 0 failed",
    ]


# Commands

SAID_BY = "kafka-quota-proxy loadtest: "


def call(command: str, *arguments: object, given: str = "") -> Result:
    return CliRunner().invoke(loadtest, [command, *map(str, arguments)], input=given)


def saved(folder: Path, name: str, result: AnyResult) -> Path:
    path = folder / name
    write(result, str(path))
    return path


def test_diff_says_what_regressed(tmp_path: Path) -> None:
    before = saved(tmp_path, "a.json", run())
    after = saved(tmp_path, "b.json", run(phase(tenant(acknowledged=800))))
    found = call("diff", before, after)
    assert (found.exit_code, "REGRESSION" in found.output, "1 regressions in" in found.output) == (1, True, True)
    assert call("diff", before, before).exit_code == 0
    assert call("diff", before, after, "--threshold", "rate=30%").exit_code == 0
    assert call("diff", saved(tmp_path, "c.json", comparison()), saved(tmp_path, "d.json", comparison(4))).exit_code == 1


def test_merge_reads_files_and_the_logs_of_pods(tmp_path: Path) -> None:
    scenario = load("produce", []).model_dump(mode="json", exclude_defaults=True) | {"assertions": []}
    parts = [run(drivers=[driver(index)], driver_count=2, definition=scenario) for index in range(2)]
    files = [saved(tmp_path, f"{index}.json", part) for index, part in enumerate(parts)]
    out = tmp_path / "merged.json"
    found = call("merge", *files, "--json", out, "--html", tmp_path / "page.html")
    assert found.exit_code == 0, found.output
    merged = RunResult.model_validate_json(out.read_text())
    assert merged.phases[0].tenants[0].acknowledged == 2000
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    logs = "".join(
        f"[pod/load-{i}/load] topic made\n[pod/load-{i}/load] {part.model_dump_json()}\n" for i, part in enumerate(parts)
    )
    found = call("merge", "-", "--json", "-", given=logs)
    assert found.exit_code == 0, found.output
    assert RunResult.model_validate_json(found.stdout) == merged
    found = call("merge", *(saved(tmp_path, f"old-{i}.json", run(drivers=[driver(i)], driver_count=2)) for i in range(2)))
    assert (found.exit_code, "the scenario of these results is not valid in this version: topics:" in found.output) == (2, True)
    found = call("merge", files[0])
    assert (found.exit_code, "1 of 2 drivers are missing: 1" in found.output) == (1, True)


def test_render_shows_a_file_again(tmp_path: Path) -> None:
    found = call("render", saved(tmp_path, "a.json", full_run()), "--html", tmp_path / "page.html")
    assert (found.exit_code, "Load test: victim" in found.output) == (0, True)
    assert "Load test: victim" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a result of a load test: Invalid JSON"),
        ('{"kind": "soup"}', "not a result of a load test: kind: Input tag 'soup'"),
        (json.dumps(run().model_dump() | {"schema_version": 9}), "schema version 9; this program reads version 2"),
        (json.dumps(run().model_dump() | {"speed": 9}), "run.speed: Extra inputs are not permitted"),
    ],
)
def test_what_is_no_result_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    for command, arguments in (
        ("render", [file]),
        ("merge", [file]),
        ("diff", [file, file]),
    ):
        found = call(command, *arguments)
        assert (found.exit_code, found.output.count("\n")) == (2, 1), found.output
        assert found.output.startswith(f"{SAID_BY}{file}")
        assert said in found.output


def test_files_that_are_not_there_or_cannot_be_written(tmp_path: Path) -> None:
    found = call("render", tmp_path / "none.json")
    assert (found.exit_code, found.output) == (2, f"{SAID_BY}{tmp_path}/none.json: No such file or directory\n")
    file = saved(tmp_path, "a.json", run())
    found = call("render", file, "--html", tmp_path / "none" / "page.html")
    assert (found.exit_code, found.output.splitlines()[-1]) == (2, f"{SAID_BY}{tmp_path}/none/page.html: No such file or directory")
    assert call("merge", saved(tmp_path, "c.json", comparison())).output.endswith(
        "this is a comparison; only results of runs can be merged\n"
    )
