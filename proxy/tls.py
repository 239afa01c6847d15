"""TLS contexts from settings. In: names of files. Out: contexts for clients and for brokers, or `TlsError`, which names the
setting, the file, what is wrong and what would be right. Passwords of keys are read when a context is made, and not kept.

A context serves the connections that begin while it is in use. When a file changes, its owner makes a new one and hands it to new
connections; open ones keep theirs."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from proxy.config.listeners import ListenerTls
from proxy.config.models import Settings
from proxy.config.upstream import UpstreamTls
from proxy.identity.certificates import expires_at
from proxy.wire.primitives import BadBytes

UPSTREAM: Final = "<upstream>"
"""Stands for the brokers among the names of listeners."""
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NAME: Final = "kafka_quota_proxy_server_name"


class TlsError(Exception):
    """Files of a TLS section cannot be used; the message says which and why."""


def contexts_of(settings: Settings) -> dict[str, ssl.SSLContext | None]:
    """TLS contexts by name of the listener, and that for brokers; `TlsError` when one cannot be made."""
    contexts: dict[str, ssl.SSLContext | None] = {
        name: server_context(listener.tls, "listen.tls" if name == "main" else f"more_listeners.{name}.tls")
        if listener.tls
        else None
        for name, listener in settings.listeners.items()
    }
    contexts[UPSTREAM] = client_context(settings.upstream.tls) if settings.upstream.tls else None
    if settings.admin.tls is not None:
        server_context(settings.admin.tls, "admin.tls")  # its listener makes its own at the start
    if settings.ledger.tls is not None:
        client_context(settings.ledger.tls, "ledger.tls")  # redis-py makes its own of the same files, and says less of them
    return contexts


def server_context(tls: ListenerTls, prefix: str = "listen.tls") -> ssl.SSLContext:
    """A context for clients of a listener. `prefix` is where its settings stand."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    _load_own(context, prefix, tls.cert_file, tls.key_file, tls.key_password_file)
    if tls.client_ca_file is not None:
        _load_trusted(context, f"{prefix}.client_ca_file", tls.client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED if tls.client_auth == "required" else ssl.CERT_OPTIONAL
    context.sni_callback = _note_name
    return context


def client_context(tls: UpstreamTls, prefix: str = "upstream.tls") -> ssl.SSLContext:
    """A context for connections to brokers, whose certificate is always verified; whether it has to name the host is a setting."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.verify_hostname
    if tls.ca_file is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_trusted(context, f"{prefix}.ca_file", tls.ca_file)
    if tls.cert_file is not None and tls.key_file is not None:
        _load_own(context, prefix, tls.cert_file, tls.key_file, tls.key_password_file)
    return context


def certificate_ends(settings: Settings) -> dict[str, float]:
    """When the proxy's own certificates end, as POSIX time, by the setting that names the file. What cannot be read is left out, as
    whoever makes a context of it says so."""
    ends = {}
    for setting, file in _own_certificates(settings):
        with suppress(OSError, BadBytes):
            ends[setting] = expires_at(Path(file).read_bytes())
    return ends


def _own_certificates(settings: Settings) -> Iterator[tuple[str, str]]:
    sections = {f"{settings.key_of(name)}.tls": listener.tls for name, listener in settings.listeners.items()}
    more = {"admin.tls": settings.admin.tls, "upstream.tls": settings.upstream.tls, "ledger.tls": settings.ledger.tls}
    for where, tls in (sections | more).items():
        if tls is not None and tls.cert_file is not None:
            yield f"{where}.cert_file", tls.cert_file


def watched_files(tls: ListenerTls | UpstreamTls) -> list[str]:
    """The files that a context is made of: it is to be made anew when one of them changes."""
    trusted = tls.client_ca_file if isinstance(tls, ListenerTls) else tls.ca_file
    return [name for name in (tls.cert_file, tls.key_file, tls.key_password_file, trusted) if name is not None]


def server_name_of(connection: ssl.SSLObject | None) -> str | None:
    """The host that a client asked for in the handshake (SNI), in small letters; None when it asked for none. `connection` is
    `ssl_object` of its transport."""
    return getattr(connection, _NAME, None)


def explain(error: OSError, *, handshake: bool = False) -> str:
    """Why a connection failed, in words: TLS or not. `handshake`: it was to be one by TLS, and did not come up."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLEOFError) or (handshake and isinstance(error, ConnectionResetError)):
        return "the other side closed the connection in the TLS handshake; it may not speak TLS"
    if isinstance(error, ssl.SSLError):
        return _SAID.get(error.reason or "", f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}")
    return error.strerror or str(error) or type(error).__name__


_NO_TLS: Final = "the other side does not speak TLS here"
_SAID: Final = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "PACKET_LENGTH_TOO_LONG": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side wants a certificate, and got none",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the certificate it got: unknown authority",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not trust the certificate it got",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side wants another certificate than it got, or wants one and got none",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate that the other side got has expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other side speaks no version of TLS that is allowed here",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other side refuses the handshake: no common cipher, or it wants a certificate",
}


def _note_name(connection: Any, name: str | None, _: ssl.SSLContext) -> None:
    if name is not None:
        setattr(connection, _NAME, name.rstrip(".").lower())


def _load_own(context: ssl.SSLContext, prefix: str, cert: str, key: str, password_file: str | None) -> None:
    if b"-BEGIN CERTIFICATE-" not in _read(f"{prefix}.cert_file", cert):
        raise TlsError(f"`{prefix}.cert_file`: {cert} has no certificate; it must be PEM, with `-----BEGIN CERTIFICATE-----`")
    if b"PRIVATE KEY-" not in _read(f"{prefix}.key_file", key):
        raise TlsError(f"`{prefix}.key_file`: {key} has no key; it must be PEM, with `-----BEGIN PRIVATE KEY-----`")
    setting = f"{prefix}.key_password_file"
    password = b"" if password_file is None else _read(setting, password_file).removesuffix(b"\n").removesuffix(b"\r")
    asked = False

    def tell() -> bytes:
        nonlocal asked
        asked = True
        return password

    try:
        context.load_cert_chain(cert, key, tell)
    except (OSError, ValueError) as e:
        if isinstance(e, ssl.SSLError) and e.reason == "KEY_VALUES_MISMATCH":
            why = f"`{prefix}.key_file`: {key} is not the key of {cert}; use the key that it was made with"
        elif asked and password_file is None:
            why = f"`{prefix}.key_file`: {key} has a password; set `{setting}` to a file with it"
        elif asked:
            why = f"`{setting}`: {password_file} does not open {key}; the file must have only the password, on one line"
        else:
            why = f"`{prefix}.cert_file`: {cert} and {key} are not PEM that can be read ({_short(e)})"
        raise TlsError(why) from None


def _load_trusted(context: ssl.SSLContext, setting: str, file: str) -> None:
    """Whatever stands in the file is trusted as it is, an authority in between too, as in a truststore of Java's."""
    if b"-BEGIN " not in _read(setting, file):
        raise TlsError(f"`{setting}`: {file} has no certificate; it must be PEM, with `-----BEGIN CERTIFICATE-----`")
    try:
        context.load_verify_locations(file)
    except OSError as e:
        raise TlsError(f"`{setting}`: {file} is not PEM with certificates ({_short(e)})") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _read(setting: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as e:
        raise TlsError(f"`{setting}`: {file} cannot be read: {e.strerror}") from None


def _short(error: Exception) -> str:
    return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
