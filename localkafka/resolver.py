"""Fetches Maven packages and all their dependencies with Apache Ivy, which comes with PySpark.

In: packages, a Java, the environment's repository and proxies, a folder to work in. Out: jars in `jars/` of that folder, each of
them complete; or FetchError, one line that says what is wrong and what to do.
Leaves to others: what the packages are, and where they stay (jars.py).
"""

import re
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from localkafka.guard import Guard
from localkafka.java import Java
from localkafka.repository import SETTING, Repository, find_repository, network_options

_LIMIT = 1800.0  # seconds
_CONNECT_LIMIT, _READ_LIMIT = 15_000, 60_000  # milliseconds

# The only resolver is the repository: Ivy's and Spark's own settings name local Maven repositories, too.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="repository"/>
  <caches defaultCacheDir={cache} resolutionCacheDir={resolution}/>
  {credentials}
  <timeout-constraints>
    <timeout-constraint name="limits" connectionTimeout="{connect_limit}" readTimeout="{read_limit}"/>
  </timeout-constraints>
  <resolvers><ibiblio name="repository" m2compatible="true" descriptor="required" timeoutConstraint="limits" {root}/></resolvers>
</ivysettings>
"""
_PACKAGES = """<ivy-module version="2.0">
  <info organisation="localkafka" module="wanted" revision="1"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    {wanted}
    {excluded}
  </dependencies>
</ivy-module>
"""

# The resolver sends a password only to a server that names itself as it was told to expect: these are Nexus and Artifactory.
_REALMS = ("Sonatype Nexus Repository Manager", "Artifactory Realm")

# What the resolver prints, what that means and what to do, and whether a cache of half the files may be the reason.
_EXPLANATIONS = (
    (
        r"proxy requires authentication|Proxy Authentication Required|HTTP/1\.1 407",
        "the proxy asks for a user and a password: set HTTPS_PROXY (or HTTP_PROXY) to http://USER:PASSWORD@HOST:PORT",
        False,
    ),
    (r"ERROR: Unauthorized url=", "{repository} asks for a login: set {setting} to https://USER:PASSWORD@HOST/PATH", False),
    (r"ERROR: Forbidden url=", "{repository} refuses to send it (403): ask who runs it, or set {setting} to another mirror", False),
    (
        r"PKIX|SSLHandshakeException|SSLException",
        "Java does not trust the certificate of {repository}, or of a proxy before it: "
        "set JAVA_TOOL_OPTIONS to -Djavax.net.ssl.trustStore=FILE with your authority in it",
        False,
    ),
    (
        r"Host (?P<host>\S+) not found|java\.net\.\w+: (?P<why>[^)\n]+)|Unable to tunnel through proxy",
        "no connection to {repository}{why}. Behind a proxy set HTTPS_PROXY; where there is a mirror, {setting}",
        False,
    ),
    (r"No space left on device", "the disk is full", False),
    (
        r"SERVER ERROR: (?P<why>.+?) url=",
        "{repository} has trouble{why}: try again later, or set {setting} to another mirror",
        False,
    ),
    (
        r"\[FAILED *\] (?P<what>\S+): (invalid|Downloaded)|descriptor: (?P<url>\S+): (invalid|Downloaded)",
        "{what} came broken from {repository}: try again, or set {setting} to another mirror",
        True,
    ),
    (r"module not found: (?P<what>\S+)", "{repository} has no {what}: set {setting} to a mirror that has it", True),
    (r"\[NOT FOUND *\] (?P<what>\S+)", "{repository} has no {what}: set {setting} to a mirror that has it", True),
)


class FetchError(RuntimeError):
    """Packages could not be fetched. The message is one line. `again` is false where a second try would end like the first."""

    def __init__(self, message: str, again: bool = False) -> None:
        """`again` is for an error that a cache of half the files may be the reason of."""
        super().__init__(message)
        self.again = again


@dataclass(frozen=True)
class Package:
    """What is fetched, in Maven's words."""

    group: str
    name: str
    version: str = ""


def resolve(wanted: Sequence[Package], excluded: Sequence[Package], work: Path, java: Java) -> None:
    """Fill `work/jars` with the jars of packages and of all that they need.

    What is downloaded stays in `work/cache` for a next try; the resolver's output is in `work/resolver.log`.
    Errors: FetchError.
    """
    shutil.rmtree(work / "jars", ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    try:
        repository, network = find_repository(), network_options()
    except ValueError as error:
        raise FetchError(str(error)) from None
    with Guard() as guard:
        command = _command(guard.folder, wanted, excluded, work, repository, network)
        try:
            run = guard.run([str(java.path), *command], env=java.environment(), cwd=guard.folder, merge=True, timeout=_LIMIT)
        except subprocess.TimeoutExpired as error:
            _log(work, str(error.output))
            raise FetchError(
                f"{repository} did not send everything within {_LIMIT:.0f} s; a next try goes on from there. "
                f"The resolver's output: {_log_path(work)}"
            ) from None
    _log(work, run.stdout)
    if run.returncode != 0:
        raise _explained(run.stdout, repository, work)
    _check_jars(work, repository)


def _command(
    folder: Path, wanted: Sequence[Package], excluded: Sequence[Package], work: Path, repository: Repository, network: Sequence[str]
) -> list[str]:
    """Arguments for Java. Options go through a file that nobody else can read, as they may hold passwords."""
    packages, settings, options = folder / "packages.xml", folder / "settings.xml", folder / "options"
    packages.write_text(_packages(wanted, excluded))
    settings.write_text(_settings(repository, work))
    flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Divy.default.ivy.user.dir={work}", *network]
    options.write_text("".join(f"{_quoted(flag)}\n" for flag in flags))
    pattern = f"{work}/jars/[organization]_[artifact]-[revision](-[classifier]).[ext]"
    files = ["-settings", str(settings), "-ivy", str(packages), "-retrieve", pattern]
    return [f"@{options}", "-jar", str(_ivy()), "-verbose", "-confs", "default", *files, "-types", "jar", "bundle"]


def _quoted(flag: str) -> str:
    escaped = flag.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _packages(wanted: Sequence[Package], excluded: Sequence[Package]) -> str:
    return _PACKAGES.format(
        wanted="\n    ".join(
            f'<dependency org={quoteattr(p.group)} name={quoteattr(p.name)} rev={quoteattr(p.version)} conf="default->default"/>'
            for p in wanted
        ),
        excluded="\n    ".join(f"<exclude org={quoteattr(p.group)} module={quoteattr(p.name)}/>" for p in excluded),
    )


def _settings(repository: Repository, work: Path) -> str:
    credentials = ""
    if repository.user is not None:
        login = f"username={quoteattr(repository.user)} passwd={quoteattr(repository.password or '')}"
        where = f"host={quoteattr(repository.host)}"
        credentials = "\n  ".join(f"<credentials {where} realm={quoteattr(realm)} {login}/>" for realm in _REALMS)
    return _SETTINGS.format(
        cache=quoteattr(str(work / "cache")),
        resolution=quoteattr(str(work / "resolution")),
        credentials=credentials,
        connect_limit=_CONNECT_LIMIT,
        read_limit=_READ_LIMIT,
        root="" if repository.url is None else f"root={quoteattr(repository.url)}",
    )


def _ivy() -> Path:
    found = sorted((spark_home() / "jars").glob("ivy-[0-9]*.jar"))
    if not found:
        raise FetchError(f"this PySpark has no Apache Ivy in {spark_home() / 'jars'}: install the one of constraints.txt")
    return found[-1]


def spark_home() -> Path:
    """The PySpark of this interpreter, whatever SPARK_HOME says. Errors: FetchError."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FetchError("PySpark, which brings what fetches Kafka, is not installed: install kafka-quota-proxy[demo]")
    return Path(spec.origin).parent


def _log_path(work: Path) -> Path:
    return work / "resolver.log"


def _log(work: Path, printed: str) -> None:
    _log_path(work).write_text(printed)


def _check_jars(work: Path, repository: Repository) -> None:
    """Raise FetchError for a broken jar: the resolver compares checksums when it fetches one, and if the repository has them."""
    for jar in sorted((work / "jars").iterdir()):
        if not is_complete(jar):
            shutil.rmtree(work / "cache")
            raise FetchError(f"{jar.name} came broken from {repository}: try again, or set {SETTING} to another mirror", again=True)


def is_complete(jar: Path) -> bool:
    """Whether a jar can be read to its end and its checksums are right."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, zlib.error, EOFError):
        return False


def _explained(printed: str, repository: Repository, work: Path) -> FetchError:
    """The first line of `_EXPLANATIONS` that fits what the resolver printed, as an error."""
    for pattern, text, again in _EXPLANATIONS:
        if found := re.search(pattern, printed):
            named = found.groupdict()
            why = named.get("why") or (f"no host {named['host']}" if named.get("host") else "")
            what = text.format(
                repository=repository, setting=SETTING, why=f" ({why})" if why else "", what=named.get("what") or named.get("url")
            )
            return FetchError(f"{what}. The resolver's output: {_log_path(work)}", again)
    last = (printed.strip().splitlines() or ["nothing"])[-1]
    return FetchError(f"the resolver ended with: {last}. Its output: {_log_path(work)}", again=True)
