"""Looking at volumes: brokers that hang, fail, contradict themselves or leave; file systems of this machine; ticks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from proxy.config.models import Settings as Whole
from proxy.config.storage import Storage as Settings
from proxy.config.units import HostPort
from proxy.observe.usage_log import UsageLog
from proxy.observe.volumes import VolumeLog
from proxy.process.proxy import Proxy
from proxy.process.reload import LIVE
from proxy.process.start_error import StartError
from proxy.upstream.cluster_client import DirectClient
from proxy.upstream.connector import BrokerError, Upstream
from proxy.upstream.volumes import ALL_LOG_DIRS, ClusterSource, LocalSource, Watch
from quota.kinds.storage import Below, Check, Reason, Replicas, Storage, StorageLimits, Volume
from tests.clients.proxied import Recorder, until
from tests.fleet.meeting import run
from tests.fleet.simulated import run_simulated
from tests.upstream.describing import GIB, Describing, describing

TIMEOUT = 60.0
SINGLE = StorageLimits(Below(GIB), Below(GIB))


def source(brokers: list[Describing], *, replicas: bool = False, timeout: float = TIMEOUT) -> ClusterSource:
    addresses = [broker.address for broker in brokers]
    return ClusterSource(DirectClient(lambda: addresses, Upstream(TIMEOUT)), timeout, lambda _, __: replicas)


def look(
    spoil: Callable[[list[Describing]], object] = lambda _: None, count: int = 2, **more: Any
) -> tuple[Check, list[Describing]]:
    """What a look at some brokers gives, one of which was spoilt."""

    async def work() -> tuple[Check, list[Describing]]:
        async with describing(count) as brokers:
            spoil(brokers)
            return await source(brokers, **more).look(7.0), brokers

    return run(work())


def reasons(check: Check) -> list[tuple[Reason, int | None]]:
    return [(gap.reason, gap.broker_id) for gap in check.gaps]


def test_all_log_dirs_of_all_brokers() -> None:
    def more(brokers: list[Describing]) -> None:
        brokers[1].dirs.append({"path": "/more", "total": 8, "usable": 0})

    check, brokers = look(more)
    assert set(check.volumes) == {
        Volume(0, "/data0", 100 * GIB, 50 * GIB),
        Volume(1, "/data1", 100 * GIB, 50 * GIB),
        Volume(1, "/more", 8, 0),
    }
    assert (check.at, check.gaps, check.brokers) == (7.0, (), {0, 1})
    assert (check.replicas, [broker.asked_for_replicas for broker in brokers]) == ({}, [0, 0])


def test_replicas_are_told_where_they_are_asked_for() -> None:
    def topics(brokers: list[Describing]) -> None:
        brokers[0].dirs[0]["topics"] = {f"t{i}": [(0, i), (1, 1)] for i in range(1030)}

    check, _ = look(topics, count=1, replicas=True)
    (replicas,) = check.replicas.values()
    assert replicas.partitions["t7"] == {0, 1}
    assert replicas.size == sum(range(1030)) + 1030
    assert list(replicas.largest.items())[:2] == [("t1029", 1030), ("t1028", 1029)]
    assert len(replicas.largest) == 1000


def test_a_broker_that_hangs_costs_its_own_volumes_only() -> None:
    for timeout in (1.0, 5.0, 30.0):  # within which the other one has to answer, on a busy machine too
        check, _ = look(lambda brokers: setattr(brokers[1], "hangs", True), timeout=timeout)
        if check.volumes:
            break
    assert [volume.broker_id for volume in check.volumes] == [0]
    assert reasons(check) == [(Reason.BROKER, 1)]
    assert check.brokers == {0, 1}


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        ({"closes": True}, (Reason.BROKER, 1)),
        ({"raves": True}, (Reason.BROKER, 1)),
        ({"error_code": 31}, (Reason.NOT_AUTHORIZED, 1)),
        ({"error_code": 42}, (Reason.BROKER, 1)),
        ({"dirs": []}, (Reason.BROKER, 1)),
        ({"dirs": [{"path": "/d", "error": 56, "total": -1, "usable": -1}]}, (Reason.VOLUME, 1)),
        ({"dirs": [{"path": "/d", "total": -1, "usable": -1}]}, (Reason.VOLUME, 1)),
        ({"dirs": [{"path": "/d", "total": 0, "usable": 0}]}, (Reason.VOLUME, 1)),
        ({"dirs": [{"path": "/d", "total": 10, "usable": 11}]}, (Reason.VOLUME, 1)),
        ({"dirs": [{"path": "/d", "total": 10, "usable": -2}]}, (Reason.VOLUME, 1)),
    ],
)
def test_what_cannot_be_true_or_was_not_said_is_a_gap(spoil: dict[str, Any], expected: tuple[Reason, int]) -> None:
    def work(brokers: list[Describing]) -> None:
        for name, value in spoil.items():
            setattr(brokers[1], name, value)

    check, _ = look(work)
    assert reasons(check) == [expected]
    assert [volume.broker_id for volume in check.volumes] == [0]


def test_a_broker_that_is_gone_when_it_is_asked_is_a_gap() -> None:
    """The inconsistent state of seeds s0 and s3: the cluster names it, then it shuts down."""

    def leave(brokers: list[Describing]) -> None:
        brokers[1].port = 1

    check, _ = look(leave)
    assert reasons(check) == [(Reason.BROKER, 1)]


def test_fenced_brokers_are_not_asked() -> None:
    check, brokers = look(lambda brokers: [broker.fenced.add(1) for broker in brokers])
    assert (check.brokers, check.gaps) == ({0}, ())
    assert 35 not in brokers[1].asked


def test_a_cluster_that_nobody_names_is_a_gap() -> None:
    async def work() -> Check:
        async with describing(1) as brokers:
            brokers[0].port = 1
            return await source(brokers).look(0.0)

    check = run(work())
    assert reasons(check) == [(Reason.CLUSTER, None)]


def test_a_broker_that_hangs_does_not_keep_others_from_naming_the_brokers() -> None:
    async def work() -> Check:
        async with describing(2) as brokers:
            hung = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
            first = HostPort("127.0.0.1", hung.sockets[0].getsockname()[1])
            addresses = [first, *(broker.address for broker in brokers)]
            check = await ClusterSource(DirectClient(lambda: addresses, Upstream(TIMEOUT)), 30.0, lambda _, __: False).look(0.0)
            hung.close()
            return check

    assert not run(work()).gaps


@pytest.mark.parametrize(("key", "versions"), [(35, (1, 3)), (35, (0, -1)), (60, (1, -1))], ids=["Kafka 3.2", "none", "no cluster"])
def test_a_cluster_that_is_too_old_is_refused(key: int, versions: tuple[int, int]) -> None:
    with pytest.raises(BrokerError, match=r"DescribeLogDirs|DescribeCluster") as e:
        look(lambda brokers: brokers[0].versions.update({key: versions}), count=1)
    assert e.value.too_old


# this machine


def test_file_systems_of_this_machine(tmp_path: Path) -> None:
    check = run(_local(LocalSource([str(tmp_path), "/nowhere/at/all"], 3, None, TIMEOUT)))
    found = os.statvfs(tmp_path)
    (volume,) = check.volumes
    assert (volume.broker_id, volume.log_dir, volume.total) == (3, str(tmp_path), found.f_blocks * found.f_frsize)
    assert [(gap.reason, gap.log_dir) for gap in check.gaps] == [(Reason.VOLUME, "/nowhere/at/all")]


async def _local(source: LocalSource) -> Check:
    return await source.look(0.0)


def test_log_dirs_on_one_file_system_are_used_once(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in ("a", "b")]
    for each in dirs:
        each.mkdir()
    used = SimpleNamespace(hard=1 << 60, soft=None)
    check = run(_local(LocalSource(map(str, dirs), None, cast(Any, used), TIMEOUT)))
    (together,) = check.volumes
    (part, _) = check.parts
    assert (together.log_dir, together.total) == (ALL_LOG_DIRS, 1 << 60)
    assert together.total - together.available == pytest.approx(part.total - part.available, rel=0.01)


def test_a_file_system_that_does_not_answer_takes_one_thread_and_no_more() -> None:
    go_on, asked = threading.Event(), []

    def hang(name: str) -> os.statvfs_result:
        asked.append(name)
        go_on.wait(20)
        return os.statvfs(name)

    async def work() -> list[Check]:
        here = LocalSource(["/"], None, None, 0.05)
        real = os.statvfs("/")
        with mock.patch("proxy.upstream.volumes.os.statvfs", lambda name: hang(name) if not go_on.is_set() else real):
            checks = [await here.look(at) for at in (0.0, 1.0, 2.0)]
            await until(lambda: asked)
            go_on.set()
            await until(lambda: here._looking is not None and here._looking.done())
            return [*checks, await LocalSource(["/"], None, None, TIMEOUT).look(3.0)]

    *hung, well = run(work())
    assert [reasons(check) for check in hung] == [[(Reason.VOLUME, None)]] * 3
    assert len(asked) == 1
    assert not well.gaps


# the watch


class Fixed:
    """A source that says what the test says."""

    def __init__(self, *availables: int) -> None:
        self.availables = list(availables)
        self.ticks: list[float] = []
        self.looked: list[float] = []
        self.slow = 0.0

    async def look(self, at: float) -> Check:
        self.ticks.append(at)
        self.looked.append(asyncio.get_running_loop().time())
        slow, self.slow = self.slow, 0.0
        await asyncio.sleep(slow)
        available = self.availables.pop(0) if len(self.availables) > 1 else self.availables[0]
        volume = Volume(1, "/data", 100 * GIB, available)
        return Check(at, (volume,), brokers=frozenset({1}), replicas={volume.key: Replicas({}, {"orders": 5}, 9)})


class Lines:
    """The usage log, as a list."""

    on = True

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, make: Callable[..., list[dict[str, Any]]]) -> None:
        from proxy.observe.lines import Author

        self.lines += make(Author("edge", "0" * 16), "2026-01-01T00:00:00.000Z")


def watch(fixed: Fixed, limits: StorageLimits = SINGLE, interval: float = 0.02) -> tuple[Watch, Storage, Recorder, Lines]:
    settings = Settings.model_validate({"check_interval": f"{interval}s", "min_available_bytes": GIB})
    storage, log, lines = Storage(limits), Recorder(), Lines()
    loop = asyncio.get_running_loop()
    told = VolumeLog(cast(Any, log), cast(UsageLog, lines))
    made = Watch(storage, settings, storage.observe, DirectClient(list, Upstream(1.0)), told, loop.time)
    made._source = fixed
    return made, storage, log, lines


@pytest.mark.parametrize(
    ("slow", "looks"),
    [
        (0.5, [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]),
        (1.0, [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]),
        (1.5, [(1, 1), (2, 2), (3, 3), (4, 4.5), (5, 5)]),
        (5.0, [(1, 1), (2, 2), (3, 3), (8, 8), (9, 9)]),
        (5.5, [(1, 1), (2, 2), (3, 3), (8, 8.5), (9, 9)]),
    ],
)
def test_a_slow_look_costs_its_ticks_and_no_others_come_late(slow: float, looks: list[tuple[float, float]]) -> None:
    """(tick, when it looked) in simulated seconds: the third look is slow."""

    async def work() -> list[tuple[float, float]]:
        fixed = Fixed(50 * GIB)
        made, *_ = watch(fixed, interval=1)
        task = asyncio.create_task(made.run())
        await asyncio.sleep(2.5)
        fixed.slow = slow
        await asyncio.sleep(looks[-1][1] - 2.25)
        task.cancel()
        return list(zip(fixed.ticks, fixed.looked, strict=True))

    assert run_simulated(work()) == looks


def test_what_a_check_changes_is_told_and_logged() -> None:
    async def work() -> tuple[Storage, Recorder, Lines]:
        fixed = Fixed(50 * GIB, GIB, 50 * GIB)
        made, storage, log, lines = watch(fixed)
        await made.start()
        task = asyncio.create_task(made.run())
        await until(lambda: log.find("volume within its limits"))
        task.cancel()
        return storage, log, lines

    storage, log, lines = run(work())
    (full,) = log.find("volume at its limit", broker=1, log_dir="/data", available_bytes=GIB, throttle_factor=0.0)
    assert full["level"] == "error"
    assert [(line["usable_bytes"], line["factor"]) for line in lines.lines[:2]] == [(50 * GIB, 1.0), (GIB, 0.0)]
    assert lines.lines[0]["topic_bytes"] == {"orders": 5}
    assert lines.lines[0]["limit_bytes"] == GIB
    assert storage.calm


def test_all_topics_are_named_once_an_hour() -> None:
    lines, storage = Lines(), Storage(SINGLE)
    told = VolumeLog(cast(Any, Recorder()), cast(UsageLog, lines))
    volume = Volume(1, "/data", 100 * GIB, 50 * GIB)
    replicas = Replicas({}, {f"t{i}": 100 - i for i in range(50)}, 9000)
    for at in (0.0, 60.0, 3540.0, 3600.0, 3660.0):
        check = Check(at, (volume,), brokers=frozenset({1}), replicas={volume.key: replicas})
        told.checked(check, storage, storage.observe(check), "cluster")
    assert [len(line["topic_bytes"]) for line in lines.lines] == [20] * 5
    more = [line["more_topic_bytes"] for line in lines.lines]
    assert [named is None for named in more] == [False, True, True, False, True]
    assert list(more[0]) == [f"t{i}" for i in range(20, 50)]
    assert more[3]["t49"] == 51


def test_other_settings_are_a_new_check_at_once_and_none_ends_it() -> None:
    async def work() -> None:
        async with describing(1) as brokers:
            brokers[0].dirs[0]["usable"] = GIB
            storage, log = Storage(None), Recorder()
            told = VolumeLog(cast(Any, log), cast(UsageLog, Lines()))
            clock = asyncio.get_running_loop().time
            client = DirectClient(lambda: [brokers[0].address], Upstream(TIMEOUT))
            made = Watch(storage, None, storage.observe, client, told, clock)
            await made.start()
            task = asyncio.create_task(made.run())
            await asyncio.sleep(0)
            assert not brokers[0].asked
            storage.change(SINGLE)
            made.change(Settings.model_validate({"check_interval": "1h", "min_available_bytes": GIB}))
            await until(lambda: storage.factor == 0)
            storage.change(None)
            made.change(None)
            await until(lambda: made._source is None and not made._changed.is_set())
            assert storage.calm
            brokers[0].versions[35] = (1, 3)
            storage.change(SINGLE)
            made.change(Settings.model_validate({"check_interval": "2h", "min_available_bytes": GIB}))
            await until(lambda: log.find("volumes not known"))
            assert not task.done(), "a cluster that cannot tell is a gap, once the proxy runs"
            task.cancel()

    run(work())


# the whole proxy


@contextlib.asynccontextmanager
async def proxy_before(broker: HostPort, **storage: Any) -> AsyncIterator[tuple[Proxy, Callable[..., Whole]]]:
    """A proxy with a storage quota, or without one, and what makes other settings of it."""

    def settings(**quota: Any) -> Whole:
        data = {"upstream": {"bootstrap_servers": [str(broker)], "connect_timeout": "60s"}, "reload": {"interval": 0}}
        here = {"listen": {"bootstrap": "127.0.0.1:0"}, "admin": {"listen": "127.0.0.1:0"}}
        return Whole.model_validate({**data, **here, "quotas": {"storage": quota} if quota else {}})

    made = settings(**storage)
    proxy = Proxy(made, lambda: made, None, cast(Any, Recorder()))
    await proxy.start()
    try:
        yield proxy, settings
    finally:
        await proxy.stop(asyncio.Event())


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda broker: broker.versions.update({35: (1, 3)}), "speaks DescribeLogDirs 1 to 3; sizes of volumes are told from"),
        (lambda broker: broker.versions.pop(60), "does not speak DescribeCluster"),
        (lambda broker: setattr(broker, "wants_login", True), "it wants authentication; set `upstream.sasl`"),
    ],
    ids=["Kafka 3.2", "Kafka 2.7", "a login"],
)  # fmt: skip
def test_a_proxy_does_not_start_where_it_can_never_know(spoil: Callable[[Describing], object], says: str) -> None:
    async def work() -> None:
        async with describing(1) as brokers:
            spoil(brokers[0])
            async with proxy_before(brokers[0].address, min_available_ratio=0.1):
                raise AssertionError("it starts")

    with pytest.raises(StartError) as e:
        run(work())
    assert "`quotas.storage` needs to know how full volumes are" in str(e.value)
    assert says in str(e.value)


def test_a_proxy_starts_where_a_broker_that_stops_closes_its_first_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """That looks as if it wanted a login."""
    monkeypatch.setattr("proxy.upstream.volumes.AGAIN", 0.0)

    async def work() -> None:
        async with describing(1) as brokers:
            brokers[0].stops = True
            async with proxy_before(brokers[0].address, min_available_ratio=0.1) as (proxy, _):
                assert proxy.engine.storage.calm
                assert not brokers[0].stops

    run(work())


def test_a_proxy_starts_while_the_cluster_is_away() -> None:
    async def work() -> None:
        async with proxy_before(HostPort("127.0.0.1", 1), min_available_ratio=0.1, fallback_throttle_factor=0.5) as (proxy, _):
            assert proxy.engine.storage.factor == 0.5
            assert not proxy.engine.storage.calm

    run(work())


def test_a_reload_turns_it_on_and_off() -> None:
    async def work() -> None:
        async with describing(1) as brokers:
            brokers[0].dirs[0]["usable"] = GIB
            async with proxy_before(brokers[0].address) as (proxy, settings):
                proxy.use(settings(min_available_bytes="2GiB", check_interval="1h"))
                await until(lambda: proxy.engine.storage.factor == 0)
                assert proxy.engine.looks_at_produce
                proxy.use(settings(min_available_bytes="2GiB", check_interval=0))
                assert proxy.engine.storage.calm
                assert not proxy.engine.looks_at_produce

    run(work())
    assert all(LIVE.match(key) for key in ("quotas.storage", "quotas.storage.soft.min_available_ratio"))


def test_a_proxy_beside_a_broker_looks_at_its_disks_before_it_listens(tmp_path: Path) -> None:
    async def work() -> None:
        local = {"source": "local", "log_dirs": [str(tmp_path)], "broker_id": 3, "min_available_ratio": 1}
        async with proxy_before(HostPort("127.0.0.1", 1), **local) as (proxy, _):
            (seen,) = proxy.engine.storage.volumes
            assert (str(seen.volume), proxy.engine.storage.factor) == (f"{tmp_path} of broker 3", 0.0)

    run(work())
