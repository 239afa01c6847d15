"""How to get in. In: the properties file that Kafka's own tools take (`--command-config`), with librdkafka's names too. Out:
`Access`; `AccessError` for what cannot be used, without the secrets in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import javaproperties

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


class AccessError(Exception):
    """The file cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who, and the proof of it."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files; None: those of the system, and none of one's own."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Access:
    """`login` None: without authentication; `tls` None: without TLS."""

    login: Login | None = None
    tls: Certificates | None = None


def access_of(path: Path) -> Access:
    """The way in that a properties file describes."""
    try:
        given = javaproperties.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise AccessError(f"{path}: cannot be read: {e.strerror}") from None
    except (UnicodeDecodeError, javaproperties.InvalidUEscapeError):
        raise AccessError(f"{path}: is not a properties file in UTF-8") from None
    try:
        return _access(given)
    except AccessError as e:
        raise AccessError(f"{path}: {e}") from None


def _access(given: dict[str, str]) -> Access:
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise AccessError(f"`security.protocol` {protocol!r}: must be one of {', '.join(PROTOCOLS)}")
    login = _login(given) if protocol.startswith("SASL_") else None
    return Access(login, _tls(given) if protocol.endswith("SSL") else None)


def _login(given: dict[str, str]) -> Login:
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", ""))
    if mechanism not in MECHANISMS:
        raise AccessError(f"`sasl.mechanism` {mechanism!r}: must be one of {', '.join(MECHANISMS)}")
    jaas = {name: re.sub(r"\\(.)", r"\1", text) for name, text in _JAAS.findall(given.get("sasl.jaas.config", ""))}
    username = given.get("sasl.username", jaas.get("username"))
    password = given.get("sasl.password", jaas.get("password"))
    if not username or password is None:
        raise AccessError('`sasl.jaas.config` has to name username="…" and password="…", or `sasl.username` and `sasl.password` do')
    return Login(mechanism, username, password)


def _tls(given: dict[str, str]) -> Certificates:
    for what in ("truststore", "keystore"):
        kind = given.get(f"ssl.{what}.type", "JKS").upper()
        if f"ssl.{what}.location" in given and kind != "PEM":
            raise AccessError(
                f"`ssl.{what}.type` {kind}: only PEM can be read here; set `ssl.{what}.type=PEM` and name such a file"
            )
    if "ssl.key.password" in given:
        raise AccessError("`ssl.key.password`: a key with a password cannot be read here; give one without")
    own = given.get("ssl.keystore.location")
    cert, key = given.get("ssl.certificate.location", own), given.get("ssl.key.location", own)
    if (cert is None) != (key is None):
        raise AccessError("`ssl.certificate.location` and `ssl.key.location` belong together: set both or none")
    return Certificates(
        given.get("ssl.truststore.location", given.get("ssl.ca.location")),
        cert,
        key,
        given.get("ssl.endpoint.identification.algorithm", "https") not in ("", "none"),
    )
