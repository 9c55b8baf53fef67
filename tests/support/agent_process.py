"""`python -m tistream_agent` as a process, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from support import plain_http
from support.platform import free_port
from support.waiting import PATIENCE_S
from tistream.model.ids import TenantKey
from tistream.service.lifetime import PARENT_VARIABLE

STARTED: list[AgentProcess] = []  # of the test that runs: platform_reports shows their logs if it fails


@dataclass
class AgentProcess:
    """One agent. `settings`: of TISTREAM_AGENT__…, besides those that every agent needs."""

    pd: str
    tenant: TenantKey
    objects: Path
    log: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    headers: Callable[[], Mapping[str, str]] = dict  # of calls, where it has a service key
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> AgentProcess:
        given = {  # settings that are empty leave the territory to the meta servers
            "PD": self.pd,
            "CLUSTER": self.tenant.cluster_id,
            "TENANT": self.tenant.tenant_id,
            "OBJECTS_URL": str(self.objects),
            "PORT": str(self.port),
            **self.settings,
        }
        environ = {f"TISTREAM_AGENT__{name}": value for name, value in given.items()}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tistream_agent"],
                env={**os.environ, PARENT_VARIABLE: str(os.getpid()), **environ},
                stdout=out,
                stderr=out,
            )
        if self not in STARTED:
            STARTED.append(self)
        return self

    def status(self) -> dict[str, Any]:
        """Its only territory in `/status`; empty while it does not answer or holds none."""
        found = self.territories()
        return found[0] if found else {}

    def territories(self) -> list[dict[str, Any]] | None:
        """All territories in `/status`; None while it does not answer."""
        try:
            answer = plain_http.get(
                f"http://127.0.0.1:{self.port}/status", headers=dict(self.headers()), timeout=60, trust_env=False
            )
        except httpx.TransportError:
            return None
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["territories"]
        return found

    def held(self) -> set[int]:
        """The ids of its territories that run; empty while it does not answer."""
        return {int(one["territory"]) for one in self.territories() or () if one["state"] == "running"}

    @property
    def resolved_ts(self) -> int:
        """All changes up to this ts are in its files; 0 while it does not answer."""
        return int(self.status().get("resolved_ts", 0))

    def reached(self, ts: int) -> bool:
        """Whether all changes up to `ts` are in its files."""
        return self.resolved_ts >= ts

    def ended(self) -> int | None:
        """Its exit status; None while it runs."""
        assert self.process is not None
        return self.process.poll()

    def send(self, number: signal.Signals) -> None:
        """A signal, such as SIGSTOP."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
