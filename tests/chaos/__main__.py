"""`make chaos`: ten minutes of faults under load on real parts; `ARGS="--duration 1h"`, `--seed 17` for the same faults again,
`--direct` without proxies, to see what is Kafka's own doing. Exit code 1 if anything is wrong."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Final

import click

from configfile.units import parse_duration
from loadtest.assertions import Overshoot, Throttled
from loadtest.interrupt import interruptible
from loadtest.results.model import RunResult
from tests.chaos.faults import FORGETS, Faults
from tests.chaos.schedule import BROKERS, schedule
from tests.chaos.system import MEMORY_BOUND, MIB, RATES, System

QUIET: Final = 45.0
"""Seconds of the run without faults, at its end: everybody has to go on within 30 s."""
BURST: Final = 12
"""Seconds of a quota that may pass beyond it (docs/byte-quotas.md)."""
REQUEST: Final = MIB
"""Bytes of the largest request of its client."""
WRONG: Final = "internal error"
"""The event of the log that a proxy must not have, beside lines that are no events."""


@click.command()
@click.option("--duration", default="10m", show_default=True, help="How long load and faults last, such as 90s or 1h.")
@click.option("--seed", type=int, help="Which faults; by default others each time.")
@click.option("--kinds", help="Only faults whose names contain one of these words, with commas between them.")
@click.option("--direct", is_flag=True, help="Without proxies: only what happens to brokers and the network.")
@click.option("--json", "file", help="Write the result of the load test.")
@click.option("--keep", is_flag=True, help="Leave the folder with all logs there.")
def main(duration: str, seed: int | None, kinds: str | None, direct: bool, file: str | None, keep: bool) -> None:
    """Faults under load on real parts."""
    seconds, seed = parse_duration(duration), secrets.randbelow(1_000_000) if seed is None else seed
    click.echo(f"seed {seed}")
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        with interruptible(lambda: click.echo("stopped")):
            wrong = _run(folder, seconds, seed, kinds.split(",") if kinds else [""], direct, file)
    finally:
        if keep:
            click.echo(f"logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for text in wrong:
        click.echo(f"wrong: {text}", err=True)
    sys.exit(bool(wrong))


def _run(folder: Path, seconds: float, seed: int, words: list[str], direct: bool, file: str | None) -> list[str]:
    size = int((512 + seconds) * MIB)
    with System(folder, size=size, direct=direct, say=click.echo) as system, socket.socket(socket.AF_UNIX) as listener:
        path = folder / "faults"
        listener.bind(str(path))
        listener.listen()
        told: list[str] = []
        wrong: list[str] = []

        def play() -> None:
            sock, _ = listener.accept()
            began = time.monotonic()
            with sock, sock.makefile("w") as lines:

                def tell(line: str) -> None:
                    told.append(line)
                    lines.write(line + "\n")
                    lines.flush()

                faults = Faults(system, tell)
                chosen = [kind for kind in faults.kinds() if any(word in kind.name for word in words)]
                try:
                    faults.play(schedule(seed, chosen), began + seconds - QUIET)
                except Exception as e:
                    traceback.print_exc()
                    wrong.append(f"a fault could not be made: {e!r}")
                else:
                    tell("{}")

        threading.Thread(target=play, daemon=True).start()
        result = folder / "result.json"
        command = [sys.executable, "-m", "proxy", "loadtest", "run", "chaos", "--bootstrap", system.bootstrap]
        command += ["--command-config", str(system.properties), "--json", str(result)]
        command += ["--set", f"faults={sys.executable} -m tests.chaos.begin {path}", "--set", f"duration={seconds:g}s"]
        code = subprocess.run(command, check=False).returncode
        if code:
            wrong.append(f"the load test ended with exit code {code}")
        if result.exists():
            if file:
                shutil.copyfile(result, file)
            if not direct:
                wrong += _quota(RunResult.model_validate_json(result.read_text()))
        if not direct and not wrong:
            wrong += _judged(system)
        return wrong


def _quota(result: RunResult) -> list[str]:
    """Whether client id `held` had more than the largest of its limits, which take turns within a window, and what one request of
    each of its connections may bring beyond that."""
    (phase,) = result.phases
    forgotten = sum(event.kind == FORGETS for event in phase.events)
    at_most = (1 + forgotten) * BURST + BROKERS * REQUEST / max(RATES)
    held = {"check": "overshoot", "tenant": "held", "of": "bytes", "quota": max(RATES), "at_most": f"{at_most:.3f}s"}
    throttled = {"check": "throttled", "tenant": "held"}
    found = [kind.model_validate(data).assess(result) for kind, data in ((Overshoot, held), (Throttled, throttled))]
    for one in found:
        click.echo(one.text)
    return [one.text for one in found if not one.passed]


def _judged(system: System) -> list[str]:
    """What is wrong with the proxies at the end."""
    wrong = []
    click.echo(f"the largest worker had {system.largest / MIB:.0f} MiB resident")
    if system.largest > MEMORY_BOUND:
        wrong.append(f"a worker had {system.largest / MIB:.0f} MiB resident, more than {MEMORY_BOUND / MIB:.0f}")
    deadline = time.monotonic() + 30
    left = 1.0
    while left and time.monotonic() < deadline:
        left = sum(proxy.metrics().get("client_connections", 0.0) for proxy in system.proxies)
        time.sleep(0.2)
    if left:
        wrong.append(f"{left:g} connections are left when all clients are gone")
    for number, proxy in enumerate(system.proxies):
        events = [event for event in proxy.events() if event["event"] == WRONG or event["level"] == "text"]
        wrong += [f"proxy {number}: {event}" for event in events[:10]]
        if code := proxy.stop():
            wrong.append(f"proxy {number} ended with exit code {code}")
    return wrong


if __name__ == "__main__":
    main()
