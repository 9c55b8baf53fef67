"""A MinIO server of its own on 127.0.0.1: the one on PATH, or one that is built once with Go, or its container.

Built programs are kept in ~/.cache/tistream-tests/bin, one a version.
"""

from __future__ import annotations

import base64
import functools
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError, HTTPClientError

from support import certificates, kept
from support.not_run import not_run
from support.platform import _die_with_us, free_port
from support.waiting import PATIENCE_S
from tistream.storage.backends import s3
from tistream.storage.backends.s3 import S3ObjectStore

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
IMAGE = "minio/minio:RELEASE.2025-09-07T16-13-09Z"
REGION = "us-east-1"
KMS_KEY = "tistream"
NOT_YET = "XMinioServerNotInitialized"
_bucket_numbers = itertools.count()


def command(directory: Path, port: int, environ: Mapping[str, str], certified: Path | None = None) -> list[str]:
    """What runs a server on `directory` that listens on 127.0.0.1:`port`, over TLS with the files of a folder
    `certified`. Raises kept.NotHad."""
    tls = [] if certified is None else ["--certs-dir", str(certified)]
    try:
        found = program("minio", MODULE, VERSION)
        return [found, "server", "--quiet", "--address", f"127.0.0.1:{port}", *tls, str(directory)]
    except kept.NotHad as reason:
        if not kept.docker_answers():
            raise kept.NotHad(f"no minio on PATH, {reason}, and no Docker that answers") from reason
    passed = [part for name in environ for part in ("--env", name)]
    run = ["docker", "run", "--rm", "--init", "--name", container(port), "--publish", f"127.0.0.1:{port}:9000"]
    mounted = [part for path in (directory, certified) if path for part in ("--volume", f"{path}:{path}")]
    return [*run, *mounted, *passed, IMAGE, "server", *tls, str(directory)]


def container(port: int) -> str:
    """The name of the one that publishes `port`."""
    return f"tistream-tests-minio-{port}"


def program(name: str, module: str, version: str) -> str:
    """On PATH, of Go's folders, or built (MinIO: three minutes on two cores, once). Raises kept.NotHad."""
    folders = [
        os.environ.get("GOBIN", ""),
        *(f"{path}/bin" for path in os.environ.get("GOPATH", "").split(":") if path),
    ]
    for path in (None, *filter(None, folders), str(Path.home() / "go" / "bin")):
        if found := shutil.which(name, path=path):
            return found
    return kept.built(f"{module}@{version}", f"{name}-{version}")


@dataclass
class Minio:
    """Data below `directory`, credentials drawn anew. With `guarded` it speaks TLS, with a certificate of its own, and
    encrypts what new buckets are given with a key of its own (SSE-KMS)."""

    directory: Path
    guarded: bool = False
    kms: Mapping[str, str] = field(default_factory=dict)  # its environment's part that names a key management (kes.py)
    port: int = field(default_factory=free_port)
    access_key: str = field(default_factory=lambda: token_hex(8))
    secret_key: str = field(default_factory=lambda: token_hex(20))
    _process: subprocess.Popen[bytes] | None = None
    _in_container: bool = False

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return f"{'https' if self.guarded else 'http'}://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path:
        """Of `guarded`: whom a client has to trust (AWS_CA_BUNDLE)."""
        return self.directory / "certificates" / "public.crt"

    @property
    def data(self) -> Path:
        """The directory of its data."""
        return self.directory / "data"

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables of a process that opens `url`."""
        keys = {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        return keys | ({"AWS_CA_BUNDLE": str(self.certificate)} if self.guarded else {})

    @contextmanager
    def credentials(self) -> Iterator[None]:
        """This process and its children open `url` with the credentials of this server.

        The product's session of boto3 keeps the credentials that it has found once, which may be those of a server of
        an earlier test.
        """
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environ.items():
                patch.setenv(name, value)
            patch.setattr(s3, "_session", functools.cache(boto3.session.Session))
            yield

    def url(self, bucket: str, prefix: str = "") -> str:
        """The URL for `open_objects`."""
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&region={REGION}"

    def store(self, bucket: str, prefix: str = "", **options: Any) -> S3ObjectStore:
        """Our client of a bucket, by default straight to the server."""
        own = {"endpoint": self.endpoint, "access_key": self.access_key, "secret_key": self.secret_key}
        patience = {"connect_seconds": PATIENCE_S, "read_seconds": PATIENCE_S}
        options = own | patience | options
        return S3ObjectStore(bucket, prefix, region=REGION, **options)

    def client(self) -> Any:
        """A boto3 client, for calls that the platform does not make."""
        return boto3.client("s3", **self.client_options)

    @property
    def client_options(self) -> dict[str, Any]:
        """For a process of its own to make one."""
        return {
            "endpoint_url": self.endpoint,
            "region_name": REGION,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "config": Config(s3={"addressing_style": "path"}),
            "verify": str(self.certificate) if self.guarded else None,
        }

    def new_bucket(self, name: str = "") -> str:
        """Make one; without a name, of a new name."""
        name = name or f"bucket-{next(_bucket_numbers)}"
        self.client().create_bucket(Bucket=name)
        if self.guarded:
            rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KMS_KEY}}
            self.client().put_bucket_encryption(Bucket=name, ServerSideEncryptionConfiguration={"Rules": [rule]})
        return name

    def start(self) -> Minio:
        """Run it, and wait until it answers. Raises kept.NotHad; RuntimeError if it is there and does not start."""
        self.data.mkdir(parents=True, exist_ok=True)
        own = {"MINIO_ROOT_USER": self.access_key, "MINIO_ROOT_PASSWORD": self.secret_key, "MINIO_BROWSER": "off"}
        own |= self.kms
        if self.guarded:
            own["MINIO_KMS_SECRET_KEY"] = f"{KMS_KEY}:{base64.b64encode(os.urandom(32)).decode()}"
            self._certify()
        run = command(self.data, self.port, own, self.certificate.parent if self.guarded else None)
        self._in_container = run[0] == "docker"
        with (self.directory / "minio.log").open("ab") as log:
            self._process = subprocess.Popen(
                run,
                env={**os.environ, **own},
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_us,  # noqa: PLW1509 (as in platform.py)
            )
        self._wait()
        return self

    def _certify(self) -> None:
        self.certificate.parent.mkdir(parents=True)
        certificate, key = certificates.make(self.directory, "minio")
        certificate.rename(self.certificate)
        key.rename(self.certificate.with_name("private.key"))

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() >= deadline:
                said = (self.directory / "minio.log").read_text()[-2_000:]
                raise kept.NotHad(said) if self._in_container else RuntimeError(f"MinIO does not start: {said}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        """Whether it serves requests. Its readiness route says 200 before its storage is initialised."""
        try:
            self.client().list_buckets()
        except (EndpointConnectionError, HTTPClientError):
            return False
        except ClientError as error:
            if error.response["Error"]["Code"] != NOT_YET:
                raise
            return False
        return True

    def stop(self) -> None:
        """Stop the server in an orderly way."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
            self._process = None
            if self._in_container:
                subprocess.run(["docker", "rm", "--force", container(self.port)], capture_output=True, check=False)

    def uploads_left(self, bucket: str, key: str) -> list[dict[str, Any]]:
        """Multipart uploads that nobody has ended: MinIO lists those of one key, if it is named whole."""
        found: list[dict[str, Any]] = self.client().list_multipart_uploads(Bucket=bucket, Prefix=key).get("Uploads", [])
        return found


@contextmanager
def running(directory: Path, **options: Any) -> Iterator[Minio]:
    """A MinIO server for a `with` block. The test is reported as not run if it cannot be installed."""
    server = Minio(directory, **options)
    try:
        server.start()
    except kept.NotHad as reason:
        not_run(reason)
    try:
        yield server
    finally:
        server.stop()
