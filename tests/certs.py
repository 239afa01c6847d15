"""Certificates for tests: authorities, and certificates by them, as PEM files in a folder. Nothing here is trusted by anyone
but the test that made it."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate (with its chain) and its key, as PEM files."""

    cert: Path
    key: Path
    certificate: x509.Certificate
    private: ec.EllipticCurvePrivateKey

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)


class Authority:
    """A certificate authority: `ca.file` is what trusts it."""

    def __init__(self, folder: Path, name: str = "ca", *, by: Authority | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._by = folder, by
        self._pair = _write(folder, name, _named(name), None if by is None else by._pair, ca=True)
        self.file = self._pair.cert

    def server(self, name: str, *hosts: str, expired: bool = False, password: str | None = None) -> Pair:
        """A certificate for these hosts: names, wildcards or IP addresses."""
        return _write(self._folder, name, _named(name), self._pair, hosts=hosts, expired=expired, password=password)

    def client(self, name: str, subject: x509.Name | None = None, *, expired: bool = False, password: str | None = None) -> Pair:
        """A certificate for a client; its subject is CN=name when nothing else is said."""
        return _write(
            self._folder, name, _named(name) if subject is None else subject, self._pair, expired=expired, password=password
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _write(
    folder: Path,
    name: str,
    subject: x509.Name,
    issuer: Pair | None,
    *,
    ca: bool = False,
    hosts: Sequence[str] = (),
    expired: bool = False,
    password: str | None = None,
) -> Pair:
    private = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    signer = private if issuer is None else issuer.private
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * DAY)
        .not_valid_after(now + (-DAY if expired else 30 * DAY))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if ca:
        others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only")
        usage = dict.fromkeys(others, False)
        builder = builder.add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage), critical=True
        )
    else:
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    chain = b"" if issuer is None or ca else issuer.certificate.public_bytes(Encoding.PEM)
    cert.write_bytes(certificate.public_bytes(Encoding.PEM) + chain)
    lock = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
    return Pair(cert, key, certificate, private)


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
