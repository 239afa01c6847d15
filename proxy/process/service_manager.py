"""Tells systemd how far the proxy is (sd_notify): a unit of `Type=notify` counts as started once clients can be served.

In: a state, such as `READY=1`. Out: a datagram to the socket that `NOTIFY_SOCKET` names, nothing where it names none."""

from __future__ import annotations

import contextlib
import os
import socket


def tell_service_manager(state: str) -> None:
    """Never waits, never fails: without an answer the unit's own time limits hold."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if not name.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.sendto(state.encode(), name if name[0] == "/" else "\0" + name[1:])
