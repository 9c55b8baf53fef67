"""Who is who in a cluster: one authority, a certificate for each program, and the files by which they find the API."""

from __future__ import annotations

import datetime
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID


class Authority:
    """Its files are in `folder`: ca.pem, and of each that it vouches for NAME.pem and NAME-key.pem."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes-here")])
        certificate = self._signed(self._name, self._key.public_key(), (), authority=True)
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self._write_key("service-accounts", rsa.generate_private_key(public_exponent=65537, key_size=2048))

    @property
    def file(self) -> Path:
        """The file of the authority's own certificate."""
        return self.folder / "ca.pem"

    def certify(self, name: str, user: str, group: str = "", where: Sequence[str] = ()) -> tuple[Path, Path]:
        """Issue a certificate and key for a user; `where` are the names and addresses of its servers."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        certificate = self._signed(x509.Name(parts), key.public_key(), where, authority=False)
        file = self.folder / f"{name}.pem"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return file, self._write_key(name, key)

    def kubeconfig(self, name: str, user: str, group: str, url: str) -> Path:
        """The file by which that user comes to the API."""
        certificate, key = self.certify(name, user, group)
        file = self.folder / f"{name}.kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": url, "certificate-authority": str(self.file)}}],
            "users": [{"name": name, "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": name}}],
            "current-context": "here",
        }
        file.write_text(json.dumps(content))
        return file

    def _write_key(self, name: str, key: rsa.RSAPrivateKey) -> Path:
        file = self.folder / f"{name}-key.pem"
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        file.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
        return file

    def _signed(
        self, subject: x509.Name, key: rsa.RSAPublicKey, where: Sequence[str], *, authority: bool
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if where:
            names = [
                x509.IPAddress(ipaddress.ip_address(one)) if one[0].isdigit() else x509.DNSName(one) for one in where
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())
