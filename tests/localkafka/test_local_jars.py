"""localkafka.jars: the cache, with a script in the place of PySpark's resolver that fails, is slow, or puts empty jars in place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localkafka import FetchError, Java, jars

JAVA = Java(Path("/nowhere/bin/java"), 17, "17.0.1", Path("/nowhere"))
RESOLVED = [
    "org.apache.kafka_kafka_2.13-4.2.0.jar",
    "org.slf4j_slf4j-api-1.7.36.jar",
    "org.apache.logging.log4j_log4j-core-2.20.0.jar",
]
FROM_SPARK = [
    f"{name}-2.13.1.jar" for name in ("scala-library", "slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl", "log4j-1.2-api")
]
# Finds its folder among the arguments, as spark.jars.ivy.
FIND_FOLDER = 'for word; do case "$word" in spark.jars.ivy=*) folder="${word#*=}";; esac; done\n'
GOOD = FIND_FOLDER + "mkdir -p $folder/jars; " + "".join(f"touch $folder/jars/{name}; " for name in RESOLVED)


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PySpark with an empty cache before it; its resolver works, and notes each call in `calls`."""
    home = tmp_path / "pyspark"
    (home / "bin").mkdir(parents=True)
    (home / "jars").mkdir()
    (home / "__init__.py").touch()
    for name in FROM_SPARK:
        (home / "jars" / name).touch()
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "_spark_home", lambda: home)
    resolver(home, GOOD)
    return home


def resolver(home: Path, body: str) -> None:
    script = home / "bin" / "spark-submit"
    script.write_text(f'#!/bin/sh\necho "$SPARK_HOME $JAVA_HOME $*" >> {home}/calls\n{body}\n')
    script.chmod(0o755)


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


def test_what_is_fetched_has_one_logger_and_sparks_scala(spark: Path) -> None:
    said: list[str] = []
    folder = jars.fetch("4.2.0", JAVA, said.append)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FROM_SPARK, RESOLVED[0]])
    assert said == ["fetching Apache Kafka 4.2.0 (once)"]
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, f"{folder.name}.lock"]
    (call,) = (spark / "calls").read_text().splitlines()
    assert call.startswith(f"{spark} /nowhere ")
    assert "--packages org.apache.kafka:kafka_2.13:4.2.0,org.apache.kafka:kafka-tools:4.2.0" in call


def test_the_second_time_nothing_is_fetched(spark: Path) -> None:
    said: list[str] = []
    first = jars.fetch("4.2.0", JAVA)
    assert jars.fetch("4.2.0", JAVA, said.append) == first
    assert said == []
    assert len((spark / "calls").read_text().splitlines()) == 1


def test_two_versions_live_side_by_side(spark: Path) -> None:
    assert jars.fetch("4.2.0", JAVA) != jars.fetch("3.9.1", JAVA)
    assert len((spark / "calls").read_text().splitlines()) == 2


def test_a_failure_shows_the_end_of_what_the_resolver_said_and_leaves_no_folder(spark: Path) -> None:
    resolver(spark, "for n in 1 2 3; do echo noise; done; echo 'unresolved dependency: kafka_2.13;4.2.0' >&2; exit 1")
    with pytest.raises(FetchError, match=r"unresolved dependency: kafka_2\.13;4\.2\.0"):
        jars.fetch("4.2.0", JAVA)
    resolver(spark, GOOD)
    assert jars.fetch("4.2.0", JAVA).is_dir()


def test_a_resolver_that_brings_no_kafka_is_a_failure_whatever_its_exit_code(spark: Path) -> None:
    resolver(spark, "echo all fine")
    with pytest.raises(FetchError, match="all fine"):
        jars.fetch("4.2.0", JAVA)


def test_a_next_try_finds_what_was_downloaded_and_no_half_retrieved_jars(spark: Path) -> None:
    resolver(spark, FIND_FOLDER + "mkdir -p $folder/cache $folder/jars; touch $folder/cache/kept $folder/jars/half.jar; exit 1")
    with pytest.raises(FetchError):
        jars.fetch("4.2.0", JAVA)
    resolver(spark, FIND_FOLDER + 'test -e "$folder/cache/kept" || exit 1\n' + GOOD)
    assert "half.jar" not in [path.name for path in jars.fetch("4.2.0", JAVA).iterdir()]


def test_a_resolver_that_hangs_is_ended(spark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_FETCH_LIMIT", 0.5)
    resolver(spark, "echo downloading; sleep 1000")
    with pytest.raises(FetchError, match=r"(?s)not fetched within.*downloading"):
        jars.fetch("4.2.0", JAVA)


def test_of_two_processes_one_fetches_and_the_other_waits(spark: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    resolver(spark, f"cat {tmp_path}/gate > /dev/null\n{GOOD}")
    code = f"""if True:
        from pathlib import Path
        from localkafka import Java, jars
        jars._spark_home = lambda: Path({str(spark)!r})
        java = Java(Path("/nowhere/bin/java"), 17, "17.0.1", Path("/nowhere"))
        print(jars.fetch("4.2.0", java, lambda line: print(line, flush=True)))"""
    first, second = (subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2))
    assert first.stdout is not None
    assert second.stdout is not None
    lines = {first.stdout.readline().partition(" ")[0], second.stdout.readline().partition(" ")[0]}
    assert lines == {"fetching", "waiting"}
    (tmp_path / "gate").write_text("go")
    folders = {process.communicate(timeout=30)[0].strip() for process in (first, second)}
    assert folders == {str(jars.fetch("4.2.0", JAVA))}
    assert len((spark / "calls").read_text().splitlines()) == 1


@pytest.mark.parametrize("version", ["", "4.2", "latest", "4.2.0/../..", "4.2.0,evil:jar:1.0.0", "4.2.0 --conf x=y"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="not a version"):
        jars.fetch(version, JAVA)


def test_a_pyspark_without_a_jar_that_is_needed_is_named(spark: Path) -> None:
    (spark / "jars" / FROM_SPARK[0]).unlink()
    with pytest.raises(FetchError, match="scala-library"):
        jars.fetch("4.2.0", JAVA)


def test_a_missing_pyspark_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_CACHE", str(tmp_path))
    monkeypatch.setattr(jars, "find_spec", lambda _name: None)
    with pytest.raises(FetchError, match=r"kafka-quota-proxy\[demo\]"):
        jars.fetch("4.2.0", JAVA)
