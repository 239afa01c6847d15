"""What the supervisor of workers does for all of them; what keeps it from starting them."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, cast
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import pytest

from localkafka.ports import HeldPort
from proxy.config.models import Settings
from proxy.observe.operations import Log
from proxy.process.start_error import StartError
from proxy.process.workers import Workers
from tests.clients.proxied import Recorder, until
from tests.fleet.meeting import run
from tests.upstream.describing import LOG_DIRS, describing


def test_a_system_without_shared_ports_is_told_what_would_be_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_REUSEPORT")

    async def work() -> None:
        workers = Workers(Settings.model_validate({"listen": {"bootstrap": "127.0.0.1:9192"}}), 2, cast(Log, Recorder()))
        with pytest.raises(StartError, match="`workers` need SO_REUSEPORT, which this system does not have; set `workers` to 1"):
            await workers.start()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("worker")]

    run(work())


class Sample(NamedTuple):
    """How often a worker has looked, as a scrape says, and how often the broker had been asked before the scrape and after it."""

    looks: int
    before: int
    after: int


def test_workers_look_at_volumes_once_for_all_of_them_and_one_says_what_it_sees(tmp_path: Path) -> None:
    """Three of them, once a second. A worker that is late by more than half a second looks for itself, as all do at first: so this
    waits for some seconds in which nobody is."""
    count, looks = 3, 3

    async def work() -> tuple[list[dict[str, object]], str, list[bool]]:
        async with describing(1) as (broker,):
            listen, admin = (stack.enter_context(HeldPort()).address for _ in range(2))
            broker.dirs[0]["usable"] = 1
            broker.dirs.append({"path": "/more", "total": 9000, "usable": 8000})
            settings = {
                "workers": count,
                "upstream": {"bootstrap_servers": [str(broker.address)]},
                "listen": {"bootstrap": listen},
                "admin": {"listen": admin},
                "logs": {"usage": {"path": str(tmp_path / "usage")}},
                "quotas": {"storage": {"check_interval": "1s", "min_available_bytes": 1000}},
            }
            file = tmp_path / "settings.yaml"
            file.write_text(json.dumps(settings))
            command = [sys.executable, "-m", "proxy", "serve", "--config", str(file)]
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            samples: list[Sample] = []
            try:
                async with asyncio.timeout(300):
                    await until(lambda: broker.asked.count(LOG_DIRS) > count)
                    while not any(shared(one, other, looks) for one in samples for other in samples):
                        await asyncio.sleep(0.2)
                        before = broker.asked.count(LOG_DIRS)
                        metrics = await asyncio.to_thread(scraped, admin)
                        found = re.search(r"storage_limit_violations_total (\d+)", metrics)
                        if found is not None:
                            samples.append(Sample(int(found[1]), before, broker.asked.count(LOG_DIRS)))
                serving = psutil.Process(process.pid)
                web_servers = [has_web_server(one) for one in (serving, *serving.children())]
            finally:
                process.terminate()
                said, _ = await process.communicate()
            return [json.loads(line) for line in said.splitlines()], metrics, web_servers

    with ExitStack() as stack:
        said, metrics, web_servers = run(work())
    assert 'storage_volume_seconds_to_limit{broker="0",log_dir="/more"} +Inf' in metrics
    assert [line["worker"] for line in said if line["event"] == "volume at its limit"] == [0]
    usage = "".join(file.read_text() for file in (tmp_path / "usage").rglob("*.jsonl"))
    boots = {line["boot"] for line in map(json.loads, usage.splitlines()) if line["type"] == "volume"}
    assert len(boots) == 1
    assert web_servers == [True] + [False] * count, "it takes a sixth of a worker's memory, and of its start"


def shared(one: Sample, other: Sample, looks: int) -> bool:
    """True if workers looked so often between these, and the broker was asked each time, but less than twice, instead of thrice."""
    looked = other.looks - one.looks
    return looked >= looks and looked <= other.after - one.before < 2 * looked


def scraped(admin: str) -> str:
    """The metrics; nothing as long as they are not served."""
    with suppress(URLError), urlopen(f"http://{admin}/metrics") as answer:
        return str(answer.read().decode())
    return ""


def has_web_server(process: psutil.Process) -> bool:
    """What aiohttp consists of is partly compiled, and such files are mapped into memory."""
    return any("aiohttp" in file.path for file in process.memory_maps())


def test_workers_that_are_told_to_stop_while_they_start_end(tmp_path: Path) -> None:
    """They wait for a broker that does not tell how full its volumes are."""

    async def work() -> tuple[int | None, bytes]:
        async with describing(1) as (broker,):
            broker.hangs = True
            file = tmp_path / "settings.yaml"
            storage = {"check_timeout": "300s", "check_interval": "400s", "min_available_bytes": 1000}
            file.write_text(json.dumps({"workers": 2, "quotas": {"storage": storage}}))
            ports = ["--listen", held.address, "--admin", "127.0.0.1:0", "--upstream", str(broker.address)]
            command = [sys.executable, "-m", "proxy", "serve", "--config", str(file), *ports]
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            async with asyncio.timeout(200):
                await until(lambda: LOG_DIRS in broker.asked)
                process.terminate()
                said, _ = await process.communicate()
            return process.returncode, said

    with HeldPort() as held:
        code, said = run(work())
    assert (code, b"worker started" in said) == (0, False)
