"""Certificates of 127.0.0.1: of authorities that a test makes, and one that vouches for itself."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


def make(directory: Path, name: str) -> tuple[Path, Path]:
    """Files of a new certificate and of its key, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _written(directory, name, _signed(name, key, name, key, authority=True), key)


class Authority:
    """A certificate authority; its own certificate is in `file`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(name, self._key, name, self._key, authority=True)
        self.file, _ = _written(directory, name, certificate, self._key)

    def sign(self, name: str, *, address: str = "127.0.0.1", expired: bool = False) -> Certificates:
        """Issue a certificate for both sides of a connection."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(name, key, self._name, self._key, address=address, expired=expired)
        return Certificates(self, *_written(self._directory, name, certificate, key))


@dataclass(frozen=True)
class Certificates:
    """The certificate files of one process, or of all processes."""

    authority: Authority
    cert_file: Path
    key_file: Path

    def client_context(self) -> ssl.SSLContext:
        """The TLS context for calls: it trusts the authority, and presents the certificate."""
        context = ssl.create_default_context(cafile=self.authority.file)
        context.load_cert_chain(self.cert_file, self.key_file)
        return context

    def trusting_context(self) -> ssl.SSLContext:
        """The TLS context for calls without a client certificate."""
        return ssl.create_default_context(cafile=self.authority.file)


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
    address: str = "127.0.0.1",
    expired: bool = False,
) -> x509.Certificate:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * day)
        .not_valid_after(now - day if expired else now + day)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _written(
    directory: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> tuple[Path, Path]:
    files = directory / f"{name}.pem", directory / f"{name}-key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
