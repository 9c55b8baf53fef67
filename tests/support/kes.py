"""A key management server of its own on 127.0.0.1, for MinIO: KES, which is built once with Go as MinIO is.

Each key is a file of its own, so that one can be taken away, or denied, alone, and be given back.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from support import kept
from support.minio import program
from support.not_run import not_run
from support.platform import _die_with_us, free_port
from support.waiting import PATIENCE_S, eventually

MODULE, VERSION = "github.com/minio/kes/cmd/kes", "v0.23.0"
OWN_KEY = "minio"  # what MinIO encrypts its own configuration with
CACHE = "300ms"  # for so long KES goes on with a key that it has read


@dataclass
class Kes:
    """Keys, certificates and log below `directory`."""

    directory: Path
    port: int = field(default_factory=free_port)
    _denied: set[str] = field(default_factory=set)
    _process: subprocess.Popen[bytes] | None = None
    _identity: str = ""

    @property
    def endpoint(self) -> str:
        """The URL for clients, which must present a certificate."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables of a MinIO server that uses this KES."""
        return {
            "MINIO_KMS_KES_ENDPOINT": self.endpoint,
            "MINIO_KMS_KES_CERT_FILE": str(self._path("client.crt")),
            "MINIO_KMS_KES_KEY_FILE": str(self._path("client.key")),
            "MINIO_KMS_KES_CAPATH": str(self._path("server.crt")),
            "MINIO_KMS_KES_KEY_NAME": OWN_KEY,
        }

    def start(self) -> Kes:
        """Run it, and wait until it has made MinIO's key. Raises kept.NotHad."""
        command = program("kes", MODULE, VERSION)
        for folder in (self._keys, self._path("taken")):
            folder.mkdir(parents=True, exist_ok=True)
        self._certificate("server", ExtendedKeyUsageOID.SERVER_AUTH)
        self._identity = self._certificate("client", ExtendedKeyUsageOID.CLIENT_AUTH)
        self._configure()
        with self._path("kes.log").open("ab") as log:
            self._process = subprocess.Popen(
                [command, "server", "--config", str(self._path("kes.yaml")), "--auth", "off"],
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_us,  # noqa: PLW1509 (as in platform.py)
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._makes(OWN_KEY):
            if self._process.poll() is not None or time.monotonic() >= deadline:
                raise RuntimeError(f"KES does not start: {self._path('kes.log').read_text()[-2_000:]}")
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        """Stop the server in an orderly way."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
            self._process = None

    # -- keys ------------------------------------------------------------------------------------------------------

    def create(self, name: str) -> str:
        """Create a key; returns its name."""
        assert self._makes(name)
        return name

    def take(self, name: str) -> None:
        """Delete a key. Once this returns, the key cannot be used."""
        os.rename(self._keys / name, self._path("taken") / name)
        eventually(lambda: not self._usable(name))

    def give_back(self, name: str) -> None:
        """Restore a deleted key."""
        os.rename(self._path("taken") / name, self._keys / name)
        eventually(lambda: self._usable(name))

    def deny(self, name: str) -> None:
        """Deny MinIO the use of a key that exists."""
        self._denied.add(name)
        self._reload()
        eventually(lambda: not self._usable(name))

    def allow(self, name: str) -> None:
        """Allow MinIO the use of a key again."""
        self._denied.discard(name)
        self._reload()
        eventually(lambda: self._usable(name))

    # -- how -------------------------------------------------------------------------------------------------------

    @property
    def _keys(self) -> Path:
        return self._path("keys")

    def _path(self, name: str) -> Path:
        return self.directory / name

    def _makes(self, name: str) -> bool:
        """Create the key, unless it exists. Returns whether it exists now."""
        try:
            answer = self._asked("create", name)
        except httpx.TransportError:
            return False
        return answer.status_code == httpx.codes.OK or "already exists" in answer.text

    def _usable(self, name: str) -> bool:
        """Whether MinIO can encrypt with it now."""
        answer = self._asked("generate", name, content=b"{}")
        assert answer.status_code in (httpx.codes.OK, httpx.codes.NOT_FOUND, httpx.codes.FORBIDDEN), answer.text
        return answer.status_code == httpx.codes.OK

    def _asked(self, what: str, name: str, content: bytes | None = None) -> httpx.Response:
        """Send a request as MinIO does."""
        tls = ssl.create_default_context(cafile=str(self._path("server.crt")))
        tls.load_cert_chain(self._path("client.crt"), self._path("client.key"))
        with httpx.Client(verify=tls, trust_env=False, timeout=PATIENCE_S) as http:
            return http.put(f"{self.endpoint}/v1/key/{what}/{name}", content=content)

    def _reload(self) -> None:
        assert self._process is not None
        told = len(self._path("kes.log").read_bytes())
        self._configure()
        self._process.send_signal(signal.SIGHUP)
        eventually(lambda: b"completed" in self._path("kes.log").read_bytes()[told:])

    def _configure(self) -> None:
        """Write the configuration. JSON is valid YAML."""
        used = ("generate", "decrypt")
        policy = {
            "allow": [
                "/v1/status",
                "/v1/api",
                "/version",
                *(f"/v1/key/{what}/*" for what in ("create", "list", *used)),
            ],
            "deny": [f"/v1/key/{what}/{name}" for name in sorted(self._denied) for what in used],
            "identities": [self._identity],
        }
        config = {
            "version": "v1",
            "address": f"127.0.0.1:{self.port}",
            "admin": {"identity": "disabled"},
            "tls": {"key": str(self._path("server.key")), "cert": str(self._path("server.crt"))},
            "policy": {"minio": policy},
            "cache": {"expiry": {"any": CACHE, "unused": CACHE, "offline": "0s"}},
            "log": {"error": "on", "audit": "off"},
            "keystore": {"fs": {"path": str(self._keys)}},
        }
        self._path("kes.yaml").write_text(json.dumps(config, indent=1))

    def _certificate(self, name: str, usage: x509.ObjectIdentifier) -> str:
        """A key and a certificate of its own; what KES knows who shows it by."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = dt.datetime.now(dt.UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .add_extension(x509.ExtendedKeyUsage([usage]), False)
            .sign(key, hashes.SHA256())
        )
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self._path(f"{name}.key").write_bytes(secret)
        self._path(f"{name}.key").chmod(0o600)
        self._path(f"{name}.crt").write_bytes(built.public_bytes(Encoding.PEM))
        public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(public).hexdigest()


@contextmanager
def running(directory: Path) -> Iterator[Kes]:
    """A KES server for a `with` block. The test is reported as not run if it cannot be installed."""
    server = Kes(directory)
    try:
        server.start()
    except kept.NotHad as reason:
        not_run(reason)
    try:
        yield server
    finally:
        server.stop()
