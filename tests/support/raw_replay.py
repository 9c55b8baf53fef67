"""RawKV of an emulated cluster: an agent that reads it, and `tistream replay` into another cluster, as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from support.agent_process import AgentProcess
from support.command import patient_command
from support.emulated import EmulatedTikv
from support.platform import COMMAND, Platform
from support.raw_target import RawTarget, live_pairs
from support.waiting import PATIENCE_S, eventually
from tistream.clock import SystemClock
from tistream.model.ids import TenantKey
from tistream.service.lifetime import PARENT_VARIABLE

TENANT = TenantKey("8", "raw")


def raw_agent(up: Platform, tikv: EmulatedTikv, folder: Path) -> AgentProcess:
    """The agent of the tenant, which is not started yet."""
    settings = {"API_URL": up.url, "CUT_MS": "200", "IDLE_CUT_MS": "500", "KIND": "raw", "KEYSPACE": "*"}
    return AgentProcess(tikv.address, TENANT, up.objects, folder / "agent.log", settings)


class Replay:
    """`tistream replay` as a process."""

    def __init__(self, up: Platform, target: RawTarget, folder: Path) -> None:
        self.state, self.log = folder / "state.json", folder / "replay.log"
        self._command = [
            *(str(COMMAND), "replay", "--cluster", TENANT.cluster_id, "--tenant", TENANT.tenant_id, "--url", up.url),
            *("--to-tikv", target.address, "--state", str(self.state)),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        environ = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen([*self._command, *more], env=environ, stdout=out, stderr=out)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(PATIENCE_S)

    def resolved_ts(self) -> int:
        """Everything up to it is in the target."""
        return int(json.loads(self.state.read_text())["resolved_ts"]) if self.state.exists() else 0

    def passed(self, ts: int) -> bool:
        return self.resolved_ts() > ts

    def finish(self, end_ts: int) -> None:
        """Wait until everything up to `end_ts` is in the target, and let the command end there by itself."""
        eventually(lambda: self.resolved_ts() >= end_ts)
        self.kill()
        self.start("--until-ts", str(end_ts))
        self.wait_end()

    def wait_end(self) -> None:
        """Wait until the command has ended by itself, without an error."""
        assert self.process is not None
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()


def require_equal(target: RawTarget, tikv: EmulatedTikv) -> None:
    """Both clusters have the same live pairs now."""
    now_s = SystemClock().now_ms() // 1_000
    wanted = live_pairs(tikv.upstream, now_s)
    assert len(wanted) > 100
    assert target.live(now_s) == wanted


def connect(up: Platform, tikv: EmulatedTikv) -> str:
    """`tistream connect --kind raw`, as a user runs it."""
    given = ["--pd", tikv.address, "--objects", str(up.objects), "--url", up.url, "--keyspace", "*"]
    named = ["--cluster", TENANT.cluster_id, "--tenant", TENANT.tenant_id, "--kind", "raw"]
    done = patient_command("connect", *given, *named)
    assert done.returncode == 0, done.stderr
    return done.stdout
