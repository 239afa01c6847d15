"""Fixtures that several test folders share.

Real clusters, started when a test first asks, stopped at the end of the session; and worlds of sessions without sockets.
"""

import gc
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from localkafka import LocalCluster
from localkafka.versions import TESTED, full_version, release_of
from tests import parallel, properties  # noqa: F401  properties has the profiles
from tests.apis.topic_frames import FIVE, create, created
from tests.cluster_pool import ClusterPool
from tests.cpu import CpuReport
from tests.support import ANYBODY, World

# The quick compiler only: two cores have better to do in short tests than to optimise a broker. It compiles after a quarter of the
# calls that it waits for otherwise: what it makes costs little, and a broker under load takes an eighth of CPU less. No figures for
# `jstat`, for which each Java wakes up 20 times a second. Large pages, which Java knows on Linux: a broker fills 100 MB of new
# memory while it starts, page by page otherwise. Benchmarks do without all of them.
QUICK_START = [
    *("-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=0.25", "-XX:-UsePerfData"),
    *(["-XX:+UseTransparentHugePages"] if sys.platform == "linux" else []),
]
CLUSTERS = "clusters"


def _say(line: str) -> None:
    print(line, file=sys.stderr)


OPT_IN = {
    "api_server": (
        "--api-server",
        "run the tests that need what Go builds once in minutes: a Kubernetes API server, helm-unittest",
    ),
    "pods": ("--pods", "run the tests that need real pods: root, buildah and a container runtime"),
    "nightly": ("--nightly", "run the tests that take too long for every push"),
}
"""Marker → the option that it takes, and its help."""
NIGHTLY_TIMEOUT = 3600
"""Seconds that a test may take at night. Others have those of pyproject.toml."""
NOT_QUICK = (
    *("tests/chart", "tests/example", "tests/isolation", "tests/localkafka", "tests/real"),
    *("tests/bench", "tests/contracts/test_make_venv.py", "tests/contracts/test_parallel.py", "tests/contracts/test_wheel.py"),
    *("tests/docs", "tests/fuzz/test_compare.py", "tests/loadtest/test_statistics.py", "tests/reports/test_forecast_intervals.py"),
    "tests/simulation",
)
"""Paths that `--quick` leaves out: most of the tests there start brokers, Helm or a Java program, or they build something, start
many processes or reckon for seconds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    for option, text in OPT_IN.values():
        parser.addoption(option, action="store_true", help=text)
    parser.addoption(
        "--quick", action="store_true", help="leave out what starts brokers, Spark, Helm or other Java programs, and what builds"
    )
    parser.addoption("--cpu", action="store_true", help="report the CPU seconds of each test file (tests/cpu.py)")
    parser.addoption(
        "--kafka", default=[*TESTED][-1], help=f"the brokers' version, for -m every_kafka: {', '.join(TESTED)}, or any"
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what runs in the background so, and children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # while tests are collected, which makes a million objects that stay
    settings.load_profile("nightly" if config.getoption("--nightly") else "push")
    config.pluginmanager.register(ClusterPool(), CLUSTERS)
    if config.getoption("--cpu"):
        config.pluginmanager.register(CpuReport())


def ignored(config: pytest.Config) -> tuple[str, ...]:
    """Quick runs do not even import what they leave out."""
    return tuple(str(config.rootpath / folder) for folder in NOT_QUICK) if config.getoption("--quick") else ()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if str(collection_path).startswith(ignored(config)) else None


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workerinput") and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        parallel.import_own_part(config.rootpath, ignored(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers (`-n`)."""
    return parallel.scheduler(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes an option that was not given, or what is not quick."""
    not_quick = ["kafka", "spark"] if config.getoption("--quick") else []
    off = not_quick + [marker for marker, (option, _) in OPT_IN.items() if not config.getoption(option)]
    left_out = {item for item in items if any(item.get_closest_marker(marker) for marker in off)}
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.timeout(NIGHTLY_TIMEOUT))


def pytest_collection_finish() -> None:
    """The garbage collector need not look at what stays to the end anyway."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Clients of librdkafka that a test has dropped, and that garbage refers to, end with it. They would go on trying to reach
    their proxy, whose port the kernel may give to one of another test."""
    try:
        return (yield)
    finally:
        if item.get_closest_marker("kafka") and any(map(_is_librdkafka, Path("/proc/self/task").glob("*/comm"))):
            gc.collect()


def _is_librdkafka(thread: Path) -> bool:
    try:
        return thread.read_text().startswith("rdk:")
    except OSError:  # it has just ended
        return False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """A test that fails shows what the running proxies complained of."""
    report: Any = yield
    if report.when == "call" and report.failed:
        from tests.real.proxies import RUNNING

        report.sections += [(f"complaints of {proxy.folder.name}", proxy.complaints()) for proxy in RUNNING]
    return report


def version_of(config: pytest.Config) -> str:
    """Of the brokers, as `--kafka` says."""
    return full_version(config.getoption("--kafka"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what the brokers of this version cannot do."""
    version = version_of(item.config)
    for marker in item.iter_markers("since"):
        release, what = marker.args
        if release_of(version) < release_of(release):
            pytest.skip(f"Kafka {version} has no {what}, which came with {release}")


@pytest.fixture(scope="session")
def kafka_version(pytestconfig: pytest.Config) -> str:
    """Of the brokers that clusters shared by tests consist of. Clients and tools are the newest all the same."""
    return version_of(pytestconfig)


@pytest.fixture(scope="session")
def clusters(pytestconfig: pytest.Config) -> ClusterPool:
    """Those that files share. What rests on one of them lasts no longer than a file (`scope="module"`)."""
    pool = pytestconfig.pluginmanager.get_plugin(CLUSTERS)
    assert isinstance(pool, ClusterPool)
    return pool


@pytest.fixture(scope="module")
def kafka1(clusters: ClusterPool, kafka_version: str) -> LocalCluster:
    """One broker. A test that uses it makes topics of its own, and leaves the broker running."""
    return clusters.get("kafka1", lambda: LocalCluster(1, version=kafka_version, jvm_flags=QUICK_START, progress=_say))


@pytest.fixture(scope="module")
def kafka3(clusters: ClusterPool, kafka_version: str) -> LocalCluster:
    """Three brokers. A test that stops one starts it again."""
    return clusters.get("kafka3", lambda: LocalCluster(3, version=kafka_version, jvm_flags=QUICK_START, progress=_say))


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    """Every world that a test makes is checked at its end: no bytes may have come out that no step asked for."""
    made: list[World] = []

    def make(**settings: object) -> World:
        made.append(World(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.nothing_left()


@pytest.fixture
def tired(world: Callable[..., World]) -> World:
    """Anybody has used up the burst of controller mutations at 0 s."""
    w = world(limits={ANYBODY: FIVE}, knows_nothing=True)
    d = w.dialogue()
    d.client(create(7, 1, ("t", 560)))
    assert d.to_broker
    d.broker(created(7, 1, "t"))
    assert d.to_client
    return w
