"""The command `tistream simulate tikv`: serves an emulated TiKV cluster until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

if TYPE_CHECKING:
    from tistream_upstream.emulator.model.upstream import Upstream

_RAW_CLUSTER_ID = 8_000_000_000_000_000_000


def simulate_tikv(
    golden: Annotated[Path | None, typer.Option(help="Folder of a recorded change history to play.")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="With --golden: the schema_snap that reads of the meta keys show.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulated cluster, and of what stores choose at random.")] = 1,
    raw: Annotated[bool, typer.Option("--raw", help="An empty cluster of API V2, for raw keys.")] = False,
    stores: Annotated[int, typer.Option(min=1, help="TiKV stores; a recorded history has its own.")] = 3,
    regions: Annotated[int, typer.Option(min=1, help="Initial number of regions of the simulated cluster.")] = 12,
    rows_per_s: Annotated[
        float, typer.Option(min=0.1, help="Row changes per second of the simulated cluster.")
    ] = 200.0,
    faults_per_s: Annotated[float, typer.Option(min=0.0, help="Resets, stores down and congested regions.")] = 0.1,
    speed: Annotated[float, typer.Option(min=0.001, help="Seconds of a recorded history in one second.")] = 1.0,
    version: Annotated[str, typer.Option(help="TiKV version of all stores, for its quirks.")] = "",
    tls_dir: Annotated[
        Path | None, typer.Option(help="Folder with ca.pem, server.pem, server-key.pem: clients need certificates.")
    ] = None,
    listen: Annotated[str, typer.Option(help="Address of PD; port 0 takes a free one.")] = "127.0.0.1:0",
    duration: Annotated[float | None, typer.Option(min=0.0, help="Seconds; default: until Ctrl-C.")] = None,
) -> None:
    """Serve an emulated PD and TiKV cluster. Prints the address of PD, and at the end how much load its clients have
    caused."""
    from tistream.clock import SystemClock  # noqa: PLC0415
    from tistream.errors import TiStreamError  # noqa: PLC0415
    from tistream.service.signals import stop_signals  # noqa: PLC0415
    from tistream_client.cli.errors import CliError  # noqa: PLC0415
    from tistream_upstream.emulator.servers import Certificates, EmulatedCluster  # noqa: PLC0415

    if golden is not None and raw:
        raise CliError("--golden and --raw exclude each other: choose one")
    if schema is not None and golden is None:
        raise CliError("--schema belongs to --golden: add it, or leave --schema out")
    if golden is None and speed != 1.0:
        raise CliError("--speed belongs to --golden: a simulated cluster follows the clock")
    clock = SystemClock()
    with stop_signals() as stopped:
        try:
            upstream = (
                _golden(golden, seed, schema, version)
                if golden is not None
                else _new(clock.now_ms(), raw, seed, stores, regions, rows_per_s, faults_per_s, version or "8.5.4")
            )
            certificates = None if tls_dir is None else Certificates.of(tls_dir)
            held = golden is not None  # a recorded history begins with its first subscriber
            with EmulatedCluster(upstream, clock, speed, held, listen, certificates) as served:
                typer.echo(f"ready {served.pd_address} cluster {upstream.config.cluster_id}")
                stopped.wait(duration)
        except TiStreamError as error:
            raise CliError(str(error)) from error
        except OSError as error:
            raise CliError(f"{error.filename}: {error.strerror}") from error
    typer.echo(orjson.dumps(upstream.counters.as_json()).decode())


def _golden(folder: Path, seed: int, schema: Path | None, version: str) -> Upstream:
    from tistream_upstream.emulator.golden import GoldenSet  # noqa: PLC0415

    return GoldenSet.read(folder).upstream(seed, schema, version)


def _new(
    now_ms: int,
    raw: bool,
    seed: int,
    stores: int,
    regions: int,
    rows_per_s: float,
    faults_per_s: float,
    version: str,
) -> Upstream:
    from tistream_upstream.config import ClusterConfig  # noqa: PLC0415
    from tistream_upstream.emulator.model.quiet import quiet_upstream  # noqa: PLC0415
    from tistream_upstream.emulator.simulated import Faults, simulated_upstream  # noqa: PLC0415

    if raw:
        return quiet_upstream(_RAW_CLUSTER_ID + seed, now_ms, stores, version=version)
    config = ClusterConfig(
        begin_ms=now_ms, stores=stores, regions=regions, rows_per_s=rows_per_s, txns_per_s=max(0.1, rows_per_s / 4)
    )
    upstream, _ = simulated_upstream(config, seed, Faults(faults_per_s), version)
    return upstream
