"""localkafka.jars: the cache, filled by the real resolver from a repository on loopback that has small jars."""

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import LOG4J, LOGGERS, add_kafka
from maven import MavenServer, path_of, pom

from localkafka import DEFAULT_VERSION, FetchError, jars, resolver, tool
from localkafka.java import find_java
from localkafka.repository import SETTING

KAFKA = [
    "org.apache.kafka_kafka-clients-4.2.0.jar",
    "org.apache.kafka_kafka-tools-4.2.0.jar",
    "org.apache.kafka_kafka_2.13-4.2.0.jar",
]
CACHED_CLIENT = "cache/org.apache.kafka/kafka-clients"


def fetch(said: list[str] | None = None, version: str = "4.2.0") -> Path:
    return jars.fetch(version, find_java(), (said if said is not None else []).append)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.jar"))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"KAFKA_QUOTA_PROXY_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/kafka-quota-proxy"),
        ({"HOME": "/home/a"}, "/home/a/.cache/kafka-quota-proxy"),
    ],
)
def test_the_cache_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("KAFKA_QUOTA_PROXY_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert jars.cache_dir() == Path(expected)


@pytest.mark.usefixtures("maven")
def test_what_is_fetched_has_sparks_logger_alone_and_no_connect() -> None:
    said: list[str] = []
    folder = fetch(said)
    assert [name for name in names(folder) if name.startswith("org.")] == KAFKA
    loggers = [name for name in names(folder) if not name.startswith("org.")]
    assert [re.sub(r"-[\d.]+\.jar", "", name) for name in loggers] == sorted(jars._FROM_SPARK)
    assert said == ["fetching Apache Kafka 4.2.0 (once; 45 MB, 20 s to a minute)"]
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, f"{folder.name}.lock"]


def test_with_a_full_cache_there_need_be_no_network(maven: MavenServer, full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(full, jars.cache_dir())
    monkeypatch.setenv(SETTING, "http://127.0.0.1:1/nobody")
    monkeypatch.setattr(resolver, "find_spec", lambda _name: None)  # nor PySpark
    said: list[str] = []
    folder = fetch(said)
    assert set(KAFKA) <= set(names(folder))
    assert jars.fetch_checked("4.2.0", find_java(), said.append) == folder
    assert said == []
    assert maven.asked == []


def test_two_versions_live_side_by_side(maven: MavenServer, full: Path) -> None:
    add_kafka(maven, "3.9.1")
    shutil.copytree(full, jars.cache_dir())
    old, new = fetch(version="3.9.1"), fetch()
    assert "org.apache.kafka_kafka_2.13-3.9.1.jar" in names(old)
    assert "org.apache.kafka_kafka_2.13-4.2.0.jar" in names(new)


def test_a_pom_without_its_jar_in_the_local_maven_repository_is_not_looked_at(maven: MavenServer, clean_home: Path) -> None:
    file = clean_home / ".m2" / "repository" / path_of(LOG4J, ".pom")
    file.parent.mkdir(parents=True)
    file.write_bytes(pom(LOG4J))
    assert set(KAFKA) <= set(names(fetch()))
    assert any(path.endswith("log4j-api-2.25.3.pom") for path in maven.asked)


def test_a_next_try_goes_on_from_what_was_downloaded(maven: MavenServer) -> None:
    jar = path_of(("org.apache.kafka", "kafka-tools", "4.2.0"), ".jar")
    data = maven.files.pop(jar)
    with pytest.raises(FetchError, match=r"has no org\.apache\.kafka#kafka-tools;4\.2\.0"):
        fetch()
    assert not list(jars.cache_dir().glob("kafka-4.2.0-1"))
    maven.files[jar] = data
    maven.asked.clear()
    assert names(fetch())
    assert not any(path.endswith("kafka-clients-4.2.0.jar") for path in maven.asked)


@pytest.mark.parametrize(
    "broken",
    [
        f"{CACHED_CLIENT}/jars/*.jar",
        *(pytest.param(f"{CACHED_CLIENT}/*.{ending}", marks=pytest.mark.nightly) for ending in ("xml", "original")),
    ],
)
def test_a_broken_cache_of_an_earlier_try_is_repaired(maven: MavenServer, broken: str) -> None:
    maven.cut.add(path_of(("org.apache.kafka", "kafka-tools", "4.2.0"), ".jar"))
    with pytest.raises(FetchError):
        fetch()
    maven.cut.clear()
    (file,) = (jars.cache_dir() / "kafka-4.2.0-1.resolving").glob(broken)
    file.write_bytes(file.read_bytes()[:100])
    folder = fetch()
    assert set(KAFKA) <= set(names(folder))
    assert jars._changed(folder) is None


@pytest.mark.parametrize("checksums", [True, False])
def test_a_jar_that_comes_broken_is_named_and_never_kept(maven: MavenServer, checksums: bool) -> None:
    client = ("org.apache.kafka", "kafka-clients", "4.2.0")
    whole = maven.files[path_of(client, ".jar")]
    maven.add(client, needs=LOGGERS, checksums=checksums)
    if not checksums:
        del maven.files[path_of(client, ".jar.sha1")]
    maven.files[path_of(client, ".jar")] = whole[:-200]
    with pytest.raises(FetchError, match=r"kafka-clients\S* came broken from http://127"):
        fetch()
    maven.files[path_of(client, ".jar")] = whole
    assert set(KAFKA) <= set(names(fetch()))


class TestDamage:
    """Of a folder that was complete."""

    @pytest.fixture
    def folder(self, maven: MavenServer, full: Path) -> Path:  # noqa: ARG002
        shutil.copytree(full, jars.cache_dir())
        return fetch()

    def test_a_jar_that_was_cut_is_fetched_again(self, folder: Path) -> None:
        jar = folder / KAFKA[0]
        whole = jar.read_bytes()
        jar.write_bytes(whole[:-1])
        said: list[str] = []
        assert fetch(said) == folder
        assert jar.read_bytes() == whole
        (line,) = said
        assert f"{KAFKA[0]} has {len(whole) - 1} bytes instead of {len(whole)}" in line

    def test_a_jar_that_is_missing_is_fetched_again(self, folder: Path) -> None:
        (folder / KAFKA[0]).unlink()
        said: list[str] = []
        fetch(said)
        assert (folder / KAFKA[0]).is_file()
        assert f"{KAFKA[0]} is missing" in said[0]

    def test_make_kafka_finds_one_that_was_changed(self, folder: Path) -> None:
        jar = folder / KAFKA[0]
        whole = jar.read_bytes()
        jar.write_bytes(b"x" + whole[1:])
        jars.fetch_checked("4.2.0", find_java())
        assert jar.read_bytes() == whole

    def test_a_folder_from_before_there_were_checksums_is_taken_over(self, folder: Path, maven: MavenServer) -> None:
        (folder / "sums.txt").unlink()
        maven.asked.clear()
        fetch()
        assert maven.asked == []
        assert (folder / "sums.txt").exists()

    def test_but_not_when_a_jar_of_it_is_broken(self, folder: Path) -> None:
        (folder / "sums.txt").unlink()
        (folder / KAFKA[0]).write_bytes((folder / KAFKA[0]).read_bytes()[:-200])
        fetch()
        assert jars.is_complete(folder / KAFKA[0])

    def test_what_is_damaged_stays_when_there_is_no_network(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / KAFKA[0]).unlink()
        monkeypatch.setenv(SETTING, "http://127.0.0.1:1/nobody")
        with pytest.raises(FetchError, match="no connection to"):
            fetch()
        assert (folder / KAFKA[1]).is_file()


def test_a_repository_that_hangs_is_not_waited_for_for_ever(maven: MavenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    maven.gate = threading.Event()
    monkeypatch.setattr(resolver, "_READ_LIMIT", 100)
    with pytest.raises(FetchError, match=r"no connection to .*Read timed out"):
        fetch()
    maven.gate.set()


def test_a_resolver_that_hangs_is_ended(maven: MavenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    maven.gate = threading.Event()
    monkeypatch.setattr(resolver, "_LIMIT", 2.0)
    with pytest.raises(FetchError, match=r"did not send everything within 2 s; a next try goes on from there"):
        fetch()
    maven.gate.set()


def test_of_two_processes_one_fetches_and_the_other_waits(maven: MavenServer) -> None:
    maven.gate = threading.Event()
    code = """if True:
        from localkafka import jars
        from localkafka.java import find_java
        print(jars.fetch("4.2.0", find_java(), lambda line: print(line, flush=True)))"""
    first, second = (subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2))
    assert first.stdout is not None
    assert second.stdout is not None
    lines = {first.stdout.readline().partition(" ")[0], second.stdout.readline().partition(" ")[0]}
    assert lines == {"fetching", "waiting"}
    maven.gate.set()
    folders = {process.communicate(timeout=300)[0].strip() for process in (first, second)}
    assert folders == {str(fetch())}
    assert sum(path.endswith("/kafka-clients-4.2.0.jar") for path in maven.asked) == 1


@pytest.mark.parametrize("version", ["", "4.2", "latest", "4.2.0/../..", "4.2.0,evil:jar:1.0.0", "4.2.0 --conf x=y"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="not a version"):
        fetch(version=version)


def test_a_pyspark_without_a_jar_that_is_needed_is_named(
    maven: MavenServer,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    shutil.copy(resolver._ivy(), tmp_path / "spark" / "jars")
    for module in (jars, resolver):
        monkeypatch.setattr(module, "spark_home", lambda: tmp_path / "spark")
    with pytest.raises(FetchError, match="this PySpark has no slf4j-api"):
        fetch()


@pytest.mark.usefixtures("clean_home")
def test_a_missing_pyspark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "find_spec", lambda _name: None)
    with pytest.raises(FetchError, match=r"kafka-quota-proxy\[demo\]"):
        fetch()


def test_a_cache_folder_that_cannot_be_made_says_which_setting_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_CACHE", "/dev/null/cache")
    with pytest.raises(FetchError, match=r"/dev/null/cache cannot be used .*: set KAFKA_QUOTA_PROXY_CACHE"):
        fetch()


@pytest.mark.kafka
def test_the_real_kafka_comes_from_a_mirror_and_runs(request: pytest.FixtureRequest) -> None:
    have = jars.fetch(DEFAULT_VERSION, find_java())
    maven: MavenServer = request.getfixturevalue("maven")
    packages = []
    for jar in (*have.glob("*_*.jar"), *have.glob("scala-library-*.jar")):
        found = re.fullmatch(r"(?:([\w.-]+?)_)?(.+?)-(\d[\w.-]*)\.jar", jar.name)
        assert found is not None
        packages.append((found[1] or "org.scala-lang", found[2], found[3]))
        maven.add(packages[-1], jar.read_bytes())
    server = ("org.apache.kafka", "kafka_2.13", DEFAULT_VERSION)
    maven.files[path_of(server, ".pom")] = pom(server, [package for package in packages if package != server])
    del maven.files[path_of(server, ".pom.sha1")]
    assert len(tool("storage", "random-uuid", check=True).stdout.strip()) == 22
    folder = jars.fetch(DEFAULT_VERSION, find_java())
    assert folder.parent == Path(os.environ["KAFKA_QUOTA_PROXY_CACHE"])
    assert {jar.name for jar in have.glob("org.apache.kafka_*")} == {jar.name for jar in folder.glob("org.apache.kafka_*")}
