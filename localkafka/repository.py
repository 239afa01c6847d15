"""Finds out from which repository Maven packages are fetched, and through which HTTP proxy.

In: $KAFKA_QUOTA_PROXY_MAVEN_REPOSITORY, HTTP_PROXY and similar variables, the options of Java and Maven, Maven's settings.xml.
Out: a `Repository`, and options for a JVM.
Leaves to others: fetching (resolver.py). Local Maven repositories are never used: `~/.m2/repository` may have poms without their
jars.
"""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment
from xml.etree import ElementTree

SETTING = "KAFKA_QUOTA_PROXY_MAVEN_REPOSITORY"

# What Java reads by itself.
_JAVA_OPTIONS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_NETWORK_OPTION = re.compile(r"-D(https?\.(proxy|nonProxy)|socksProxy|javax\.net\.ssl\.|java\.net\.)")


@dataclass(frozen=True)
class Repository:
    """A repository in Maven's layout. No URL means Maven Central; user and password are for HTTP authentication."""

    url: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """For messages: no password."""
        return self.url or "Maven Central"

    @property
    def host(self) -> str:
        """The host of the URL; empty where there is none."""
        return urlsplit(self.url or "").hostname or ""


def find_repository() -> Repository:
    """What the setting says, else the mirror of Maven Central in Maven's settings, else Maven Central. Errors: ValueError."""
    if text := os.environ.get(SETTING):
        return _parse_repository(text)
    return _maven_mirror() or Repository()


def network_options() -> list[str]:
    """Options with which a JVM goes through the proxies that are set, each from the first place that names one.

    The places: Java's own options, HTTP_PROXY and similar variables, MAVEN_OPTS, an active `<proxy>` of Maven's settings.
    Passwords are among the options: they are to be handed over in a file. Errors: ValueError for a proxy that is no URL.
    """
    if any("proxyHost" in option or "socksProxyHost" in option for option in _options(*_JAVA_OPTIONS)):
        return []
    maven = [option for option in _options("MAVEN_OPTS") if _NETWORK_OPTION.match(option)]
    proxies = list(_environment_proxies())
    if not proxies and not any("roxyHost" in option for option in maven):
        proxies = list(_maven_proxies())
    return [*maven, *proxies, *(_AUTHENTICATE if proxies else ())]


# Without it, Java does not send a password to a proxy for HTTPS.
_AUTHENTICATE = ("-Djdk.http.auth.tunneling.disabledSchemes=",)


def _options(*names: str) -> list[str]:
    """The single options in variables that hold several."""
    found = []
    for name in names:
        try:
            found += shlex.split(os.environ.get(name, ""))
        except ValueError:
            raise ValueError(f"{name} has a quote that is not closed") from None
    return found


def _parse_repository(text: str) -> Repository:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https", "file") or (parts.scheme != "file" and not parts.hostname):
        raise ValueError(f"{SETTING} is no URL that begins with https://, http:// or file://")
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return Repository(f"{address.rstrip('/')}/", _unquoted(parts.username), _unquoted(parts.password))


def _unquoted(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _environment_proxies() -> Iterator[str]:
    """What HTTP_PROXY and similar variables say, in Java's words."""
    found = getproxies_environment()
    for scheme in ("http", "https"):
        if text := found.get(scheme) or found.get("all"):
            yield from _proxy_options(scheme, _parse_proxy(text, f"{scheme.upper()}_PROXY"))
    if "http" in found or "https" in found or "all" in found:
        # An empty list, as without one Java goes to this machine directly.
        yield f"-Dhttp.nonProxyHosts={'|'.join(_direct_hosts(found.get('no', '')))}"


def _parse_proxy(text: str, name: str) -> SplitResult:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port
        usable = False
    if not usable:
        raise ValueError(f"{name} is no URL of a proxy, as http://proxy.example.com:3128 is one")
    return parts


def _proxy_options(scheme: str, proxy: SplitResult) -> Iterator[str]:
    if proxy.scheme.startswith("socks"):
        yield f"-DsocksProxyHost={proxy.hostname}"
        yield f"-DsocksProxyPort={proxy.port or 1080}"
        return
    yield f"-D{scheme}.proxyHost={proxy.hostname}"
    yield f"-D{scheme}.proxyPort={proxy.port or 80}"
    if proxy.username:  # the resolver reads these for HTTPS, too
        yield f"-Dhttp.proxyUser={_unquoted(proxy.username)}"
        yield f"-Dhttp.proxyPassword={_unquoted(proxy.password) or ''}"


def _direct_hosts(no_proxy: str) -> Iterator[str]:
    """The names of NO_PROXY as patterns of Java's: a domain stands for all names in it, too."""
    for entry in no_proxy.replace(" ", ",").split(","):
        host = re.sub(r":\d+$", "", entry).lstrip("*").lstrip(".")
        if entry == "*":
            yield "*"
        elif host:
            yield from (host, f"*.{host}")


def _maven_settings() -> ElementTree.Element | None:
    """Maven's settings of this user, without namespaces and with `${env.NAME}` filled in; None where there are none to read."""
    file = Path(os.environ.get("HOME") or Path.home(), ".m2", "settings.xml")
    try:
        root = ElementTree.parse(file).getroot()  # noqa: S314 - the user's own file
    except (OSError, ElementTree.ParseError):
        return None
    for element in root.iter():
        element.tag = str(element.tag).rpartition("}")[2]
        text = (element.text or "").strip()
        element.text = re.sub(r"\$\{env\.(\w+)\}", lambda found: os.environ.get(found[1], ""), text)
    return root


def _maven_mirror() -> Repository | None:
    settings = _maven_settings()
    for mirror in settings.iterfind("mirrors/mirror") if settings is not None else ():
        of = (mirror.findtext("mirrorOf") or "").replace(" ", "").split(",")
        url = mirror.findtext("url") or ""
        stands_for_central = not {"*", "external:*", "central"}.isdisjoint(of) and "!central" not in of
        if stands_for_central and mirror.findtext("blocked") != "true" and url.startswith(("http://", "https://", "file:")):
            return _with_login(_parse_repository(url), settings, mirror.findtext("id"))
    return None


def _with_login(repository: Repository, settings: ElementTree.Element | None, mirror_id: str | None) -> Repository:
    for server in settings.iterfind("servers/server") if settings is not None else ():
        if server.findtext("id") == mirror_id and server.findtext("username"):
            return replace(repository, user=server.findtext("username"), password=server.findtext("password") or "")
    return repository


def _maven_proxies() -> Iterator[str]:
    """The first active proxy, for both schemes, as Maven takes it."""
    settings = _maven_settings()
    for proxy in settings.iterfind("proxies/proxy") if settings is not None else ():
        host = proxy.findtext("host")
        if proxy.findtext("active", "true") == "true" and host:
            for scheme in ("http", "https"):
                yield f"-D{scheme}.proxyHost={host}"
                yield f"-D{scheme}.proxyPort={proxy.findtext('port') or 8080}"
            if user := proxy.findtext("username"):
                yield f"-Dhttp.proxyUser={user}"
                yield f"-Dhttp.proxyPassword={proxy.findtext('password') or ''}"
            yield f"-Dhttp.nonProxyHosts={proxy.findtext('nonProxyHosts') or ''}"
            return
