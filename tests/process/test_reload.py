"""When a changed file is read."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import cast

from proxy.config.load import load_settings
from proxy.config.models import Settings
from proxy.observe.operations import Log
from proxy.process.reload import Reloader
from tests.clients.proxied import Recorder
from tests.fleet.simulated import run_simulated

FIRST = """
upstream: {bootstrap_servers: ["kafka:9092"]}
quotas: {entities: [{user: alice, producer_ids_rate: 100}]}
"""
HALF, _, _ = FIRST.partition("quotas")


def test_a_file_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    """An editor that writes in place leaves an empty file or a half of one for a moment. Both may be valid, with no quotas."""
    file, log, used = tmp_path / "settings.yaml", Recorder(), list[Settings]()

    async def work() -> None:
        file.write_text(FIRST)
        applied = asyncio.Event()

        def use(settings: Settings) -> None:
            used.append(settings)
            applied.set()

        load = partial(load_settings, file)
        reloader = Reloader(load(), load, use, lambda _: [str(file)], cast(Log, log))
        task = asyncio.create_task(reloader.run())
        file.write_text(HALF)
        await asyncio.sleep(10.5)  # it was looked at
        file.write_text(FIRST.replace("100", "101"))
        await applied.wait()
        task.cancel()

    run_simulated(work())
    assert [settings.quotas.entities[0].producer_ids_rate for settings in used] == [101]
    assert [line["event"] for line in log.lines] == ["settings applied"]
