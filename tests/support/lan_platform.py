"""The platform's services one by one, each in a network namespace of its own, on one directory of objects and one
database file: what `tistream up` runs, on as many machines as there are processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from support.lan import Lan
from support.platform import MARK, READY_SECONDS, STOP_SECONDS, Platform, Process, _die_with_us, _kill, processes

PORT = 8000
CLIENT = "client"
MODULES = {
    "meta": "tistream_meta",
    "schema": "tistream_schema",
    "dispatcher": "tistream_dispatcher",
    "sorter": "tistream_sorter",
    "api": "tistream_api",
}


@dataclass
class LanPlatform(Platform):
    """As Platform, for what a chaos run needs of it. `nodes`: how many of each service."""

    nodes: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(MODULES, 1))
    _lan: Lan | None = None
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def lan(self) -> Lan:
        assert self._lan is not None, "not started"
        return self._lan

    @property
    def url(self) -> str:
        return f"http://{self.lan.addresses['api']}:{PORT}"

    def names(self) -> list[str]:
        """meta, meta-2, …"""
        return [
            service if number == 1 else f"{service}-{number}"
            for service, count in self.nodes.items()
            for number in range(1, count + 1)
        ]

    def launch(self) -> None:
        """Start everything; do not wait."""
        self._lan = Lan(f"ts{uuid.uuid4().hex[:6]}")
        for name in [*self.names(), CLIENT]:
            self.lan.join(name)
        for folder in (self.objects, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        for name in self.names():
            self._start(name)

    def _start(self, name: str) -> None:
        service, lan = name.split("-", maxsplit=1)[0], self.lan
        metas = [f"http://{lan.addresses[one]}:{PORT}" for one in self.names() if one.startswith("meta")]
        settings = {
            "HOST": lan.addresses[name],
            "PORT": str(PORT),
            "ALLOW_INSECURE_BIND": "true",
            "NODE_ID": name if "-" in name else f"{name}-1",
            "META_URL": ",".join(metas),
            "OBJECTS_URL": self.objects.as_uri(),
        }
        if service == "meta":
            settings |= {"DATABASE_URL": f"sqlite:///{self.data_dir / 'meta.db'}"}
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
                lan.command(name, [sys.executable, "-m", MODULES[service]]),
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
        with self.within(), httpx.Client(trust_env=False, timeout=2.0) as http:
            while waiting:
                assert time.monotonic() < deadline, f"not ready: {waiting}\n{self.report()}"
                for name in sorted(waiting):
                    with contextlib.suppress(httpx.HTTPError):
                        if http.get(f"http://{self.lan.addresses[name]}:{PORT}/readyz").status_code == httpx.codes.OK:
                            waiting.discard(name)
                time.sleep(0.2)

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        with self.lan.within(CLIENT):
            yield

    def cut(self, one: str, other: str) -> contextlib.AbstractContextManager[None]:
        """Nothing passes between two services; every process of a kind where no number is given."""
        stack = contextlib.ExitStack()
        for here in self._of(one):
            for there in self._of(other):
                if here != there:
                    stack.enter_context(self.lan.cut(here, there))
        return stack

    def _of(self, name: str) -> list[str]:
        return [name] if "-" in name else [one for one in self.names() if one.split("-", maxsplit=1)[0] == name]

    def named(self, name: str, living: Sequence[Process]) -> list[Process]:
        pid = self._children[name.removesuffix("-1")].pid
        return [process for process in living if process.pid == pid]

    def ports(self) -> dict[str, int]:
        return dict.fromkeys(self.names(), PORT)

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
        left = self.wait_gone(2)
        assert not left, f"left behind: {left}"
        assert not any(statuses.values()), f"exit statuses {statuses}\n{self.report()}"

    def alive(self) -> list[Process]:
        return processes(self.mark)

    def close(self) -> None:
        """Whatever happened: no process, no namespace."""
        for process in self.alive():
            _kill(process.pid)
        for child in self._children.values():
            child.wait()
        if self._lan is not None:
            self._lan.close()
