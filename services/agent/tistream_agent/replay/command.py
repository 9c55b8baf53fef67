"""The command `tistream replay` and its options."""

# ruff: noqa: PLC0415 - the command imports its modules when it runs

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

Ca = Annotated[Path | None, typer.Option(help="Authority of the target's certificates.")]
Cert = Annotated[Path | None, typer.Option(help="Client certificate that the target accepts.")]
Key = Annotated[Path | None, typer.Option(help="Private key of the client certificate.")]

SAY_S = 10.0


def replay(
    cluster: Annotated[str, typer.Option(help="Upstream cluster id of the tenant.")],
    tenant: Annotated[str, typer.Option(help="Upstream tenant id.")],
    to_tikv: Annotated[str, typer.Option(help="Addresses of PD of the target, host:2379, separated by commas.")],
    state: Annotated[Path, typer.Option(help="File with the position, from which it continues after a restart.")],
    url: Annotated[str, typer.Option(help="Base URL of the API.", envvar="TISTREAM_URL")] = "http://127.0.0.1:8000",
    keyspace: Annotated[int | None, typer.Option(min=0, help="Only this keyspace (its id). Default: all.")] = None,
    start_ts: Annotated[str, typer.Option(help="Without a position: begin after this ts. Default: all kept.")] = "0",
    until_ts: Annotated[int | None, typer.Option(min=1, help="End once all up to this ts is written.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Batches that are written at once.")] = 4,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
) -> None:
    """Write the changes of a tenant of RawKV into another TiKV cluster: at least once, in order for each key."""
    from tistream.errors import TiStreamError
    from tistream.service.signals import stop_signals
    from tistream_agent.replay.raw_writer import Stopping

    of, tls = (cluster, tenant, keyspace), (ca, cert, key)
    try:
        with stop_signals() as stopped:
            _run(stopped, of, to_tikv, tls, url, state, start_ts, until_ts, concurrency)
    except Stopping:
        return
    except TiStreamError as error:
        sys.stderr.write(f"tistream: {error}\n")
        raise typer.Exit(1) from None


def _run(
    stopped: threading.Event,
    named: tuple[str, str, int | None],
    to_tikv: str,
    tls: tuple[Path | None, Path | None, Path | None],
    url: str,
    path: Path,
    start_ts: str,
    until_ts: int | None,
    concurrency: int,
) -> None:
    import httpx

    from tistream.clock import SystemClock
    from tistream.concurrency import new_executor
    from tistream.model.ids import TenantKey
    from tistream_agent.replay.raw_changes import RawChanges
    from tistream_agent.replay.raw_writer import RawWriter
    from tistream_agent.replay.replayer import Replayer
    from tistream_agent.replay.state_file import State, StateFile
    from tistream_agent.upstream.pd import PdClient
    from tistream_agent.upstream.stores import Channels, TlsFiles

    clock = SystemClock()
    said = _Said(clock.monotonic_ms)
    channels = Channels(TlsFiles(*tls))
    pd = PdClient([one.strip() for one in to_tikv.split(",") if one.strip()], channels)
    cluster, tenant, keyspace = named
    headers = {"accept-encoding": "identity", **_token()}
    with StateFile(path) as file, httpx.Client(headers=headers, trust_env=False) as http:
        changes = RawChanges(http, url, TenantKey.parse(cluster, tenant), keyspace)
        target = pd.cluster_id
        writer = RawWriter(pd, channels, stopped.wait, said.problem)
        workers = new_executor("replay", concurrency)

        def save(state: State) -> None:
            file.write(state)
            said.progress(f"up to {state.resolved_ts}, {replayer.counts.puts} puts, {replayer.counts.deletes} deletes")

        replayer = Replayer(
            str(changes),
            target,
            changes.pages,
            writer,
            file.read(str(changes), target),
            save,
            workers,
            concurrency,
            clock,
            lambda seconds: stopped.wait(seconds) if seconds else stopped.is_set(),
            said.problem,
            start_ts,
        )
        try:
            replayer.run(until_ts)
        finally:
            stopped.set()  # batches that are under way end too
            workers.shutdown(wait=True)
            writer.close()
        typer.echo(
            f"replayed up to {replayer.resolved_ts}: {replayer.counts.puts} puts, {replayer.counts.deletes} deletes"
        )


class _Said:
    """Prints progress and problems on stderr; each kind at most once in SAY_S seconds."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last: dict[str, float] = {}

    def progress(self, text: str) -> None:
        self._say("replay", text)

    def problem(self, text: str) -> None:
        self._say("again", text)

    def _say(self, kind: str, text: str) -> None:
        now = self._now_ms()
        if now - self._last.get(kind, -SAY_S * 1_000) >= SAY_S * 1_000:
            self._last[kind] = now
            sys.stderr.write(f"{kind}: {text}\n")


def _token() -> dict[str, str]:
    """The `Authorization` header with the API token, from the environment variables that all commands use; empty if
    they name no token. Raises InvalidRequest if the token's file cannot be read."""
    from tistream.errors import InvalidRequest

    path, text = os.environ.get("TISTREAM_TOKEN_FILE"), os.environ.get("TISTREAM_TOKEN", "").strip()
    if path:
        try:
            text = Path(path).read_text("utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise InvalidRequest(f"token file {path} cannot be read: {error}") from error
    return {"authorization": f"Bearer {text}"} if text else {}
