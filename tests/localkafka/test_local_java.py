"""localkafka.java: which Java is chosen, and what is said when there is none. The Javas here are scripts that print a version."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localkafka import JavaMissing, ensure_java, find_java, java

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeJava:
    """A machine with no Java; the function puts one into a folder that goes on the PATH, unless told otherwise."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "_SYSTEM_JAVAS", tmp_path / "system")

    def make(version: str, home: str = "jre", on_path: bool = True, body: str = "") -> Path:
        path = tmp_path / home / "bin" / "java"
        path.parent.mkdir(parents=True)
        script = body or f"""echo '    java.home = {tmp_path / home}' >&2; echo 'openjdk version "{version}" 2025-04-15' >&2"""
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        if on_path:
            monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
        return path

    return make


@pytest.mark.parametrize(("printed", "feature"), [("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_a_java_on_the_path_is_found(make_java: MakeJava, printed: str, feature: int) -> None:
    path = make_java(printed)
    found = find_java()
    assert (found.path, found.version, found.release, found.home) == (path, feature, printed, path.parents[1])


def test_its_environment_makes_start_scripts_find_the_same_one(make_java: MakeJava) -> None:
    path = make_java("17.0.1")
    environment = find_java().environment()
    assert environment["JAVA_HOME"] == str(path.parents[1])
    assert environment["PATH"].startswith(f"{path.parent}{os.pathsep}")


def test_java_home_comes_before_the_path(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java("17.0.1")
    other = make_java("21.0.1", home="other", on_path=False)
    monkeypatch.setenv("JAVA_HOME", str(other.parents[1]))
    assert find_java().path == other


def test_one_that_is_too_old_does_not_hide_a_newer_one(make_java: MakeJava) -> None:
    newer = make_java("17.0.1")
    make_java("1.8.0_392", home="old")  # first on the PATH
    assert find_java().path == newer


def test_one_that_is_installed_but_not_on_the_path_is_found(make_java: MakeJava) -> None:
    path = make_java("17.0.1", home="system/java-17", on_path=False)
    assert find_java().path == path


@pytest.mark.usefixtures("make_java")
def test_a_missing_java_says_so_and_how_to_get_one() -> None:
    with pytest.raises(JavaMissing) as raised:
        find_java()
    message = str(raised.value)
    assert "nothing: no JAVA_HOME, and no `java` on the PATH" in message
    assert all(word in message for word in ("apt-get install openjdk-17-jre-headless", "dnf install", "brew install"))


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.20"])
def test_an_old_java_is_named_in_the_message(make_java: MakeJava, version: str) -> None:
    path = make_java(version)
    with pytest.raises(JavaMissing, match=f"{path}: Java {version}, too old"):
        find_java()


@pytest.mark.parametrize(
    ("body", "said"),
    [("echo Unable to locate a Java Runtime. >&2; exit 1", "Unable to locate a Java Runtime"), ("exit 3", "exit code 3")],
)
def test_one_that_does_not_run_is_named_with_what_it_said(make_java: MakeJava, body: str, said: str) -> None:
    make_java("", body=body)
    with pytest.raises(JavaMissing, match=said):
        find_java()


def test_a_runtime_without_a_compiler_says_what_to_install(make_java: MakeJava) -> None:
    make_java("17.0.1")
    with pytest.raises(JavaMissing, match="openjdk-17-jdk-headless"):
        find_java().require_compiler()


class TestInstall:
    """apt-get is a script that notes its arguments and, when told to, puts a Java in place."""

    @pytest.fixture
    def calls(self, make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        ready_java = make_java("17.0.1", home="ready", on_path=False)
        apt_get = tmp_path / "apt" / "apt-get"
        apt_get.parent.mkdir()
        apt_get.write_text(
            f'#!/bin/sh\necho "$DEBIAN_FRONTEND $*" >> {tmp_path}/calls\n'
            f'case "$*" in *install*$GOOD) mkdir -p {tmp_path}/system/java-17/bin; cp {ready_java} {tmp_path}/system/java-17/bin/;;'
            f'  *install*) echo "E: no such package" >&2; exit 100;; esac\n'
        )
        apt_get.chmod(0o755)
        monkeypatch.setenv("PATH", f"{apt_get.parent}:/usr/bin:/bin")
        monkeypatch.setattr(java, "_candidates", lambda: iter((tmp_path / "system").glob("*/bin/java")))
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        return tmp_path / "calls"

    def test_it_updates_then_installs_without_questions(self, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOOD", "openjdk-17-jre-headless")
        assert ensure_java(install=True).version == 17
        update, install = calls.read_text().splitlines()
        assert update.startswith("noninteractive -y")
        assert update.endswith("update")
        assert install.endswith("install --no-install-recommends openjdk-17-jre-headless")

    def test_it_takes_the_default_one_where_17_is_gone(self, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOOD", "default-jre-headless")
        assert ensure_java(install=True).version == 17
        assert len(calls.read_text().splitlines()) == 3

    @pytest.mark.usefixtures("calls")
    def test_what_apt_get_said_is_in_the_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOOD", "nothing")
        with pytest.raises(JavaMissing, match="E: no such package"):
            ensure_java(install=True)

    def test_it_installs_nothing_unasked(self, calls: Path) -> None:
        with pytest.raises(JavaMissing):
            ensure_java()
        assert not calls.exists()

    def test_it_installs_nothing_as_another_user(self, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(JavaMissing):
            ensure_java(install=True)
        assert not calls.exists()


def test_the_command_prints_the_java_in_use() -> None:
    run = subprocess.run([sys.executable, "-m", "localkafka.java"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("Java ")
