"""Why a proxy cannot start."""

from __future__ import annotations

import errno
import os

from proxy.config.models import Settings


class StartError(Exception):
    """The proxy cannot start; the message says why and what would help."""


def reason_of(error: OSError) -> str:
    """What the system says."""
    return os.strerror(error.errno) if error.errno else str(error)


def no_address(settings: Settings, name: str, error: OSError) -> str:
    """What to do when a listener cannot have its address."""
    listener = settings.listeners[name]
    where = f"`{settings.key_of(name)}.bootstrap`" + (" or --listen" if name == "main" else "")
    text = f"cannot listen at {listener.bootstrap}: {reason_of(error)}; set {where} to a free address"
    if error.errno != errno.EADDRINUSE:
        return text
    if listener.reuse_port:
        return f"{text}; the process that listens there does not set `reuse_port`, or runs as another user"
    return f"{text}, or share it: `--reuse-port` for all proxies there"
