"""`tistream up` as a user starts it, on a directory of its own; killed, restarted, and never left behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from support import plain_http
from support.golden import GoldenSet
from support.pull import Consumer
from support.waiting import PATIENCE_S
from tistream.clock import SystemClock
from tistream.model.ids import TenantKey
from tistream.wire.auth import service_token
from tistream.wire.auth.service_token import Caller

COMMAND = Path(sys.executable).with_name("tistream")
STARTED: list[Platform] = []  # a failed test prints what they said
STATUSES_MAX = 20  # tenants whose status a failed test prints
MARK = "TISTREAM_HARNESS_RUN"  # in the environment of every process of one platform, however it was started
SERVICES = ("meta", "schema", "dispatcher", "sorter", "ingest", "api")
READY_SECONDS = 2 * PATIENCE_S  # a fresh clone compiles its decoder first
STOP_SECONDS = PATIENCE_S


def ports_of(worker: int, workers: int) -> range:
    """The ports that one of several processes of pytest gives: below those that the kernel gives to outgoing
    connections, and those of `tistream up` for its services; and none that another process gives."""
    return range(10_000, 20_000)[worker::workers]


_PORTS = ports_of(
    int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")),
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
)
_given: set[int] = set()


def free_port() -> int:
    """A port on which no process listens now. No outgoing connection can take it before its server begins to listen, or
    while it is started again; and no test of this process is given it a second time."""
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
    raise AssertionError("no port is free")


@dataclass(frozen=True, slots=True)
class Process:
    """A living process of the platform, as /proc shows it."""

    pid: int
    command: str

    @property
    def node(self) -> str:
        """What tells the processes of one service apart: the name that `tistream up` has given it, else the port on
        which it listens; empty once it has ended."""
        words = self.command.split()
        if len(words) > 3 and words[1] == "-m":
            return words[3]
        try:
            environ = Path(f"/proc/{self.pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return ""
        found = re.search(rb"__PORT=(\d+)\0", environ)
        return found[1].decode() if found else ""

    @property
    def role(self) -> str:
        """A service's name, `jvm`, `up`, or `other` (Spark's Python workers among them)."""
        if "/java " in self.command or self.command.startswith("java "):
            return "jvm"
        for service in (*SERVICES, "changefeed"):  # the module itself: `tistream_sorter.jobs.daemon` is Spark's
            if f"-m tistream_{service} " in f"{self.command} ":
                return service
        return "up" if " up " in self.command else "other"


def mains(of_role: Sequence[Process]) -> list[Process]:
    """Of each process of a service the eldest: what it has forked bears its name too. By node."""
    eldest: dict[str, Process] = {}
    for process in sorted(of_role, key=lambda process: process.pid):
        if process.node:
            eldest.setdefault(process.node, process)
    return [process for _, process in sorted(eldest.items())]


def processes(mark: str) -> list[Process]:
    """Every living process that carries the mark; zombies are dead."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}".encode() not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended while we looked
        if state not in "ZX":
            found.append(Process(int(entry.name), command))
    return found


@dataclass
class Platform:
    """One data directory and what runs on it."""

    data_dir: Path
    ranges: int = 1
    environ: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()  # of `tistream up`
    port: int = field(default_factory=free_port)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    _up: subprocess.Popen[str] | None = None
    _runs: int = 0
    _tenants: list[TenantKey] = field(default_factory=list)

    def __post_init__(self) -> None:
        STARTED.append(self)

    @property
    def url(self) -> str:
        """The public URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def objects(self) -> Path:
        """The directory that is the platform's object store."""
        return self.data_dir / "objects"

    @property
    def logs(self) -> Path:
        """The directory of the services' logs."""
        return self.data_dir / "logs"

    def start(self) -> Platform:
        """Start `tistream up` and wait for its ready line."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Start `tistream up` without waiting for it."""
        assert self._up is None or self._up.poll() is not None, "runs already"
        self._runs += 1
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [str(COMMAND), "up", "--data-dir", str(self.data_dir), "--port", str(self.port)]
        if "--changefeeds" not in self.options:  # few tests need a worker, which costs seconds of each start
            command += ["--changefeeds", "0"]
        command += self.options
        environ = {
            **os.environ,
            "TISTREAM_META__RANGES_PER_TENANT": str(self.ranges),
            **self.environ,
            MARK: self.mark,
        }
        with self._stderr_path.open("a") as stderr:
            self._up = subprocess.Popen(
                command,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
                preexec_fn=_die_with_us,  # noqa: PLW1509 (a test run that is killed must leave nobody behind)
            )

    @property
    def _stderr_path(self) -> Path:
        return self.data_dir / f"up-{self._runs}.stderr"

    def wait_ready(self, timeout: float = READY_SECONDS) -> None:
        """Wait for exactly `ready URL`. Raises AssertionError with the logs' ends."""
        assert self._up is not None
        assert self._up.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._up.stdout, selectors.EVENT_READ)
            readable = selector.select(timeout)
        line = self._up.stdout.readline() if readable else ""
        assert line == f"ready {self.url}\n", f"ready line: {line!r} exit {self._up.poll()}\n{self.report()}"

    # --- ending it -------------------------------------------------------------------------------------------------

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal; then everything is gone, the JVM included, with status 0."""
        assert self._up is not None
        started = time.monotonic()
        self._up.send_signal(by)
        try:
            status = self._up.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not stopped after {STOP_SECONDS} s: {self.alive()}\n{self.report()}") from None
        self._close()
        left = self.wait_gone(max(0.5, STOP_SECONDS - (time.monotonic() - started)))
        assert not left, f"left behind: {left}"
        assert status == 0, f"exit status {status}\n{self.report()}"

    def kill_all(self) -> None:
        """kill -9 of everything at once, as a power cut would."""
        deadline = time.monotonic() + PATIENCE_S
        while (living := self.alive()) and time.monotonic() < deadline:
            for process in living:  # again: one may have been forked meanwhile
                _kill(process.pid)
            time.sleep(0.05)
        assert self._up is not None
        self._up.wait(PATIENCE_S)
        self._close()
        assert not self.alive(), self.alive()

    def strike(self, role: str) -> bool:
        """kill -9 of one service (its main process), or of the JVM or what it has forked, if there is one just now."""
        for pid in self.pids(role)[:1]:
            with contextlib.suppress(ProcessLookupError):  # it ended while we looked
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def kill(self, role: str) -> int:
        """kill -9 of one service (its main process); the pid."""
        pid = self.pid(role)
        _kill(pid)
        return pid

    def pids(self, role: str) -> list[int]:
        """The processes of a service."""
        return sorted(process.pid for process in self.alive() if process.role == role)

    def ports(self) -> dict[str, int]:
        """{name: port} of every service, as the log told when all were ready."""
        written = (self.logs / "up.log").read_text().rpartition("\n")[0]  # of the last line only a part may be there
        logged = [json.loads(line) for line in written.splitlines()]
        found: dict[str, int] = next(entry["ports"] for entry in reversed(logged) if "ports" in entry)
        return found

    def pid(self, role: str) -> int:
        """The main process of a service: the eldest that bears its name. Raises AssertionError if there is none."""
        pids = sorted(process.pid for process in self.alive() if process.role == role)
        assert pids, f"no process of {role}: {self.alive()}"
        return pids[0]

    def alive(self) -> list[Process]:
        """Every living process of this platform."""
        return processes(self.mark)

    def named(self, name: str, living: Sequence[Process]) -> list[Process]:
        """The main process of a node (`meta-1`, `meta-2`), if it lives."""
        of_role = [process for process in living if process.role == name.split("-", maxsplit=1)[0]]
        return [process for process in mains(of_role) if process.node == name.removesuffix("-1")]

    def wait_gone(self, timeout: float) -> list[Process]:
        """Wait until nothing lives; what still does."""
        deadline = time.monotonic() + timeout
        while (living := self.alive()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return living

    def _close(self) -> None:
        if self._up is not None and self._up.stdout is not None:
            rest = self._up.stdout.read()
            self._up.stdout.close()
            assert rest == "", f"more than the ready line on stdout: {rest!r}"

    def close(self) -> None:
        """Kill every process that is left, whatever has happened."""
        for process in self.alive():
            _kill(process.pid)
        self.wait_gone(5)

    def within(self) -> contextlib.AbstractContextManager[None]:
        """A context in which the caller is in the network where the platform's clients are; here it changes nothing."""
        return contextlib.nullcontext()

    # --- using it --------------------------------------------------------------------------------------------------

    def http(self, timeout: float) -> httpx.Client:
        """A user's client: it trusts whom the platform's users trust."""
        return plain_http.client(timeout=timeout)

    def patient_http(self) -> httpx.Client:
        """The same for a user who comes again when a service says so."""
        return plain_http.patient_client()

    def user_environ(self) -> dict[str, str]:
        """Further environment variables for a user's commands."""
        return {}

    def create_tenant(self, tenant: TenantKey) -> Consumer:
        """Register a tenant; a consumer of it."""
        url = f"{self.url}/v1/clusters/{tenant.cluster_id}/tenants"
        deadline = time.monotonic() + PATIENCE_S
        with self.http(PATIENCE_S) as http:
            answer = http.post(url, json={"tenant_id": tenant.tenant_id})
            while answer.status_code == 503 and time.monotonic() < deadline:  # the meta server is being started again
                time.sleep(float(answer.headers["retry-after"]))
                answer = http.post(url, json={"tenant_id": tenant.tenant_id})
        assert answer.status_code == 201, answer.text
        self._tenants.append(tenant)
        return self.consumer(tenant)

    def consumer(self, tenant: TenantKey) -> Consumer:
        """A consumer of a tenant, which comes again when it is told to."""
        return Consumer(self.url, tenant, self.patient_http())

    def create_for(self, golden: GoldenSet) -> Consumer:
        """Register a golden set's tenant."""
        return self.create_tenant(golden.tenant)

    def service_headers(self) -> dict[str, str]:
        """What a service would send: who has the platform's key is one."""
        [key, *_] = service_token.parse_keys((self.data_dir / "secrets" / "service.key").read_text())
        token = service_token.sign(key, Caller("test", "test"), SystemClock().now_ms() // 1000)
        return {"authorization": f"Bearer {token}"}

    def log_text(self) -> str:
        """The text of all logs."""
        files = [*sorted(self.logs.glob("*")), *sorted(self.data_dir.glob("up-*.stderr"))]
        return "\n".join(file.read_text(errors="replace") for file in files if file.is_file())

    def traces(self) -> list[dict[str, str]]:
        """Log lines that carry a traceback: ts, service, message and the line. Spark's own client writes to stderr
        without asking, so that a line may begin or end with what is not ours."""
        wanted = [re.compile(rf'"({name})":"((?:[^"\\\\]|\\\\.)*)"') for name in ("ts", "service", "message")]
        found = []
        for line in self.log_text().splitlines():
            if '"traceback"' in line:
                members = {match[1]: match[2] for match in (one.search(line) for one in wanted) if match}
                found.append({"ts": "", "service": "", "message": "", **members, "traceback": line})
        return found

    def unexpected(self) -> list[str]:
        """Exceptions that nobody foresaw, each with the end of its traceback."""
        return [
            f"{trace['ts']} {trace['service']} {trace['message']}\n{trace['traceback'][-2_000:]}".replace("\\n", "\n")
            for trace in self.traces()
        ]

    def statuses(self) -> str:
        """What the API says of each tenant, for a failed test."""
        out = []
        with self.http(60) as http:
            for tenant in self._tenants[-STATUSES_MAX:]:
                url = f"{self.url}/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/status"
                try:
                    out.append(f"{tenant}: {http.get(url).text}")
                except httpx.HTTPError as error:
                    out.append(f"{tenant}: no answer: {error!r}")
        return "\n".join(out)

    def report(self, lines: int = 25) -> str:
        """The ends of all logs, for a failed test."""
        out = []
        for file in [*sorted(self.logs.glob("*")), *sorted(self.data_dir.glob("up-*.stderr"))]:
            if file.is_file():
                out += [f"--- {file.name}", *file.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(line[:600] for line in out)


def _die_with_us() -> None:
    """In the child, before it runs: SIGKILL when the thread that started it ends (Linux: PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def running(
    data_dir: Path,
    ranges: int = 1,
    *,
    killed: bool = False,
    options: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
) -> Iterator[Platform]:
    """A started platform, stopped at the end; on failure its logs are shown. Nothing is left behind, and unless
    processes were `killed` no exception was met that nobody foresaw."""
    platform = Platform(data_dir, ranges, options=options, environ=environ or {})
    try:
        yield platform.start()
        if platform.alive():
            platform.stop()
        assert killed or not platform.unexpected(), "\n".join(platform.unexpected())
    except BaseException:
        print(platform.report())
        raise
    finally:
        for process in platform.alive():
            _kill(process.pid)
        platform.wait_gone(5)
        shutil.rmtree(platform.objects, ignore_errors=True)
