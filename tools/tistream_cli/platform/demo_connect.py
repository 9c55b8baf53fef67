"""`tistream demo-connect`: connects an unmodified TiDB cluster, which is emulated over gRPC from a recording, and shows
that a consumer receives its changes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import grpc
from rich.console import Console

from tistream.clock import Clock, SystemClock
from tistream.model.ts import physical_ms
from tistream.service.lifetime import PARENT_VARIABLE
from tistream.storage import layout
from tistream.wire.tikv import pdpb_pb2 as pdpb
from tistream_cli.platform.data_dir import OWN_UMASK
from tistream_cli.platform.demo import check, follow
from tistream_cli.platform.demo_platform import DemoClient, empty_data_dir, platform_of
from tistream_cli.platform.demo_report import PulledEvents, excerpt, lags_ms, percentile
from tistream_cli.platform.ports import free_ports
from tistream_cli.platform.recorded import Recorded, load_recorded
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import CliError

_EXCERPT_DDLS = 5
_PD_SECONDS = 30
_SCHEMA_SECONDS = 600
_POLL_SECONDS = 0.2
_STOP_SECONDS = 15


@dataclass(frozen=True, slots=True)
class DemoConnectOptions:
    """The arguments of the command. `changes`: the recorded change streams of the set's TiKVs. `port`: that of the
    platform; 0: any free port."""

    golden: Path
    changes: Path
    data_dir: Path
    port: int


def run_demo_connect(options: DemoConnectOptions) -> None:
    """Run the demo. Raises CliError if a part fails, or if the events are not the recorded ones."""
    console = Console(highlight=False, soft_wrap=True)
    recorded = load_recorded(options.golden)
    os.umask(OWN_UMASK)  # this process writes into the platform's directory
    empty_data_dir(options.data_dir)
    console.print(f"starting TiStream in {options.data_dir} …")
    with platform_of(options.data_dir, options.port) as url, ExitStack() as stack:
        snap = options.golden / "objects" / layout.schema_snap(recorded.tenant)
        tikv = ["simulate", "tikv", "--golden", str(options.changes), "--schema", str(snap)]
        started = stack.enter_context(_child(tikv, subprocess.PIPE))
        assert started.stdout is not None
        ready = started.stdout.readline().split()
        if not ready:
            raise CliError(f"`tistream {' '.join(tikv)}` ended before it was ready: its error is above")
        pd, cluster_id = ready[1], int(ready[3])
        console.print(f"ready at {url}; an emulated TiDB cluster has its PD at {pd}")
        where = ["--pd", pd, "--objects", str((options.data_dir / "objects").resolve()), "--url", url]
        where += ["--cluster", recorded.tenant.cluster_id, "--tenant", recorded.tenant.tenant_id]
        _connect(console, where)
        (port,) = free_ports(1, random.SystemRandom())
        log = stack.enter_context((options.data_dir / "logs" / "agent.log").open("ab"))
        console.print(f"\n$ tistream agent run {' '.join(where)}", markup=False)
        stack.enter_context(_child(["agent", "run", *where, "--port", str(port)], log))
        clock = SystemClock()
        seen = _received(url, recorded, clock)
        ahead_ms = _now_ms(pd, cluster_id) - clock.monotonic_ms()
    _report(console, seen, ahead_ms)
    check(recorded, seen)


def _connect(console: Console, where: Sequence[str]) -> None:
    console.print(f"\n$ tistream connect {' '.join(where)}", markup=False)
    done = subprocess.run([*_command(), "connect", *where], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise CliError(f"`tistream connect` ended with status {done.returncode}: its error is above")


def _received(url: str, recorded: Recorded, clock: Clock) -> PulledEvents:
    """Follow the tenant until all recorded changes have arrived. Returns the received events."""
    seen = PulledEvents()
    follow(url, recorded, seen, clock, _snapshot_ts(DemoClient(url), recorded))
    if seen.failure is not None:
        raise CliError(seen.failure)
    return seen


def _snapshot_ts(client: ApiClient, recorded: Recorded) -> int:
    """The ts at which `connect` read the schema. Waits until the platform has read that schema. Raises CliError."""
    path = tenant_path(recorded.tenant.cluster_id)
    pause = threading.Event()
    for _ in range(int(_SCHEMA_SECONDS / _POLL_SECONDS)):
        (found,) = client.call("GET", path)["tenants"]
        if found["snapshot_ts"] is not None:
            return int(found["snapshot_ts"])
        pause.wait(_POLL_SECONDS)
    raise CliError(
        f"the schema was not read in {_SCHEMA_SECONDS} s: see the log of the schema registry in the data directory's "
        "logs"
    )


def _now_ms(pd: str, cluster_id: int) -> int:
    """Ask PD for a timestamp. Returns its physical time in ms. Raises CliError."""
    request = pdpb.TsoRequest(header=pdpb.RequestHeader(cluster_id=cluster_id), count=1)
    try:
        with grpc.insecure_channel(pd) as channel:
            tso = channel.stream_stream(
                "/pdpb.PD/Tso",
                request_serializer=lambda one: one.SerializeToString(),
                response_deserializer=pdpb.TsoResponse.FromString,
            )
            answer = next(iter(tso(iter([request]), timeout=_PD_SECONDS)))
            return int(answer.timestamp.physical)
    except grpc.RpcError as error:
        raise CliError(f"PD at {pd} gives no timestamp: {error}") from error


def _report(console: Console, seen: PulledEvents, ahead_ms: int) -> None:
    """Print the number of events and their lag. `ahead_ms`: PD's clock minus the monotonic clock, in ms."""
    console.print("\nan excerpt of the consumer's events:\n")
    for line in excerpt(seen.events, _EXCERPT_DDLS):
        console.print(line, markup=False)
    commits = {text: int(text) for text in {event["commit_ts"] for event in seen.events}}
    happened = {text: physical_ms(ts) - ahead_ms for text, ts in commits.items()}
    lags = lags_ms(happened, commits, seen.resolved)
    console.print(
        f"\n{seen.rows} row events, {seen.ddls} DDL events; lag, from a commit in TiKV until a following pull has "
        f"returned it: p50 {percentile(lags, 50) / 1000:.2f} s, p99 {percentile(lags, 99) / 1000:.2f} s, "
        f"max {lags[-1] / 1000:.2f} s, {len(lags)} commits"
    )


def _command() -> list[str]:
    return [sys.executable, "-m", "tistream_cli"]


@contextmanager
def _child(arguments: Sequence[str], out: int | IO[bytes]) -> Iterator[subprocess.Popen[str]]:
    """Run a `tistream` command as a child process for a `with` block, and stop it at the end."""
    process = subprocess.Popen(
        [*_command(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=None if out is subprocess.PIPE else out,
        text=True,
        env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
