"""What keeps the supervisor of workers from starting them."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest

from proxy.config.models import Settings
from proxy.observe.operations import Log
from proxy.process.start_error import StartError
from proxy.process.workers import Workers
from tests.clients.proxied import Recorder
from tests.fleet.meeting import run


def test_a_system_without_shared_ports_is_told_what_would_be_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_REUSEPORT")

    async def work() -> None:
        workers = Workers(Settings.model_validate({"listen": {"bootstrap": "127.0.0.1:9192"}}), 2, cast(Log, Recorder()))
        with pytest.raises(StartError, match="`workers` need SO_REUSEPORT, which this system does not have; set `workers` to 1"):
            await workers.start()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("worker")]

    run(work())
