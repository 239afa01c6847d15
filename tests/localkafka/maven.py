"""A repository in Maven's layout on loopback, which is a proxy for HTTP, too; and jars that are small.

In: packages, and what is to go wrong. Out: a URL, and the list of what was asked for.
"""

import base64
import hashlib
import io
import socket
import ssl
import threading
import zipfile
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>
<dependencies>{dependencies}</dependencies></project>"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
Coordinates = tuple[str, str, str]


def small_jar(name: str) -> bytes:
    """A jar with one file, long enough to be cut."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as jar:
        jar.writestr(zipfile.ZipInfo(f"{name}.txt"), name * 1000)  # the same bytes at any time
    return file.getvalue()


def pom(coordinates: Coordinates, needs: Iterable[Coordinates] = ()) -> bytes:
    """What Maven knows a package by."""
    group, name, version = coordinates
    dependencies = "".join(DEPENDENCY.format(*each) for each in needs)
    return POM.format(group=group, name=name, version=version, dependencies=dependencies).encode()


def path_of(coordinates: Coordinates, ending: str) -> str:
    """Where a file of a package is, below the root of a repository."""
    group, name, version = coordinates
    return f"{group.replace('.', '/')}/{name}/{version}/{name}-{version}{ending}"


class MavenServer:
    """Serves `files` by path at `url`. As a proxy, it serves them for every host, and connects every name to `tunnel_to`."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut: set[str] = set()
        """Paths of which only the first half is sent."""
        self.login: str | None = None
        """`user:password` that it wants, as a repository or as a proxy."""
        self.status: int | None = None
        """What it answers instead, whatever it is asked."""
        self.gate: threading.Event | None = None
        """What it waits for before it answers."""
        self.tunnel_to: int | None = None
        self.asked: list[str] = []
        """What it was asked for, as the request line says it: a proxy is asked for whole URLs."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.port: int = self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/maven"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def with_tls(self, context: ssl.SSLContext) -> Self:
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        return self

    def add(
        self, coordinates: Coordinates, jar: bytes | None = None, needs: Iterable[Coordinates] = (), checksums: bool = True
    ) -> None:
        """Put a package there."""
        files = {".pom": pom(coordinates, needs), ".jar": jar if jar is not None else small_jar(coordinates[1])}
        for ending, data in files.items():
            self.files[path_of(coordinates, ending)] = data
            if checksums:
                self.files[path_of(coordinates, f"{ending}.sha1")] = hashlib.sha1(data).hexdigest().encode()  # noqa: S324


def _handler(server: MavenServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.command == "GET":
                server.asked.append(self.path)
            if server.gate is not None:
                server.gate.wait()
            as_proxy = self.path.startswith("http:")
            if not self._may_pass(as_proxy):
                return
            path = self.path.partition("/maven/")[2]
            data = server.files.get(path)
            status = server.status or (200 if data is not None else 404)
            body = (data or b"") if status == 200 else b"<html>no</html>"
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body[: len(body) // 2] if path in server.cut else body)

        do_HEAD = do_GET  # noqa: N815

        def do_CONNECT(self) -> None:
            server.asked.append(f"CONNECT {self.path}")
            if not self._may_pass(as_proxy=True):
                return
            assert server.tunnel_to is not None
            self.send_response(200)
            self.end_headers()
            with socket.create_connection(("127.0.0.1", server.tunnel_to)) as other:
                back = threading.Thread(target=_pump, args=(other, self.connection))
                back.start()
                _pump(self.connection, other)
                back.join()

        def _may_pass(self, as_proxy: bool) -> bool:
            header = self.headers.get("Proxy-Authorization" if as_proxy else "Authorization", "")
            if server.login is None or header == f"Basic {base64.b64encode(server.login.encode()).decode()}":
                return True
            self.send_response(407 if as_proxy else 401)
            self.send_header("Proxy-Authenticate" if as_proxy else "WWW-Authenticate", 'Basic realm="Artifactory Realm"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return False

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Handler


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until there are no more."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one side is gone
