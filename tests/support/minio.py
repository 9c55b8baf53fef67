"""A MinIO server of its own on 127.0.0.1: the one on PATH, or one that is built once with Go, or its container.

Built programs are kept in ~/.cache/tistream-tests/bin, one a version.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

import boto3
import httpx
from botocore.config import Config

from support.platform import _die_with_us, free_port
from tistream.storage.s3 import S3ObjectStore

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
IMAGE = "minio/minio:RELEASE.2025-09-07T16-13-09Z"
GO_FOLDERS = "/usr/local/go/bin:/usr/lib/go/bin"  # where Go is, if not on PATH
REGION = "us-east-1"
STARTING_SECONDS = 60
BUILDING_SECONDS = 1800
_bucket_numbers = itertools.count()


class NoMinio(Exception):
    """There is none, and it cannot be had here: why."""


def cache_folder() -> Path:
    """Where built programs are kept."""
    return Path.home() / ".cache" / "tistream-tests" / "bin"


def command(directory: Path, port: int, environ: Mapping[str, str]) -> list[str]:
    """What runs a server on `directory` that listens on 127.0.0.1:`port`. Raises NoMinio."""
    try:
        found = program("minio", MODULE, VERSION)
        return [found, "server", "--quiet", "--address", f"127.0.0.1:{port}", str(directory)]
    except NoMinio:
        if not _docker_answers():
            raise
    passed = [part for name in environ for part in ("--env", name)]
    run = ["docker", "run", "--rm", "--init", "--name", container(port), "--publish", f"127.0.0.1:{port}:9000"]
    return [*run, "--volume", f"{directory}:/data", *passed, IMAGE, "server", "/data"]


def container(port: int) -> str:
    """The name of the one that publishes `port`."""
    return f"tistream-tests-minio-{port}"


def program(name: str, module: str, version: str) -> str:
    """A program that is written in Go: on PATH, of Go's folders, or built. Raises NoMinio."""
    folders = [
        os.environ.get("GOBIN", ""),
        *(f"{path}/bin" for path in os.environ.get("GOPATH", "").split(":") if path),
    ]
    for path in (None, *filter(None, folders), str(Path.home() / "go" / "bin")):
        if found := shutil.which(name, path=path):
            return found
    built = cache_folder() / f"{name}-{version}"
    if not built.exists():
        go = shutil.which("go") or shutil.which("go", path=GO_FOLDERS)
        if go is None:
            raise NoMinio(f"no {name} on PATH, and no go to build it with")
        with _alone(cache_folder()):
            if not built.exists():
                build(go, module, version, built)
    return str(built)


def build(go: str, package: str, version: str, target: Path) -> None:
    """Of MinIO three minutes on two cores, once. Raises NoMinio.

    As a requirement of a module of its own: `go install` asks a module proxy for more than this one version.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        environ = {**os.environ, "CGO_ENABLED": "0"}
        made = f"{scratch}/program"
        for command in (["mod", "init", "scratch"], ["get", f"{package}@{version}"], ["build", "-o", made, package]):
            try:
                subprocess.run(
                    [go, *command],
                    check=True,
                    capture_output=True,
                    text=True,
                    cwd=scratch,
                    env=environ,
                    timeout=BUILDING_SECONDS,
                )
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", "") or ""
                raise NoMinio(f"go {' '.join(command)}: {error} {said}"[:2_000]) from error
        os.replace(made, target)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Of several test processes one builds, and the others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _docker_answers() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    asked = [docker, "version", "--format", "{{.Server.Version}}"]
    try:
        return subprocess.run(asked, capture_output=True, timeout=20, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@dataclass
class Minio:
    """Data below `directory`, credentials drawn anew. With `encrypted`, it can encrypt objects with a key of its own
    (SSE-KMS), whose name is "tistream"."""

    directory: Path
    encrypted: bool = False
    kms: Mapping[str, str] = field(default_factory=dict)  # its environment's part that names a key management (kes.py)
    port: int = field(default_factory=free_port)
    access_key: str = field(default_factory=lambda: token_hex(8))
    secret_key: str = field(default_factory=lambda: token_hex(20))
    _process: subprocess.Popen[bytes] | None = None
    _in_container: bool = False

    @property
    def endpoint(self) -> str:
        """For clients."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """Where its disk is."""
        return self.directory / "data"

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs that opens `url`."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def url(self, bucket: str, prefix: str = "") -> str:
        """For `open_objects`."""
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&region={REGION}"

    def store(self, bucket: str, prefix: str = "", **options: Any) -> S3ObjectStore:
        """Our client of a bucket, by default straight to the server."""
        options = {"endpoint": self.endpoint, "access_key": self.access_key, "secret_key": self.secret_key} | options
        return S3ObjectStore(bucket, prefix, region=REGION, **options)

    def client(self) -> Any:
        """boto3's, for what the platform does not do."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}),
        )

    def new_bucket(self, name: str = "") -> str:
        """Make one; without a name, of a new name."""
        name = name or f"bucket-{next(_bucket_numbers)}"
        self.client().create_bucket(Bucket=name)
        return name

    def start(self) -> Minio:
        """Run it, and wait until it answers. Raises NoMinio; RuntimeError if it is there and does not start."""
        self.data.mkdir(parents=True, exist_ok=True)
        own = {"MINIO_ROOT_USER": self.access_key, "MINIO_ROOT_PASSWORD": self.secret_key, "MINIO_BROWSER": "off"}
        own |= self.kms
        if self.encrypted:
            own["MINIO_KMS_SECRET_KEY"] = self._kms_key()
        run = command(self.data, self.port, own)
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

    def _kms_key(self) -> str:
        """name:base64 of 32 bytes; kept, so that a server started again can read what it wrote."""
        kept = self.directory / "kms-key"
        if not kept.exists():
            kept.write_text("tistream:" + base64.b64encode(os.urandom(32)).decode())
        return kept.read_text()

    def _wait(self) -> None:
        deadline = time.monotonic() + STARTING_SECONDS
        while not self._answers():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() >= deadline:
                said = (self.directory / "minio.log").read_text()[-2_000:]
                raise NoMinio(said) if self._in_container else RuntimeError(f"MinIO does not start: {said}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            answer = httpx.get(f"{self.endpoint}/minio/health/ready", trust_env=False, timeout=5)
        except httpx.TransportError:
            return False
        return answer.status_code == httpx.codes.OK

    def stop(self) -> None:
        """As an operator would."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None
            if self._in_container:
                subprocess.run(["docker", "rm", "--force", container(self.port)], capture_output=True, check=False)
