"""The platform's services one by one, as on machines of their own: each told where the others are by its environment
alone. Objects and database are any that several can share."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from support.certificates import Certificates
from support.plain_http import Again
from support.platform import (
    MARK,
    READY_SECONDS,
    STOP_SECONDS,
    Platform,
    Process,
    _die_with_us,
    _kill,
    free_port,
    processes,
)
from support.waiting import PATIENCE_S

MODULES = {
    "meta": "tistream_meta",
    "schema": "tistream_schema",
    "dispatcher": "tistream_dispatcher",
    "sorter": "tistream_sorter",
    "api": "tistream_api",
}


@dataclass
class Services(Platform):
    """As Platform, for what a chaos run needs of it. `nodes`: how many of each service. Without URLs of a database and
    of an object store these are files under data_dir."""

    nodes: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(MODULES, 1))
    database_url: str = ""
    objects_url: str = ""
    certificates: Certificates | None = None  # then they speak TLS, and all but the API want a certificate of who comes
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.url_of("api")

    def url_of(self, name: str) -> str:
        """Of a service."""
        return f"http{'s' if self.certificates else ''}://{self.host(name)}:{self.ports()[name]}"

    def host(self, name: str) -> str:
        """Where it listens."""
        return "127.0.0.1"

    def command(self, name: str) -> list[str]:
        """How it is started."""
        return [sys.executable, "-m", MODULES[service_of(name)]]

    def names(self) -> list[str]:
        """meta, meta-2, …"""
        return [
            service if number == 1 else f"{service}-{number}"
            for service, count in self.nodes.items()
            for number in range(1, count + 1)
        ]

    def ports(self) -> dict[str, int]:
        for name in self.names():
            if name not in self._ports:
                self._ports[name] = free_port()
        return self._ports

    def launch(self) -> None:
        """Start everything; do not wait."""
        for folder in (self.objects, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self._service_key.parent.mkdir()
        self._service_key.write_bytes(base64.b64encode(os.urandom(32)))
        secret = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
        self.first_token.write_text(f"tst_{os.urandom(8).hex()}_{secret}\n")
        for name in self.names():
            self.start_one(name)

    @property
    def _service_key(self) -> Path:
        return self.data_dir / "secrets" / "service.key"

    @property
    def first_token(self) -> Path:
        """Of who may do everything."""
        return self.data_dir / "secrets" / "first.token"

    @property
    def auth(self) -> bool:
        """Whether users need a token: where other machines could come they do."""
        return not ipaddress.ip_address(self.host("api")).is_loopback

    def tls_settings(self, service: str) -> dict[str, str]:
        """Without certificates whatever is between the services is said to encrypt."""
        if self.certificates is None:
            return {"TLS__TERMINATED_ELSEWHERE": "true"}
        authority = str(self.certificates.authority.file)
        found = {
            "TLS__CERT_FILE": str(self.certificates.cert_file),
            "TLS__KEY_FILE": str(self.certificates.key_file),
            "TLS__CA_FILE": authority,
        }
        return found if service == "api" else {**found, "TLS__CLIENT_CA_FILE": authority}

    def start_one(self, name: str) -> None:
        """One of `names`, that does not run."""
        service = service_of(name)
        settings = {
            "HOST": self.host(name),
            "PORT": str(self.ports()[name]),
            "SERVICE_KEY_FILE": str(self._service_key),
            **self.tls_settings(service),
            "NODE_ID": name if "-" in name else f"{name}-1",
            "META_URL": ",".join(self.url_of(one) for one in self.names() if service_of(one) == "meta"),
            "OBJECTS_URL": self.objects_url or self.objects.as_uri(),
        }
        if service == "api" and self.auth:
            settings["AUTH"] = "on"
        if service == "meta":
            settings["FIRST_TOKEN_FILE"] = str(self.first_token)
            settings |= {"DATABASE_URL": self.database_url or f"sqlite:///{self.data_dir / 'meta.db'}"}
            settings |= {"RANGES_PER_TENANT": str(self.ranges)}
        environ = {
            **os.environ,
            **{f"TISTREAM_{service.upper()}__{key}": value for key, value in settings.items()},
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.data_dir / "scratch" / name),
            **self.environ,
            MARK: self.mark,
        }
        with (self.logs / f"{name}.log").open("ab") as log:
            self._children[name] = subprocess.Popen(
                self.command(name),
                env=environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_us,  # noqa: PLW1509 (as in platform.py)
            )

    def wait_ready(self, timeout: float = READY_SECONDS) -> None:
        """Wait until every service says so."""
        deadline = time.monotonic() + timeout
        waiting = set(self.names())
        with self.within(), self.probe() as http:
            while waiting:
                assert time.monotonic() < deadline, f"not ready: {waiting}\n{self.report()}"
                for name in sorted(waiting):
                    with contextlib.suppress(httpx.HTTPError):
                        if http.get(f"{self.url_of(name)}/readyz").status_code == httpx.codes.OK:
                            waiting.discard(name)
                time.sleep(0.2)

    def http(self, timeout: float) -> httpx.Client:
        shown = True if self.certificates is None else self.certificates.trusting_context()
        token = {"authorization": f"Bearer {self.first_token.read_text().strip()}"} if self.auth else {}
        return httpx.Client(trust_env=False, timeout=timeout, verify=shown, headers=token)

    def patient_http(self) -> httpx.Client:
        one = self.http(PATIENCE_S)
        return httpx.Client(transport=Again(one._transport), timeout=one.timeout, headers=one.headers)

    def user_environ(self) -> dict[str, str]:
        found = {"TISTREAM_TOKEN_FILE": str(self.first_token)} if self.auth else {}
        return (
            found if self.certificates is None else {**found, "TISTREAM_CA_FILE": str(self.certificates.authority.file)}
        )

    def probe(self) -> httpx.Client:
        """For calls as a service makes them."""
        shown = True if self.certificates is None else self.certificates.client_context()
        return httpx.Client(trust_env=False, timeout=2.0, verify=shown)

    def named(self, name: str, living: Sequence[Process]) -> list[Process]:
        pid = self._children[name.removesuffix("-1")].pid
        return [process for process in living if process.pid == pid]

    def of_service(self, name: str) -> list[str]:
        """The one that is named, or all of a service where no number is given."""
        return [name] if "-" in name else [one for one in self.names() if service_of(one) == name]

    def stop(self) -> None:
        """SIGTERM to each; all gone in time, with status 0."""
        for child in self._children.values():
            child.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        statuses = {}
        for name, child in self._children.items():
            try:
                statuses[name] = child.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} does not stop\n{self.report()}") from None
        left = self.wait_gone(max(2.0, deadline - time.monotonic()))
        assert not left, f"left behind: {left}"
        assert not any(statuses.values()), f"exit statuses {statuses}\n{self.report()}"

    def alive(self) -> list[Process]:
        return processes(self.mark)

    def close(self) -> None:
        """Whatever happened: no process."""
        for process in self.alive():
            _kill(process.pid)
        for child in self._children.values():
            child.wait()


def service_of(name: str) -> str:
    """meta of meta-2."""
    return name.split("-", maxsplit=1)[0]
