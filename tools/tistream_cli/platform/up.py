"""`tistream up`: runs the whole platform on one machine, as child processes (docs/architecture.md)."""

from __future__ import annotations

import http.client
import logging
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tistream.clock import SystemClock
from tistream.service import allocators, java
from tistream.service.lifetime import die_with_parent
from tistream.service.observe.logging import configure_logging
from tistream_cli.new_token import new_token
from tistream_cli.platform.data_dir import OWN_UMASK, DataDir, make_key, make_secrets_keys, open_data_dir
from tistream_cli.platform.ports import free_ports, listen
from tistream_cli.processes.signal_wait import SignalWait
from tistream_cli.processes.supervisor import ChildSpec, ExitedChild, Supervisor
from tistream_client.cli.errors import CliError

log = logging.getLogger(__name__)

# In the order of the start. Each service waits for the services that it needs, so the order only saves time. The
# sorter's JVM needs longest.
SERVICES = {
    "sorter": "tistream_sorter",
    "meta": "tistream_meta",
    "schema": "tistream_schema",
    "dispatcher": "tistream_dispatcher",
    "ingest": "tistream_ingest",
    "changefeed": "tistream_changefeed",
    "agent": "tistream_agent",
    "api": "tistream_api",
}


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """The number of processes of each service that can run more than once."""

    meta: int = 1
    dispatcher: int = 1
    sorter: int = 1
    api: int = 1
    changefeed: int = 1
    agent: int = 0

    def children(self) -> dict[str, str]:
        """The child processes: the service of each, by its name. The first process of a service has the service's name;
        further ones have that name and a number."""
        found = {}
        for service in SERVICES:
            for number in range(1, getattr(self, service, 1) + 1):
                found[service if number == 1 else f"{service}-{number}"] = service
        return found


@dataclass(frozen=True, slots=True)
class ConnectOption:
    """A TiDB cluster to connect once the platform is ready. `pd`: addresses of PD, without TLS."""

    pd: str
    cluster: str
    tenant: str

    def command(self, objects_url: str, url: str) -> list[str]:
        """The command line that connects the cluster, and gives the span of its keys to the agents."""
        where = ["--pd", self.pd, "--objects", objects_url, "--url", url]
        names = ["--cluster", self.cluster, "--tenant", self.tenant]
        return [sys.executable, "-m", "tistream_cli", "connect", *where, *names, "--assign"]


# On one machine the JVM only schedules Spark tasks, and Python processes the rows. Without the JVM's second compiler,
# the first hundred jobs need half of the time, all 600 measured jobs half of the CPU, and later ones are not slower.
# Without UsePerfData it does not wake twenty times a second to sample counters.
JAVA_OPTIONS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40 -XX:-UsePerfData"
)
GRACE_MS = 6_500  # above the services' own limit of 5 s, below the 10 s that may pass after SIGTERM
# No process can take over the work of the only one of its kind. So it need not be missed soon: it sends few heartbeats,
# and the meta server seldom renews its lease.
ALONE = {"SUSPECT_MS": "20000", "LOST_MS": "40000", "LEASE_MS": "36000"}
NO_AUTH = "no authentication: every user of this machine may do everything; --auth enables it"
OWN_HOSTS = "127.0.0.1,localhost"  # hosts that feeds may write to, unless the environment names others
_PORT_PATIENCE_MS = 3_000
_LOOP_SECONDS = 0.1
_READY_TIMEOUT_SECONDS = 2.0
_EXIT_SETTINGS = 2
_CONNECT_SECONDS = 600
_KEY_BYTES = 32


def run_up(
    data_dir: Path,
    port: int,
    ranges: int | None,
    counts: ProcessCounts,
    *,
    auth: bool = False,
    connect: ConnectOption | None = None,
) -> None:
    """Run the platform until SIGTERM or SIGINT. Prints `ready http://127.0.0.1:PORT` once every service is ready, and
    then connects a TiDB cluster if one is given. If that cluster cannot be connected, this is reported, and the
    platform continues.

    Raises CliError if it cannot start: Java is missing, the port or directory is in use, the directory is not writable,
    or settings are invalid.
    """
    die_with_parent()
    os.umask(OWN_UMASK)  # inherited by the children and the processes that they start
    stop = _StopSignals()
    try:
        java.find()
    except java.JavaMissing as error:
        raise CliError(str(error)) from error
    directory = open_data_dir(data_dir)
    make_key(directory.service_key, secrets.token_bytes(_KEY_BYTES))
    make_secrets_keys(directory, secrets.token_bytes(_KEY_BYTES))
    listening = listen(port, patience_ms=_PORT_PATIENCE_MS, sleep=stop.requested.wait)
    shutil.rmtree(directory.scratch, ignore_errors=True)
    directory.scratch.mkdir(exist_ok=True)
    with (directory.logs / "up.log").open("a", encoding="utf-8") as log_stream, listening:
        configure_logging("up", stream=log_stream)
        if not auth:
            log.warning(NO_AUTH)
            sys.stderr.write(f"{NO_AUTH}\n")
        children = counts.children()
        ports = dict(zip(children, free_ports(len(children), random.Random()), strict=True))
        ports["api"] = listening.getsockname()[1]
        specs = _specs(directory, children, ports, listening, ranges, _first_token(directory) if auth else None)
        # In a thread, so that this thread can restart children and react to signals at the same time.
        connecting = threading.Thread(
            target=lambda: _connect(connect, directory, ports["api"], auth=auth), name="connect", daemon=True
        )
        supervisor = Supervisor(specs, directory.logs, SystemClock())
        try:
            supervisor.start()
            _watch(supervisor, ports, directory, stop, connecting.start)
        finally:
            log.info("stopping")
            supervisor.stop(GRACE_MS, hurry=stop.insisted.is_set)
            log.info("stopped")


def _first_token(directory: DataDir) -> Path:
    """The file of the token that grants everything. The file is created at the first start. Only its path is printed,
    never the token."""
    path = directory.first_token
    if not path.exists():
        new_token(path)
    sys.stderr.write(f"first token in {path}\n")
    return path


class _StopSignals:
    """Handles SIGTERM and SIGINT: the first one requests an orderly stop, the second one an immediate stop. `wait`
    waits for a signal, or for the end of a child process."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.insisted = threading.Event()
        self.wait = SignalWait().wait
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: object) -> None:
        (self.insisted if self.requested.is_set() else self.requested).set()


def _watch(
    supervisor: Supervisor,
    ports: Mapping[str, int],
    directory: DataDir,
    stop: _StopSignals,
    then: Callable[[], None],
) -> None:
    waiting_for = list(ports)
    while not stop.requested.is_set():
        for ended in supervisor.poll():
            _report(ended, directory, started=not waiting_for)
        if not waiting_for:
            stop.wait(supervisor.pause_ms() / 1000)
            continue
        # The API's readiness checks all other services, so it is polled only after the others are ready.
        polled = [name for name in waiting_for if not name.startswith("api")] or waiting_for
        for name in [name for name in polled if _is_ready(ports[name])]:
            log.info("service ready", extra={"child": name})
            waiting_for.remove(name)
        if not waiting_for:
            log.info("ready", extra={"ports": dict(ports)})
            sys.stdout.write(f"ready http://127.0.0.1:{ports['api']}\n")
            sys.stdout.flush()
            then()
        else:
            stop.wait(_LOOP_SECONDS)


def _connect(connect: ConnectOption | None, directory: DataDir, port: int, *, auth: bool) -> None:
    if connect is None:
        return
    token = {"TISTREAM_TOKEN_FILE": str(directory.first_token)} if auth else {}
    command = connect.command(directory.objects_url, f"http://127.0.0.1:{port}")
    # The output of `connect` goes to stderr, because stdout has only the line `ready …`.
    done = subprocess.run(
        command, env={**os.environ, **token}, stdout=sys.stderr, check=False, timeout=_CONNECT_SECONDS
    )
    if done.returncode:
        sys.stderr.write(f"{connect.pd} is not connected (status {done.returncode}); the platform runs without it\n")


def _is_ready(port: int) -> bool:
    # Importing httpx would take a quarter of a second of CPU from the starting services.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_READY_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _report(ended: ExitedChild, directory: DataDir, *, started: bool) -> None:
    how = f"status {ended.status}" if ended.status >= 0 else signal.Signals(-ended.status).name
    path = directory.logs / f"{ended.name}.log"
    if ended.status == _EXIT_SETTINGS and not started:
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        raise CliError(f"{ended.name} rejects its settings: {lines[-1] if lines else 'see ' + str(path)}")
    log.error("child ended", extra={"child": ended.name, "how": how, "restart_in_ms": ended.restart_in_ms})
    sys.stderr.write(f"{ended.name} ended ({how}), restarting in {ended.restart_in_ms} ms; see {path}\n")


def _specs(
    directory: DataDir,
    children: Mapping[str, str],
    ports: Mapping[str, int],
    listening: socket.socket,
    ranges: int | None,
    first_token: Path | None,
) -> list[ChildSpec]:
    metas = [f"http://127.0.0.1:{ports[name]}" for name, service in children.items() if service == "meta"]
    specs = []
    for name, service in children.items():
        settings = {
            "HOST": "127.0.0.1",
            "PORT": str(ports[name]),
            "META_URL": ",".join(metas),
            "OBJECTS_URL": directory.objects_url,
            "SERVICE_KEY_FILE": str(directory.service_key),
        }
        if name != service:
            settings["NODE_ID"] = name
        if service == "meta":
            settings["DATABASE_URL"] = directory.database_url
            if ranges is not None:
                settings["RANGES_PER_TENANT"] = str(ranges)
            if first_token is not None:
                settings["FIRST_TOKEN_FILE"] = str(first_token)
            settings |= timings(children)
        if service == "api":
            settings["SECRETS_PUBLIC_FILE"] = str(directory.secrets_public)
        if service == "changefeed":
            settings["SECRETS_KEY_FILE"] = str(directory.secrets_key)
        if service == "api" and first_token is not None:
            settings["AUTH"] = "on"
        fds: tuple[int, ...] = ()
        if name == "api":
            fds = (listening.fileno(),)
            settings["LISTEN_FD"] = str(listening.fileno())
        env = {f"TISTREAM_{service.upper()}__{key}": value for key, value in settings.items()}
        if service in ("api", "changefeed"):
            env |= {key: value for key, value in allocators.ENVIRON.items() if key not in os.environ}
        if service == "changefeed":
            env.setdefault(
                "TISTREAM_CHANGEFEED__SINK_HOSTS", os.environ.get("TISTREAM_CHANGEFEED__SINK_HOSTS", OWN_HOSTS)
            )
        if service in ("sorter", "ingest"):
            env["SPARK_LOCAL_DIRS"] = str(directory.scratch / name)
            env["JAVA_TOOL_OPTIONS"] = f"{JAVA_OPTIONS} {os.environ.get('JAVA_TOOL_OPTIONS', '')}".strip()
        argv = (sys.executable, "-m", SERVICES[service], name)  # the name is for those who read `ps`
        # The others report their usage to meta at their end.
        specs.append(ChildSpec(name, argv, env, fds, last=service == "meta", imports=_imports(service)))
    return specs


def timings(children: Mapping[str, str]) -> dict[str, str]:
    """The settings of meta for the time after which a process is missed, unless the environment has them."""
    alone = len(children) == len(set(children.values()))
    return {key: value for key, value in ALONE.items() if alone and f"TISTREAM_META__{key}" not in os.environ}


def _imports(service: str) -> tuple[str, ...]:
    """The modules to import before the service is forked: all that the service needs. For the sorter, only those that
    it needs to start its JVM; it imports the rest itself while the JVM starts."""
    module = SERVICES[service]
    if service == "sorter":
        return ("tistream.service.http.begin", f"{module}.settings", f"{module}.spark.session")
    return (f"{module}.app",)
