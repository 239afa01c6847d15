"""Finds a Java that runs Kafka and Spark, says how to get one if there is none, and can install it with apt-get.

In: JAVA_HOME, PATH and /usr/lib/jvm. Out: a `Java`, or JavaMissing with what was found and how to get one.
Leaves to others: what runs on it. `python -m localkafka.java [--install]` is what the Makefile calls.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

MINIMUM = 17  # Kafka 4 and Spark 4 need it
_SYSTEM_JAVAS = Path("/usr/lib/jvm")
_RUN_LIMIT = 30.0  # seconds for `java -version`
_HOW_TO = f"""Java {MINIMUM} or newer is needed. To get it:
  Debian, Ubuntu:  apt-get install openjdk-17-jre-headless   (or default-jre-headless)
  Fedora:          dnf install java-latest-openjdk-headless
  macOS:           brew install openjdk   (then set JAVA_HOME to the folder that brew names)
Another one that is already there is used when JAVA_HOME names its folder."""
_HOW_TO_COMPILER = """This Java cannot compile. To get one that can:
  Debian, Ubuntu:  apt-get install openjdk-17-jdk-headless   (or default-jdk-headless)
  Fedora:          dnf install java-latest-openjdk-devel"""


class JavaMissing(RuntimeError):
    """There is no Java, or none that is new enough. The message says what was found and how to get one."""


@dataclass(frozen=True)
class Java:
    """One Java that runs: `version` is the feature number (17, 21), `release` the full version (17.0.15), `home` its JAVA_HOME."""

    path: Path
    version: int
    release: str
    home: Path

    def environment(self) -> dict[str, str]:
        """This process's environment, with this Java as the one that start scripts find."""
        return {**os.environ, "JAVA_HOME": str(self.home), "PATH": f"{self.path.parent}{os.pathsep}{os.environ.get('PATH', '')}"}

    def require_compiler(self) -> None:
        """Raise JavaMissing unless this Java brings a compiler (a JDK, not only a JRE): source files need it."""
        listing = subprocess.run([self.path, "--list-modules"], capture_output=True, text=True, timeout=_RUN_LIMIT, check=False)
        if "jdk.compiler" not in listing.stdout:
            raise JavaMissing(f"{self.path} is a runtime only.\n{_HOW_TO_COMPILER}")


def find_java() -> Java:
    """The first Java of at least MINIMUM among JAVA_HOME, PATH and /usr/lib/jvm. Errors: JavaMissing."""
    rejected = []
    for path in dict.fromkeys(_candidates()):
        found = _probe(path, path.stat().st_mtime_ns if path.exists() else 0)
        if isinstance(found, Java) and found.version >= MINIMUM:
            return found
        rejected.append(f"{path}: " + (found if isinstance(found, str) else f"Java {found.release}, too old"))
    found_text = "".join(f"\n  {line}" for line in rejected) if rejected else " nothing: no JAVA_HOME, and no `java` on the PATH"
    raise JavaMissing(f"No usable Java. Found:{found_text}\n{_HOW_TO}")


def ensure_java(install: bool = False) -> Java:
    """Like find_java, but with `install`, as root and where there is apt-get, it installs a missing Java. Errors: JavaMissing."""
    try:
        return find_java()
    except JavaMissing:
        apt_get = shutil.which("apt-get")
        if not install or apt_get is None or os.geteuid() != 0:
            raise
    _apt_install(apt_get)
    return find_java()


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder and os.access(path := Path(folder, "java"), os.X_OK):
            yield path
    yield from sorted(_SYSTEM_JAVAS.glob("*/bin/java"), reverse=True)


@lru_cache(maxsize=32)
def _probe(path: Path, _changed: int) -> Java | str:
    """The Java at a path, or what is wrong with it. It is asked again only after its file has changed."""
    try:
        run = subprocess.run(
            [path, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=_RUN_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({error})"
    printed = run.stderr + run.stdout
    version = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', printed)
    if run.returncode != 0 or version is None:
        return f"does not run ({printed.strip()[:200] or f'exit code {run.returncode}'})"
    home = re.search(r"java\.home = (.+)", printed)
    return Java(path, int(version[2]), version[1], Path(home[1].strip()) if home else path.resolve().parents[1])


def _apt_install(apt_get: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    base = [apt_get, "-y", "-q", "-o", "DPkg::Lock::Timeout=300"]
    said = ""
    subprocess.run([*base, "update"], env=environment, capture_output=True, check=False)
    for package in ("openjdk-17-jre-headless", "default-jre-headless"):
        command = [*base, "install", "--no-install-recommends", package]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return
        said += f"\napt-get install {package}: {(run.stderr or run.stdout).strip()[-500:]}"
    raise JavaMissing(f"Java could not be installed.{said}\n{_HOW_TO}")


def main() -> int:
    """Print the Java that is used; exit code 1 and the reason when there is none."""
    parser = argparse.ArgumentParser(prog="python -m localkafka.java", description="Find the Java that the local Kafka runs on.")
    parser.add_argument(
        "--install", action="store_true", help="install it with apt-get when it is missing (Debian and Ubuntu, as root)"
    )
    try:
        java = ensure_java(parser.parse_args().install)
    except JavaMissing as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Java {java.release} at {java.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
