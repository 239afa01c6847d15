"""Who is throttled, as operators see it: the command and the admin page, in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from localkafka import LocalCluster
from tests.real.launcher import run_command
from tests.real.proxies import ProxyProcess
from tests.real.raw import connect

pytestmark = pytest.mark.kafka

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EVIL = "<img src=x onerror=document.title='pwned'>"


@pytest.fixture(scope="module")
def busy(kafka1: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy of which one client, with a strange name, is throttled for minutes; and another would be."""
    entity = {
        "client_id": "<default>",
        "controller_mutations_rate": 0.001,
        "controller_mutations_burst": 1,
        "cluster_request_rate": 0.001,
    }
    settings = {
        "proxy_id": "edge-1",
        "quotas": {"entities": [entity], "observe": ["request_rate"]},
        "limits": {"max_throttle": "10m"},
    }
    with ProxyProcess(tmp_path_factory.mktemp("busy"), kafka1.bootstrap_servers, settings) as proxy:
        with connect(proxy.bootstrap) as connection:
            connection.client_id = EVIL
            topics = [{"name": f"page-{i}", "num_partitions": 2, "replication_factor": 1} for i in range(3)]
            answer = connection.decoded(19, 7, topics=topics)
        assert [topic.error_code for topic in answer.topics] == [0, 89, 89]
        proxy.wait_for("over quota, only observed", quota="request_rate")
        yield proxy


def command(*arguments: str, code: int = 0) -> str:
    run = run_command(["throttles", *arguments], 300)
    assert run.returncode == code, (run.stdout, run.stderr)
    return run.stdout + run.stderr


def test_the_command_says_who_and_why(busy: ProxyProcess) -> None:
    found = json.loads(command("--admin", busy.admin, "--json"))
    (one,) = (line for line in found["throttled"] if line["mode"] == "enforce")
    assert found["proxy"] == "edge-1"
    assert (one["quota"], one["entity"]["client_id"], one["action"]) == ("controller_mutations", EVIL, "refuse")
    assert one["usage"] > one["limit"] == 0.001
    assert 0 < one["seconds_left"] <= 600
    assert {line["topic"]: line["items"] for line in found["refused_last_hour"]} == {"page-1": 1, "page-2": 1}
    table = command("--admin", busy.admin)
    assert "request_rate (observed only)" in table
    assert "page-1" in table


def test_nobody_answers() -> None:
    assert "does not answer at 127.0.0.1:1: Connection refused" in command("--admin", "127.0.0.1:1", code=1)
    assert "such as" in command("--admin", "nonsense", code=2)


def test_the_listener_changes_nothing(busy: ProxyProcess) -> None:
    import urllib.request

    for method in ("POST", "PUT", "DELETE"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"http://{busy.admin}/throttles", method=method), timeout=60)
        assert refused.value.code == 405


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")
def test_the_page_shows_it_in_a_browser(busy: ProxyProcess, tmp_path: Path) -> None:
    assert BROWSER is not None
    how = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--virtual-time-budget=4000"]
    run = subprocess.run([*how, "--dump-dom", f"http://{busy.admin}/"], capture_output=True, text=True, timeout=120, check=False)
    page = run.stdout
    assert "edge-1" in page, run.stderr
    assert "as of " in page
    assert "client-id &lt;img src=x" in page, "a name is text"
    assert "pwned" not in page.partition("<title>")[2].partition("</title>")[0]
    body = page.partition("<main>")[2].partition("<script>")[0]
    for said in (
        "controller_mutations",
        "refuse",
        "observed only",
        "page-1",
        "page-2",
        "quotas.entities[0].controller_mutations_rate: client-id &lt;default&gt;",
    ):
        assert said in body, said
