"""The platform of docker-compose.yml on a real engine, under a project name of its own; and what is done to it."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from support.chaos.disk import Disk
from support.compose import engine
from support.compose.engine import docker
from support.platform import Platform, free_port
from support.waiting import PATIENCE_S
from tistream.errors import TiStreamError
from tistream.storage.backends.s3 import S3ObjectStore

BUILT = ("minio", "meta-1", "sorter-1")  # the services whose images are built here; the others share them
SERVICES = (
    *(f"meta-{number}" for number in (1, 2, 3)),
    *(f"{role}-{number}" for role in ("dispatcher", "sorter", "api") for number in (1, 2)),
    "schema",
    "ingest",
)
OWNER_OF_FILES = 10001
_UP_SECONDS = 900
_FREEZES = 20
_TRUTH = "/truth"


def number_of(role: str) -> int:
    """The number of containers of a role."""
    return max(1, sum(name.startswith(f"{role}-") for name in SERVICES))


def container_of(role: str, pick: int = 0) -> str:
    """The name of a container of a role: `sorter-2`, or the role's name if it has one container."""
    return f"{role}-{pick % number_of(role) + 1}" if number_of(role) > 1 else role


def _freeze(container: str) -> None:
    """Of a kernel with cgroups of version 1 a container whose threads come and go may slip through: once more."""
    for left in reversed(range(_FREEZES)):
        try:
            docker("pause", container)
        except subprocess.CalledProcessError as error:
            if left and "unable to freeze" in error.stderr:
                continue
            raise
        return


@dataclass
class Containers(Platform):
    """The platform in containers, with the interface that chaos runs need. `disk`: where MinIO keeps its objects; None:
    a volume."""

    disk: Disk | None = None
    settings: Mapping[str, str] = field(default_factory=dict)  # more of .env.example
    project: str = field(default_factory=lambda: f"tistream-test-{uuid.uuid4().hex[:8]}")
    _secrets: dict[str, str] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._secrets = {
            name: uuid.uuid4().hex for name in ("MINIO_ROOT_PASSWORD", "MYSQL_PASSWORD", "GRAFANA_PASSWORD")
        }
        names = ("API_1_PORT", "API_2_PORT", "MINIO_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
        self._ports = {name: free_port() for name in names}
        self.truth.mkdir(parents=True)
        os.chown(self.truth, OWNER_OF_FILES, OWNER_OF_FILES)
        volumes = {"truth": self.truth}
        if self.disk is not None:
            os.chown(self.disk.path, OWNER_OF_FILES, OWNER_OF_FILES)
            volumes["objects"] = self.disk.path
        bound = {
            name: {"driver_opts": {"type": "none", "o": "bind", "device": str(path)}} for name, path in volumes.items()
        }
        self._override.write_text(json.dumps({"volumes": bound}))

    @property
    def truth(self) -> Path:
        """The file into which the simulated upstream writes the truth."""
        return self.data_dir / "truth"

    @property
    def _override(self) -> Path:
        return self.data_dir / "volumes.json"

    @property
    def url(self) -> str:
        return self.url_of("API_1_PORT")

    def url_of(self, port: str) -> str:
        """The URL of a published port, by the name of its setting."""
        return f"http{'s' if port.startswith('API') else ''}://127.0.0.1:{self._ports[port]}"

    def _fetched(self, name: str) -> Path:
        """A file of the volume `keys`, fetched as a user does it."""
        path = self.data_dir / name
        if not path.exists():
            docker("cp", f"{self.id_of('api-1')}:/keys/{name}", str(path))
        return path

    def http(self, timeout: float) -> httpx.Client:
        trusted = ssl.create_default_context(cafile=self._fetched("ca.crt"))
        token = {"authorization": f"Bearer {self._fetched('first.token').read_text().strip()}"}
        return httpx.Client(trust_env=False, timeout=timeout, verify=trusted, headers=token)

    def patient_http(self) -> httpx.Client:
        return self.http(PATIENCE_S)

    def user_environ(self) -> dict[str, str]:
        files = {"TISTREAM_CA_FILE": "ca.crt", "TISTREAM_TOKEN_FILE": "first.token"}
        return {variable: str(self._fetched(name)) for variable, name in files.items()}

    def bucket(self) -> S3ObjectStore:
        """The platform's bucket, accessed from outside of the containers."""
        return S3ObjectStore(
            "tistream",
            endpoint=self.url_of("MINIO_PORT"),
            region="us-east-1",
            access_key="tistream",
            secret_key=self._secrets["MINIO_ROOT_PASSWORD"],
        )

    def refuses(self) -> bool:
        """Whether the bucket refuses to store an object."""
        try:
            self.bucket().put("probe", bytes(1 << 20))
        except TiStreamError:
            return True
        return False

    # --- commands ----------------------------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """The environment of every compose command: the settings that .env would have."""
        ports = {name: str(port) for name, port in self._ports.items()}
        given = {"MINIO_ROOT_USER": "tistream", "RANGES_PER_TENANT": str(self.ranges)}
        return {**os.environ, **given, **self._secrets, **ports, **self.settings}

    def command(self, *arguments: str) -> list[str]:
        """`docker compose ARGUMENTS` of this project."""
        files = [argument for path in (*engine.files(), self._override) for argument in ("-f", str(path))]
        head = [*engine.compose(), "--project-directory", str(engine.ROOT), "-p", self.project]
        return [*head, *files, "--profile", "demo", "--profile", "monitoring", *arguments]

    def compose(self, *arguments: str, check: bool = True, timeout: float = _UP_SECONDS) -> str:
        """Run a compose command; returns its output. Raises AssertionError with the error output."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        assert not check or not done.returncode, f"compose {arguments}: {done.stderr[-3_000:]}"
        return done.stdout

    def build(self) -> None:
        """Build the images; layers that exist are not built again."""
        self.compose("build", *BUILT, timeout=1_800)

    def start(self) -> Containers:
        """Everything but the profiles' services, until all of it is healthy."""
        self.up(*SERVICES)
        return self

    def up(self, *services: str, timeout: float = _UP_SECONDS) -> None:
        """Start some services, and wait until they are healthy."""
        self.compose("up", "--detach", "--no-build", "--no-recreate", "--wait", *services, timeout=timeout)

    # --- containers --------------------------------------------------------------------------------------------------

    def id_of(self, service: str) -> str:
        """The id of a service's container."""
        return f"{self.project}-{service}-1"

    def inspect(self, service: str) -> dict[str, Any]:
        """The state of a container, according to the engine."""
        found: dict[str, Any] = json.loads(docker("inspect", self.id_of(service)))[0]
        return found

    def kill(self, role: str) -> int:
        """Kill a container by SIGKILL. It is not restarted, because the engine takes that for the operator's wish."""
        docker("kill", self.id_of(role))
        return 0

    def bring_back(self, service: str) -> None:
        """Start a container that was killed."""
        docker("start", self.id_of(service))

    def restart(self, service: str) -> None:
        """Restart a container in an orderly way."""
        docker("restart", "--time", "30", self.id_of(service))

    @contextlib.contextmanager
    def paused(self, *services: str) -> Any:
        """Freeze a container during the `with` block."""
        frozen: list[str] = []
        try:
            for service in services:
                _freeze(self.id_of(service))
                frozen.append(self.id_of(service))
            yield
        finally:
            if frozen:
                docker("unpause", *frozen)

    # --- its end -----------------------------------------------------------------------------------------------------

    def keep_logs(self) -> None:
        """Write the logs of every container to `logs`, including those of earlier runs of it."""
        self.logs.mkdir(parents=True, exist_ok=True)
        for service in (*SERVICES, "minio", "mysql", "bucket", "keys"):
            with (self.logs / f"{service}.log").open("wb") as log:
                subprocess.run(["docker", "logs", self.id_of(service)], stdout=log, stderr=log, check=False)

    def stop(self) -> None:
        """Stop each service by SIGTERM, and check that all end in time with status 0."""
        self.compose("stop", *SERVICES)
        self.keep_logs()
        statuses = {service: self.inspect(service)["State"]["ExitCode"] for service in SERVICES}
        assert not any(statuses.values()), f"exit statuses {statuses}"

    def report(self, lines: int = 25) -> str:
        """The ends of all logs, for a failed test."""
        self.keep_logs()
        return super().report(lines) + "\n" + self.compose("ps", "--all", check=False)

    def close(self) -> None:
        """Remove all containers, networks and volumes, whatever has happened."""
        self.keep_logs()
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "20", check=False)
