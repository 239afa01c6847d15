"""A real Kubernetes API server and its etcd, on free loopback ports. In: their programs, a folder. Out: a kubeconfig. Alone it
admits and stores objects, and nothing comes of them; `run` adds what makes something of them."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from ssl import CERT_NONE, SSLContext, create_default_context
from types import TracebackType
from typing import IO, Any, Self

import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from localkafka.ports import free_ports

READY_LIMIT = 120.0
TOKEN = "test-admin"


class Part:
    """One process, whose output goes to a file."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        self._file: IO[bytes] = log.open("wb")
        self._process = subprocess.Popen(command, stdout=self._file, stderr=subprocess.STDOUT, cwd=log.parent)

    def alive(self) -> bool:
        return self._process.poll() is None

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(90)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._file.close()


class ApiServer:
    """A context manager. `programs` has `etcd`, `kube-apiserver` and `kubectl`; `flags` are further ones of the API server."""

    def __init__(self, programs: dict[str, Path], folder: Path, *flags: str) -> None:
        self._programs, self._folder, self._flags = programs, folder, flags
        self.kubeconfig, self.accounts_key = folder / "kubeconfig", folder / "accounts.key"
        self.parts: list[Part] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def _start(self) -> None:
        clients, peers, port = free_ports(3)
        folder, etcd = self._folder, f"http://127.0.0.1:{clients}"
        key = self.accounts_key
        made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        (folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        self.url = f"https://127.0.0.1:{port}"
        self.kubeconfig.write_text(yaml.safe_dump(self._config()))
        self._run(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=default=http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder / 'certificates'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            *self._flags,
        )
        self.wait(lambda: self.status("/readyz") == 200, "the API server to be ready")

    def _run(self, name: str, *flags: str) -> None:
        self.parts.append(Part([str(self._programs[name]), *flags], self._folder / f"{name}.log"))

    def run(self, name: str, program: Path, *flags: str) -> None:
        """A further part of the control plane; it ends with the others, before them."""
        self._programs = {**self._programs, name: program}
        self._run(name, *flags)

    def _stop(self) -> None:
        for part in reversed(self.parts):  # etcd last: an API server without it would not end
            part.stop()

    def _config(self) -> dict[str, Any]:
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }

    def status(self, path: str) -> int:
        context: SSLContext = create_default_context()
        context.check_hostname, context.verify_mode = False, CERT_NONE
        try:
            with urllib.request.urlopen(self.url + path, context=context, timeout=60) as answer:  # noqa: S310
                return int(answer.status)
        except OSError:
            return 0

    def wait(self, condition: Any, what: str, limit: float = READY_LIMIT) -> Any:
        """What the condition gives once it is true. These are real processes, so it looks again and again."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if found := condition():
                return found
            for part in self.parts:
                assert part.alive(), f"a part ended: {part.tail()}"
            time.sleep(0.1)
        raise AssertionError(f"waited {limit:g} s in vain for {what}:\n" + "\n".join(part.tail() for part in self.parts))

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [
            self._programs["kubectl"],
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self._folder / 'cache'}",
            *arguments,
        ]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done

    def get(self, *what: str) -> list[dict[str, Any]]:
        """Objects, in full."""
        text = self.kubectl("get", *what, "--output=json").stdout
        found = json.loads(text) if text else {"items": []}
        items: list[dict[str, Any]] = found.get("items", [found])
        return items

    def apply(self, *manifests: dict[str, Any]) -> None:
        self.kubectl("apply", "--server-side", "--filename=-", stdin="---\n".join(yaml.safe_dump(item) for item in manifests))

    def define(self, *files: Path) -> None:
        """Custom resource definitions, which it knows from now on."""
        names = [f"--filename={file}" for file in files]
        self.kubectl("apply", "--server-side", *names)
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
