"""localkafka.repository and localkafka.resolver: mirrors and proxies, with the real resolver; what is said when it fails."""

import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from maven import MavenServer, path_of

from localkafka import FetchError, jars
from localkafka.java import find_java
from localkafka.repository import SETTING, Repository, find_repository, network_options
from tests.certs import Authority

NOWHERE = "http://maven.invalid/maven"  # only a proxy knows where that is
CLIENT = ("org.apache.kafka", "kafka-clients", "4.2.0")


def fetch() -> Path:
    return jars.fetch("4.2.0", find_java())


def maven_settings(home: Path, text: str) -> None:
    (home / ".m2").mkdir()
    (home / ".m2" / "settings.xml").write_text(f'<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0">{text}</settings>')


class TestProxy:
    def test_http_proxy_with_a_password(self, maven: MavenServer, monkeypatch: pytest.MonkeyPatch) -> None:
        maven.login = 'a b:c"d\\'
        monkeypatch.setenv(SETTING, NOWHERE)
        monkeypatch.setenv("HTTP_PROXY", f"http://a%20b:c%22d%5C@127.0.0.1:{maven.port}")
        assert fetch().is_dir()
        assert all(path.startswith(f"{NOWHERE}/") for path in maven.asked)

    def test_https_proxy(self, maven: MavenServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clean_home: Path) -> None:
        authority = Authority(tmp_path)
        pair = authority.server("maven", "maven.invalid")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        keytool = ["keytool", "-importcert", "-noprompt", "-storepass", "changeit", "-keystore", str(tmp_path / "trusted")]
        subprocess.run([*keytool, "-file", str(authority.file)], check=True, capture_output=True)
        with MavenServer().with_tls(context) as behind:
            behind.files, maven.tunnel_to, maven.login = maven.files, behind.port, "alice:secret"
            monkeypatch.setenv(SETTING, NOWHERE.replace("http:", "https:"))
            monkeypatch.setenv("HTTPS_PROXY", f"http://alice:secret@127.0.0.1:{maven.port}")
            with pytest.raises(FetchError, match="does not trust the certificate of https://maven"):
                fetch()
            trust = f"-Djavax.net.ssl.trustStore={tmp_path}/trusted -Djavax.net.ssl.trustStorePassword=changeit"
            monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={clean_home} {trust}")
            assert fetch().is_dir()
            assert behind.asked
        assert set(maven.asked) == {"CONNECT maven.invalid:443"}

    def test_a_host_of_no_proxy_is_asked_directly(self, maven: MavenServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        with pytest.raises(FetchError, match="no connection to"):
            fetch()
        monkeypatch.setenv("NO_PROXY", "example.com,127.0.0.1")
        assert fetch().is_dir()
        assert all(path.startswith("/maven/") for path in maven.asked)

    @pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "MAVEN_OPTS"])
    def test_that_of_javas_or_mavens_options(self, maven: MavenServer, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        monkeypatch.setenv(SETTING, NOWHERE)
        monkeypatch.setenv(name, f"-Xmx200m -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={maven.port} -Dhttp.nonProxyHosts=")
        assert fetch().is_dir()
        assert all(path.startswith(f"{NOWHERE}/") for path in maven.asked)

    def test_that_of_mavens_settings(self, maven: MavenServer, monkeypatch: pytest.MonkeyPatch, clean_home: Path) -> None:
        maven.login = "alice:secret"
        monkeypatch.setenv(SETTING, NOWHERE)
        monkeypatch.setenv("PASSWORD", "secret")
        login = "<username>alice</username><password>${env.PASSWORD}</password>"
        maven_settings(
            clean_home,
            "<proxies><proxy><active>false</active><host>other</host></proxy>"
            f"<proxy><host>127.0.0.1</host><port>{maven.port}</port>{login}</proxy></proxies>",
        )
        assert fetch().is_dir()

    @pytest.mark.parametrize(
        ("variables", "options"),
        [
            ({}, []),
            ({"MAVEN_OPTS": "-Xmx4g -Djavax.net.ssl.trustStore='/a b'"}, ["-Djavax.net.ssl.trustStore=/a b"]),
            (
                {"https_proxy": "proxy.example.com:3128", "no_proxy": "localhost, .corp.example.com:443,*"},
                [
                    "-Dhttps.proxyHost=proxy.example.com",
                    "-Dhttps.proxyPort=3128",
                    "-Dhttp.nonProxyHosts=localhost|*.localhost|corp.example.com|*.corp.example.com|*",
                    "-Djdk.http.auth.tunneling.disabledSchemes=",
                ],
            ),
            ({"HTTPS_PROXY": "http://other:1", "JDK_JAVA_OPTIONS": "-Dhttps.proxyHost=proxy"}, []),
            (
                {"ALL_PROXY": "socks5h://127.0.0.1"},
                [
                    *(["-DsocksProxyHost=127.0.0.1", "-DsocksProxyPort=1080"] * 2),
                    "-Dhttp.nonProxyHosts=",
                    "-Djdk.http.auth.tunneling.disabledSchemes=",
                ],
            ),
        ],
    )
    @pytest.mark.usefixtures("clean_home")
    def test_in_javas_words(self, variables: dict[str, str], options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert network_options() == options


class TestMirror:
    def test_that_of_mavens_settings(self, maven: MavenServer, monkeypatch: pytest.MonkeyPatch, clean_home: Path) -> None:
        monkeypatch.delenv(SETTING)
        maven.login = "alice:secret"
        maven_settings(
            clean_home,
            "<mirrors><mirror><id>a</id><mirrorOf>other</mirrorOf><url>http://other</url></mirror>"
            f"<mirror><id>b</id><mirrorOf>*,!snapshots</mirrorOf><url>{maven.url}</url></mirror></mirrors>"
            "<servers><server><id>b</id><username>alice</username><password>secret</password></server></servers>",
        )
        assert fetch().is_dir()

    def test_one_that_wants_a_login(self, maven: MavenServer, monkeypatch: pytest.MonkeyPatch) -> None:
        maven.login = "alice:sec ret"
        with pytest.raises(FetchError, match=f"asks for a login: set {SETTING} to"):
            fetch()
        monkeypatch.setenv(SETTING, maven.url.replace("//", "//alice:sec%20ret@"))
        assert fetch().is_dir()

    def test_a_folder(self, maven: MavenServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for path, data in maven.files.items():
            (tmp_path / "mirror" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "mirror" / path).write_bytes(data)
        monkeypatch.setenv(SETTING, f"file://{tmp_path}/mirror")
        assert fetch().is_dir()
        assert maven.asked == []

    def test_the_setting_is_before_mavens(self, clean_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert find_repository() == Repository()
        maven_settings(clean_home, "<mirrors><mirror><mirrorOf>central</mirrorOf><url>https://maven</url></mirror></mirrors>")
        assert find_repository() == Repository("https://maven/")
        monkeypatch.setenv(SETTING, "https://own/path/")
        assert find_repository() == Repository("https://own/path/")

    @pytest.mark.parametrize("text", ["<mirrors>", "<mirrors/>", "<mirrors><mirror><mirrorOf>*</mirrorOf></mirror></mirrors>"])
    def test_settings_of_maven_that_say_nothing_are_none(self, clean_home: Path, text: str) -> None:
        maven_settings(clean_home, text)
        assert find_repository() == Repository()


Break = Callable[[MavenServer, pytest.MonkeyPatch], None]


def _proxy_with_password(maven: MavenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    maven.login = "alice:secret"
    monkeypatch.setenv("HTTP_PROXY", f"http://alice:wrong@127.0.0.1:{maven.port}")
    monkeypatch.setenv(SETTING, NOWHERE)


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda maven, _: setattr(maven, "status", 503), "has trouble (Service Unavailable): try again later"),
        (lambda maven, _: setattr(maven, "status", 403), "refuses to send it (403): ask who runs it"),
        (lambda maven, _: maven.files.pop(path_of(CLIENT, ".pom")) and None, "has no org.apache.kafka#kafka-clients;4.2.0"),
        (
            lambda _, patch: patch.setenv(SETTING, NOWHERE),
            "no connection to http://maven.invalid/maven/ (no host maven.invalid). Behind a",
        ),
        (lambda _, patch: patch.setenv(SETTING, "http://127.0.0.1:1"), "no connection to http://127.0.0.1:1/ (Connection refused)"),
        (_proxy_with_password, "the proxy asks for a user and a password: set HTTPS_PROXY"),
        (lambda _, patch: patch.setenv(SETTING, "maven.example.com"), f"{SETTING} is no URL that begins with https://"),
        (lambda _, patch: patch.setenv("HTTPS_PROXY", "http://alice:secret@proxy:port"), "HTTPS_PROXY is no URL of a proxy"),
        (lambda _, patch: patch.setenv("MAVEN_OPTS", "-Da='b"), "MAVEN_OPTS has a quote that is not closed"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(
    maven: MavenServer, monkeypatch: pytest.MonkeyPatch, break_it: Break, said: str
) -> None:
    break_it(maven, monkeypatch)
    with pytest.raises(FetchError) as raised:
        fetch()
    message = str(raised.value)
    assert message.startswith("Apache Kafka 4.2.0 could not be fetched: ")
    assert said in message
    assert "\n" not in message
    assert "secret" not in message
