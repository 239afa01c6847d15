"""How to get in. In: the properties file that Kafka's own tools take (`--command-config`), with librdkafka's names too. Out: how to
reach brokers, as whom; `AccessError` for what cannot be used, without the secrets in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import javaproperties
from pydantic import ValidationError

from proxy.config.upstream import UpstreamSasl, UpstreamTls
from proxy.net.tls import TlsError, client_context
from proxy.net.upstream import Upstream, no_tls

TIMEOUT: Final = 20.0
"""Seconds for a connection to come up, and for each answer."""
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


class AccessError(Exception):
    """The file cannot be used; the message says why."""


def upstream_of(path: Path | None) -> Upstream:
    """The way in that a properties file describes; None: plain text, as nobody."""
    if path is None:
        return Upstream(TIMEOUT)
    try:
        given = javaproperties.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise AccessError(f"{path}: cannot be read: {e.strerror}") from None
    except (UnicodeDecodeError, javaproperties.InvalidUEscapeError):
        raise AccessError(f"{path}: is no properties file in UTF-8") from None
    try:
        return _upstream(given)
    except (AccessError, TlsError) as e:
        raise AccessError(f"{path}: {e}") from None


def _upstream(given: dict[str, str]) -> Upstream:
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise AccessError(f"`security.protocol` {protocol!r}: one of {', '.join(PROTOCOLS)} is right")
    identity = _identity(given) if protocol.startswith("SASL_") else None
    if not protocol.endswith("SSL"):
        return Upstream(TIMEOUT, no_tls, identity)
    context = client_context(_tls(given), "ssl")
    return Upstream(TIMEOUT, lambda: context, identity)


def _identity(given: dict[str, str]) -> UpstreamSasl:
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", ""))
    if mechanism not in MECHANISMS:
        raise AccessError(f"`sasl.mechanism` {mechanism!r}: one of {', '.join(MECHANISMS)} is right")
    jaas = {name: re.sub(r"\\(.)", r"\1", text) for name, text in _JAAS.findall(given.get("sasl.jaas.config", ""))}
    username = given.get("sasl.username", jaas.get("username"))
    password = given.get("sasl.password", jaas.get("password"))
    if not username or password is None:
        raise AccessError('`sasl.jaas.config` has to name username="…" and password="…", or `sasl.username` and `sasl.password` do')
    fields: dict[str, Any] = {"mechanism": mechanism, "username": username, "password": password}
    return UpstreamSasl(**fields)


def _tls(given: dict[str, str]) -> UpstreamTls:
    for what in ("truststore", "keystore"):
        kind = given.get(f"ssl.{what}.type", "JKS").upper()
        if f"ssl.{what}.location" in given and kind != "PEM":
            raise AccessError(
                f"`ssl.{what}.type` {kind}: only PEM can be read here; `ssl.{what}.type=PEM` with such a file is right"
            )
    if "ssl.key.password" in given:
        raise AccessError("`ssl.key.password`: a key with a password cannot be read here; give one without")
    own = given.get("ssl.keystore.location")
    try:
        return UpstreamTls(
            ca_file=given.get("ssl.truststore.location", given.get("ssl.ca.location")),
            cert_file=given.get("ssl.certificate.location", own),
            key_file=given.get("ssl.key.location", own),
            verify_hostname=given.get("ssl.endpoint.identification.algorithm", "https") not in ("", "none"),
        )
    except ValidationError:
        raise AccessError("`ssl.certificate.location` and `ssl.key.location` belong together: set both or none") from None
