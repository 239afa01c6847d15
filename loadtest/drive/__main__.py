"""One driver process: see `loadtest.drive`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import KafkaException

from loadtest.drive import librdkafka
from loadtest.drive.job import ERROR, READY, REPORT, TICK, Job, Report, Start
from loadtest.drive.librdkafka import DriverError
from loadtest.drive.pace import Pace
from loadtest.drive.tally import Tally, merged, sums_of
from loadtest.endpoint import EndpointError, said


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one handles Ctrl-C
    job = Job.model_validate_json(sys.stdin.readline())
    try:
        report = _real(job) if type(job.load) in librdkafka.KINDS else asyncio.run(_raw(job))
    except KafkaException as e:
        _fail(said(e))
    except (OSError, ImportError, EndpointError, DriverError) as e:
        _fail(str(e))
    _say(REPORT, report.model_dump(mode="json"))


def _real(job: Job) -> Report:
    """All clients, each in a thread."""
    clients = librdkafka.clients_of(job, lambda number: _pace(job, 0.0, number))
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(_connect, clients))
        start = _begin(clients)
        for client in clients:
            client.pace = client.tally.pace = _pace(job, start.at, client.number)
        tallies = [client.tally for client in clients]
        with _Ticks(tallies):
            _wait(start)
            runs = [pool.submit(client.run) for client in clients]
            for run in runs:
                run.result()
            list(pool.map(lambda client: client.close(), clients))
    library = librdkafka.library_of(job)
    return merged(tally.report(library) for tally in tallies)


def _connect(client: librdkafka.Client) -> None:
    try:
        client.connect()
    except KafkaException as e:
        raise DriverError("; ".join(dict.fromkeys([said(e), *client.told]))) from None


async def _raw(job: Job) -> Report:
    """All connections in one event loop."""
    from loadtest.drive import raw  # with the schemas of kio, half of what a driver takes to start
    from loadtest.login import LoginFailed

    one = raw.Raw(job)
    try:
        await one.connect()
    except LoginFailed as e:
        raise DriverError(str(e)) from None
    start = await asyncio.to_thread(_begin)
    pace = raw.pace(job, _pace(job, start.at, 0, clients=1))
    tally = Tally(pace, by_end=job.load.limited)
    with _Ticks([tally]):
        await one.run(pace, tally)
    return tally.report(raw.LIBRARY)


def _pace(job: Job, at: float, number: int, *, clients: int | None = None) -> Pace:
    measured = at + job.warm_up
    return Pace(job.rate, at, measured, measured + job.duration, number, clients or job.clients)


def _begin(clients: Sequence[librdkafka.Client] = ()) -> Start:
    """Say that all clients are connected, and wait until the phase begins."""
    gc.collect()
    gc.freeze()
    _say(READY, None)
    line = sys.stdin.readline()
    if not line:  # stopped before it began
        for client in clients:
            client.close()
        os._exit(1)
    threading.Thread(target=_watch, args=(clients,), daemon=True).start()
    return Start.model_validate_json(line)


def _watch(clients: Sequence[librdkafka.Client]) -> None:
    """Ends this process when the process that started it has ended or closes the pipe."""
    sys.stdin.read()
    leaving = [threading.Thread(target=client.leave) for client in clients]
    for thread in leaving:
        thread.start()
    for thread in leaving:
        thread.join()
    os._exit(1)


def _wait(start: Start) -> None:
    time.sleep(max(start.at - time.monotonic(), 0))


class _Ticks:
    """A line with sums each second, as a context manager."""

    def __init__(self, tallies: Sequence[Tally]) -> None:
        self._tallies, self._over = tallies, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(1.0):
            _say(TICK, sums_of(self._tallies).model_dump())


def _say(what: str, value: Any) -> None:
    sys.stdout.write(json.dumps({what: value}) + "\n")
    sys.stdout.flush()


def _fail(why: str) -> None:
    _say(ERROR, " ".join(why.split()))
    os._exit(1)


if __name__ == "__main__":
    main()
