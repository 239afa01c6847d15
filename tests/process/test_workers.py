"""What the supervisor of workers does for all of them; what keeps it from starting them."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import cast
from urllib.request import urlopen

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


def test_workers_look_at_volumes_once_for_all_of_them_and_one_says_what_it_sees(tmp_path: Path) -> None:
    """Three of them, once a second. A worker that is late by more than a second looks for itself."""
    count, looks = 3, 9

    async def work() -> tuple[float, list[dict[str, object]], str]:
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
            clock, began = asyncio.get_running_loop().time, None
            command = [sys.executable, "-m", "proxy", "serve", "--config", str(file)]
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            try:
                async with asyncio.timeout(300):
                    while broker.asked.count(LOG_DIRS) < looks:
                        await asyncio.sleep(0.02)
                        if began is None and broker.asked.count(LOG_DIRS):
                            began = clock()
                    took = clock() - (began or 0.0)
                    metrics = await asyncio.to_thread(lambda: str(urlopen(f"http://{admin}/metrics").read()))
            finally:
                process.terminate()
                said, _ = await process.communicate()
            return took, [json.loads(line) for line in said.splitlines()], metrics

    with ExitStack() as stack:
        took, said, metrics = run(work())
    assert 'storage_volume_seconds_to_limit{broker="0",log_dir="/more"} +Inf' in metrics
    assert looks <= took + 1 + count, "one look of all in each second, and one of each that starts"
    assert [line["worker"] for line in said if line["event"] == "volume at its limit"] == [0]
    usage = "".join(file.read_text() for file in (tmp_path / "usage").rglob("*.jsonl"))
    boots = {line["boot"] for line in map(json.loads, usage.splitlines()) if line["type"] == "volume"}
    assert len(boots) == 1


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


def test_a_worker_does_without_what_its_supervisor_alone_needs() -> None:
    """A web server takes a sixth of its memory, and of its start."""
    program = "import sys, proxy.process.worker; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=200, check=False).returncode == 0
