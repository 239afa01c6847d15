"""How commands get in. In: the properties file that Kafka's own tools take (`--command-config`). Out: how to reach brokers, as
whom; `AccessError` for what cannot be used, without the secrets in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from configfile.access import Access, AccessError, access_of
from proxy.config.upstream import UpstreamSasl, UpstreamTls
from proxy.tls import TlsError, client_context
from proxy.upstream.connector import Upstream, no_tls

__all__ = ["AccessError", "upstream_of"]

TIMEOUT: Final = 20.0
"""Seconds for a connection to come up, and for each answer."""


def upstream_of(path: Path | None) -> Upstream:
    """How to connect, as a properties file describes it; None: plain text, without a login."""
    if path is None:
        return Upstream(TIMEOUT)
    try:
        return _upstream(access_of(path))
    except TlsError as e:
        raise AccessError(f"{path}: {e}") from None


def _upstream(access: Access) -> Upstream:
    identity = None
    if access.login is not None:
        fields: dict[str, Any] = {
            "mechanism": access.login.mechanism,
            "username": access.login.username,
            "password": access.login.password,
        }
        identity = UpstreamSasl(**fields)
    if access.tls is None:
        return Upstream(TIMEOUT, no_tls, identity)
    tls = UpstreamTls(
        ca_file=access.tls.ca_file,
        cert_file=access.tls.cert_file,
        key_file=access.tls.key_file,
        verify_hostname=access.tls.verify_hostname,
    )
    context = client_context(tls, "ssl")
    return Upstream(TIMEOUT, lambda: context, identity)
