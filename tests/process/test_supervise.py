"""Nothing of the proxy dies silently: work that ends is started again, with a line, or the proxy ends; what one connection fails by
costs no other."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import structlog
from aiokafka.errors import KafkaError

from proxy import supervise
from proxy.clients import overdue
from proxy.config.models import Settings
from proxy.observe.operations import Log
from proxy.process import producer_id_snapshot as snapshot
from proxy.process import proxy as running
from proxy.process import serve
from proxy.process.proxy import Proxy
from proxy.session.session import Session
from proxy.supervise import PAUSE, RESTARTS, Supervisor, tell_end
from proxy.upstream import log_topic
from proxy.upstream.volumes import LocalSource
from tests.clients.proxied import Recorder, frame, proxied, until
from tests.fleet.meeting import run
from tests.fleet.simulated import run_simulated


class Mistake(Exception):
    """What nobody thought of."""


def supervised(test: Callable[[Supervisor, Recorder], Coroutine[Any, Any, None]]) -> Recorder:
    """A test in simulated time."""
    log = Recorder()

    async def work() -> None:
        await test(Supervisor(cast(Log, log)), log)

    run_simulated(work())
    return log


# ---------------------------------------------------------------------- one piece of work


async def _fails() -> None:
    raise Mistake("again")


async def _ends() -> None:
    pass


async def _is_cancelled_by_nobody() -> None:
    """As by a library that cancels a future somebody waits for."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize("fault", [_fails, _ends, _is_cancelled_by_nobody])
def test_work_that_ends_is_told_and_started_again(fault: Callable[[], Coroutine[Any, Any, None]]) -> None:
    began = []

    async def work() -> None:
        began.append(asyncio.get_running_loop().time())
        if len(began) == 1:
            await fault()
        else:
            await asyncio.sleep(3600)

    async def test(supervisor: Supervisor, log: Recorder) -> None:
        task = supervisor.keep("it", work)
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert began == [0.0, PAUSE]
        (line,) = log.find("internal error", task="it", level="error")
        assert "it is started again in 1 s" in line["detail"]
        assert not supervisor.failed.is_set()

    supervised(test)


def test_work_that_ends_again_and_again_ends_the_proxy() -> None:
    async def test(supervisor: Supervisor, log: Recorder) -> None:
        supervisor.keep("it", _fails)
        await asyncio.sleep(RESTARTS * PAUSE - 0.5)
        assert not supervisor.failed.is_set()
        await asyncio.sleep(1)
        assert supervisor.failed.is_set()
        assert [line["level"] for line in log.lines] == ["error"] * RESTARTS + ["critical"]
        assert isinstance(log.lines[-1]["exc_info"], Mistake)

    supervised(test)


def test_work_that_ends_now_and_then_goes_on_for_ever() -> None:
    async def test(supervisor: Supervisor, log: Recorder) -> None:
        async def work() -> None:
            await asyncio.sleep(20)
            raise Mistake

        supervisor.keep("it", work)
        await asyncio.sleep(1000)
        assert len(log.lines) > 40
        assert not supervisor.failed.is_set()

    supervised(test)


def test_work_that_is_to_be_done_once_may_end_but_not_fail() -> None:
    done = []

    async def work() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise Mistake

    async def test(supervisor: Supervisor, log: Recorder) -> None:
        await supervisor.keep("it", work, once=True)
        assert (done, len(log.lines)) == ([0, 1], 1)

    supervised(test)


def test_a_log_that_fails_ends_the_proxy_and_not_its_supervision() -> None:
    async def test(supervisor: Supervisor, _: Recorder) -> None:
        supervisor._log = cast(Any, None)
        supervisor.keep("it", _fails)
        await asyncio.sleep(1)
        assert supervisor.failed.is_set()

    supervised(test)


# ---------------------------------------------------------------------- what nobody waits for


def test_errors_that_nobody_waits_for_are_told_at_once_and_not_one_by_one() -> None:
    async def test(_: Supervisor, log: Recorder) -> None:
        loop = asyncio.get_running_loop()

        def fails() -> None:
            raise Mistake("in a callback")

        async def task() -> None:
            raise Mistake("in a task")

        for _ in range(50):
            loop.call_soon(fails)
        ended = loop.create_task(task(), name="a task")
        ended.add_done_callback(tell_end)
        await asyncio.sleep(1)
        callback, of_task = log.lines
        assert (str(callback["exc_info"]), callback["level"]) == ("in a callback", "error")
        assert (str(of_task["exc_info"]), of_task["detail"]) == ("in a task", "a task ended")
        await asyncio.sleep(20)
        log.lines.clear()
        handler = loop.get_exception_handler()
        assert handler is not None
        handler(loop, {"message": "x", "exception": KafkaError()})
        assert log.lines == []

    supervised(test)


def test_kinds_of_errors_that_are_told_apart_are_bounded() -> None:
    async def test(supervisor: Supervisor, log: Recorder) -> None:
        for kind in range(1000):
            asyncio.get_running_loop().call_exception_handler({"message": f"kind {kind}"})
        assert len(log.lines) == supervise.MAX_KINDS
        await asyncio.sleep(20)
        asyncio.get_running_loop().call_exception_handler({"message": "one more"})
        assert log.lines[-1]["not_told"] == 900
        assert len(supervisor._logged_until) == 1

    supervised(test)


# ---------------------------------------------------------------------- a whole proxy


def broken_once(target: object, name: str, asynchronous: bool) -> list[int]:
    """The method fails at its first call, and works from then on. Its calls."""
    real, calls = getattr(target, name), []

    def call(*arguments: Any, **more: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 1:
            raise Mistake(name)
        return real(*arguments, **more)

    async def wait(*arguments: Any, **more: Any) -> Any:
        return await call(*arguments, **more)

    setattr(target, name, wait if asynchronous else call)
    return calls


FAULTS: dict[str, tuple[Callable[[Proxy], object], str, bool]] = {
    "cluster": (lambda proxy: proxy.follower, "ask", True),
    "usage log intervals": (lambda proxy: proxy.logs.usage, "closing", False),
    "sweeps": (lambda proxy: proxy.logs.observer, "sweep", False),
    "reload": (lambda proxy: proxy.reloader, "_look", False),
    "producer ids": (lambda proxy: proxy.snapshot, "save", True),
    "volumes": (lambda proxy: proxy.volumes, "_look", True),
    "ledger": (lambda proxy: cast(Any, proxy.fleet).link.ledger, "collect", False),
    "quota topic": (lambda proxy: proxy.quota_topic, "run", True),
    "usage log topic": (lambda proxy: proxy.logs.topic, "run", True),
    "readiness": (lambda proxy: proxy, "not_ready", True),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done now and then is done at once."""
    for module, name in (
        *((supervise, "PAUSE"), (running, "SWEEP"), (snapshot, "SAVE_EVERY"), (overdue, "PERIOD")),
        (log_topic, "FINISH"),
    ):
        monkeypatch.setattr(module, name, 0.02)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", FAULTS)
def test_every_work_of_the_proxy_goes_on_after_a_mistake(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, method, asynchronous = FAULTS[name]
    start = Proxy.start

    async def spoilt(proxy: Proxy) -> None:
        await proxy.volumes.start()
        monkeypatch.setattr(proxy.volumes, "start", _ends)
        broken.append(broken_once(target(proxy), method, asynchronous))
        await start(proxy)

    broken: list[list[int]] = []
    monkeypatch.setattr(Proxy, "start", spoilt)
    settings: dict[str, Any] = {
        "reload": {"interval": "20ms"},
        "logs": {"usage": {"path": str(tmp_path), "topic": "usage", "interval": "1s"}},
        "quotas": {
            "storage": {"source": "local", "log_dirs": [str(tmp_path)], "check_interval": "20ms", "min_available_bytes": 1},
            "dynamic": {"topic": "quotas", "start_timeout": 0},
        },
        "ledger": {"kind": "redis", "servers": ["127.0.0.1:1"]},
    }

    async def work() -> None:
        async with proxied(**settings) as here:
            await until(lambda: here.log.find("internal error", task=name))
            await until(lambda: len(broken[0]) >= 2)
            (line,) = here.log.find("internal error", task=name)
            assert "started again" in line["detail"]

    run(work())


@pytest.mark.usefixtures("quick")
def test_a_connection_that_cannot_be_checked_is_closed_and_the_others_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    check = Session.check

    async def work() -> None:
        async with proxied(limits={"idle_timeout": "1h"}) as here:
            one, other = await here.client(), await here.client()
            await one.ask(frame(100))
            await other.ask(frame(100))

            def spoilt(session: Session, now: float) -> None:
                if session.client.address == one.address:
                    raise Mistake("check")
                check(session, now)

            monkeypatch.setattr(Session, "check", spoilt)
            await one.end()
            assert here.log.find("internal error")
            await other.ask(frame(100))

    run(work())


def test_a_client_whose_connection_to_a_broker_fails_by_a_mistake_is_closed_at_once() -> None:
    async def work() -> None:
        async with proxied() as here:

            async def connect(*_: object) -> None:
                raise Mistake("connect")

            here.proxy.shared.connect = connect
            client = await here.client()
            client.writer.write(frame(100))
            assert await client.end() == b""
            await until(lambda: here.log.find("internal error", detail="connect to a broker ended"))

    run(work())


def test_an_admin_request_that_fails_is_told_and_the_next_is_answered() -> None:
    async def work() -> None:
        async with proxied() as here, aiohttp.ClientSession() as session:
            host, port = here.proxy._admin.addresses[0][:2]
            broken_once(here.proxy.logs.throttle_status, "seen", asynchronous=False)
            for status in (500, 200):
                async with session.get(f"http://{host}:{port}/throttles") as answer:
                    assert answer.status == status
            assert here.log.find("internal error", task="admin /throttles")

    run(work())


def test_a_thread_that_looks_at_file_systems_and_fails_is_no_file_system_that_hangs() -> None:
    async def work() -> None:
        source = LocalSource(["/"], None, None, 60.0)
        broken_once(source, "_look", asynchronous=False)
        with pytest.raises(Mistake):
            await source.look(0.0)
        assert not (await source.look(1.0)).gaps

    run(work())


def test_a_wall_clock_that_jumps_is_told() -> None:
    async def work() -> None:
        async with proxied() as here:
            here.proxy.logs.usage._wall = lambda: time.time() - 3600
            here.proxy.logs.usage.close_interval()
            (line,) = here.log.find("wall clock jumped", level="warning")
            assert line["seconds"] == pytest.approx(-3600, abs=1)

    run(work())


@pytest.mark.usefixtures("quick")
def test_a_proxy_that_cannot_keep_its_work_going_ends_with_a_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def fails(_: object) -> None:
        raise Mistake("for good")

    monkeypatch.setattr(running.MetadataPoller, "run", fails)
    listen = {"listen": {"bootstrap": "127.0.0.1:0"}, "admin": {"listen": "127.0.0.1:0"}}
    settings = Settings.model_validate({"upstream": {"bootstrap_servers": ["127.0.0.1:1"]}, **listen})
    structlog.reset_defaults()
    assert run(serve._serve(settings, lambda: settings, None)) == 1
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [line["level"] for line in lines if line["event"] == "internal error"] == ["error"] * RESTARTS + ["critical"]
    assert lines[-1]["event"] == "stopped"
