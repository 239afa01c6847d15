"""One driver process: see `loadtest.drive`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any, NoReturn

from confluent_kafka import KafkaException

from loadtest.drive import librdkafka
from loadtest.drive.job import ERROR, READY, REPORT, TICK, Job, Report, Start
from loadtest.drive.librdkafka import DriverError
from loadtest.drive.pace import Pace
from loadtest.drive.tally import Tally, merged, sums_of
from loadtest.endpoint import EndpointError, said


def drive(orders: IO[str], answers: IO[str]) -> None:
    """All that the process does, with the pipes from the process that wants the load, and to it."""
    os.dup2(2, 1)  # what libraries print is no result
    parent = _Parent(orders, answers)
    with suppress(OSError):  # it has ended
        line = orders.readline()
        if not line:
            return
        job = Job.model_validate_json(line)
        try:
            report = _real(job, parent) if type(job.load) in librdkafka.KINDS else asyncio.run(_raw(job, parent))
        except KafkaException as e:
            parent.fail(said(e))
        except (OSError, ImportError, EndpointError, DriverError) as e:
            parent.fail(str(e))
        parent.say(REPORT, report.model_dump(mode="json"))


class _Parent:
    """The process that wants the load."""

    def __init__(self, orders: IO[str], answers: IO[str]) -> None:
        self._orders, self._answers = orders, answers

    def say(self, what: str, value: Any) -> None:
        self._answers.write(json.dumps({what: value}) + "\n")
        self._answers.flush()

    def fail(self, why: str) -> NoReturn:
        self.say(ERROR, " ".join(why.split()))
        os._exit(1)

    def begin(self, clients: Sequence[librdkafka.Client] = ()) -> Start:
        """Say that all clients are connected, and wait until the phase begins."""
        gc.collect()
        gc.freeze()
        self.say(READY, None)
        line = self._orders.readline()
        if not line:  # stopped before it began
            for client in clients:
                client.close()
            os._exit(1)
        threading.Thread(target=self._watch, args=(clients,), daemon=True).start()
        return Start.model_validate_json(line)

    def _watch(self, clients: Sequence[librdkafka.Client]) -> None:
        """End this process when the one that started it has ended or closes the pipe."""
        self._orders.read()
        leaving = [threading.Thread(target=client.leave) for client in clients]
        for thread in leaving:
            thread.start()
        for thread in leaving:
            thread.join()
        os._exit(1)


def _real(job: Job, parent: _Parent) -> Report:
    """All clients, each in a thread."""
    clients = librdkafka.clients_of(job, lambda number: _pace(job, 0.0, number))
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(_connect, clients))
        start = parent.begin(clients)
        for client in clients:
            client.pace = client.tally.pace = _pace(job, start.at, client.number)
        tallies = [client.tally for client in clients]
        with _Ticks(tallies, parent):
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


async def _raw(job: Job, parent: _Parent) -> Report:
    """All connections in one event loop."""
    from loadtest.drive import raw  # with the schemas of kio, half of what a driver imports
    from loadtest.login import LoginFailed

    one = raw.Raw(job)
    try:
        await one.connect()
    except LoginFailed as e:
        raise DriverError(str(e)) from None
    start = await asyncio.to_thread(parent.begin)
    pace = raw.pace(job, _pace(job, start.at, 0, clients=1))
    tally = Tally(pace, by_end=job.load.limited)
    with _Ticks([tally], parent):
        await one.run(pace, tally)
    return tally.report(raw.LIBRARY)


def _pace(job: Job, at: float, number: int, *, clients: int | None = None) -> Pace:
    measured = at + job.warm_up
    return Pace(job.rate, at, measured, measured + job.duration, number, clients or job.clients)


def _wait(start: Start) -> None:
    time.sleep(max(start.at - time.monotonic(), 0))


class _Ticks:
    """A message with sums each second, as a context manager."""

    def __init__(self, tallies: Sequence[Tally], parent: _Parent) -> None:
        self._tallies, self._parent, self._over = tallies, parent, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(OSError):  # the process that started this one has ended
            while not self._over.wait(1.0):
                self._parent.say(TICK, sums_of(self._tallies).model_dump())
