"""What systemd is told, at a socket of its own as it makes one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from proxy.process.service_manager import tell_service_manager


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_the_socket_that_is_named_is_told(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(tmp_path / "notify") if kind == "path" else f"@{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1) if kind == "abstract" else name)
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        tell_service_manager("READY=1")
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("name", [None, "", "vsock:2:1", "/not/there", "/" + "long" * 100])
def test_without_one_nothing_happens(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if name is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", name)
    tell_service_manager("READY=1")
