"""The command `tistream simulate`: options, signals and progress output."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from tistream_client.cli.base_url import checked
from tistream_upstream.emulator.command import simulate_tikv

if TYPE_CHECKING:
    from tistream.clock import Clock
    from tistream.model.ids import TenantKey
    from tistream.storage.object_store import ObjectStore
    from tistream_upstream.cluster import Cluster
    from tistream_upstream.config import ClusterConfig
    from tistream_upstream.driver import RunOutcome
    from tistream_upstream.platform_api import PlatformApi
    from tistream_upstream.progress import RunProgress

_SHOW_TTY_MS, _SHOW_MS = 500, 5_000
_GC_THRESHOLD = (50_000, 20, 50)  # hundreds of thousands of live rows, hardly any of them in a reference cycle


def register(app: typer.Typer) -> None:
    """Add the command and its subcommand to the application."""
    group = typer.Typer()
    group.callback(invoke_without_command=True)(simulate)
    group.command("tikv")(simulate_tikv)
    app.add_typer(group, name="simulate")


def simulate(
    context: typer.Context,
    objects: Annotated[
        str, typer.Option(help="Object store to push to: a directory, file:///… or s3://bucket/prefix.")
    ] = "",
    cluster: Annotated[str, typer.Option(help="Upstream cluster id.")] = "1",
    tenant: Annotated[str, typer.Option(help="Upstream tenant id; must be new.")] = "simulated",
    url: Annotated[
        str | None,
        typer.Option(
            help="URL of the platform's API, to create the tenant, announce files and ask for coverage.",
            callback=checked,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed; a run repeats as far as the clock and the platform's answers allow.")
    ] = 1,
    rows_per_s: Annotated[float, typer.Option(min=0.1, help="Row changes per second.")] = 1_000.0,
    txns_per_s: Annotated[float, typer.Option(min=0.1, help="Transactions per second.")] = 250.0,
    databases: Annotated[int, typer.Option(min=1)] = 2,
    tables: Annotated[int, typer.Option(min=1)] = 8,
    columns: Annotated[int, typer.Option(min=1, max=60, help="Columns per table, besides its key.")] = 8,
    rows_max: Annotated[int, typer.Option(min=1, help="Live rows per table.")] = 5_000,
    regions: Annotated[int, typer.Option(min=1, help="Initial number of regions.")] = 12,
    stores: Annotated[int, typer.Option(min=1)] = 3,
    push_ms: Annotated[int, typer.Option(min=10, help="Interval of pushes of each store, in milliseconds.")] = 1_000,
    churn_per_s: Annotated[
        float, typer.Option(min=0.0, max=20.0, help="Splits, merges, leader moves, restarts and crashes per second.")
    ] = 0.2,
    ddl_per_min: Annotated[float, typer.Option(min=0.0, max=600.0, help="DDL jobs per minute.")] = 0.0,
    huge_rows: Annotated[int, typer.Option(min=0, help="Rows of the largest transaction, one per minute.")] = 2_000,
    bursts: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the load that comes in bursts, from 0 to 1.")
    ] = 0.0,
    duration: Annotated[float | None, typer.Option(min=0.0, help="Seconds; default: until Ctrl-C.")] = None,
    truth: Annotated[Path | None, typer.Option(help="New file for truth lines, for `tistream verify`.")] = None,
    promises: Annotated[
        Path | None, typer.Option(help="New file for the ts that the stored files guarantee, with the time.")
    ] = None,
) -> None:
    """Simulate a TiKV cluster with TiDB: push changes in real time, and write a file with the truth about them."""
    if context.invoked_subcommand is not None:
        return
    from tistream.errors import InvalidRequest  # noqa: PLC0415
    from tistream.model.ids import TenantKey  # noqa: PLC0415
    from tistream_client.cli.errors import CliError  # noqa: PLC0415  # other commands do not load these
    from tistream_upstream.config import Churn, ClusterConfig, TxnMix  # noqa: PLC0415

    try:
        key = TenantKey.parse(cluster, tenant)
    except InvalidRequest as error:
        raise CliError(str(error)) from error
    if not objects:
        raise CliError("--objects is empty; give a directory, file:///… or s3://bucket/prefix")
    churn = Churn(per_s=churn_per_s)
    if url is None:  # without a platform no coverage is known, so no push may be lost
        churn = replace(churn, lost_push=0.0)
    config = ClusterConfig(
        tenant=key,
        stores=stores,
        regions=regions,
        databases=databases,
        tables=tables,
        columns=columns,
        rows_per_s=rows_per_s,
        txns_per_s=txns_per_s,
        rows_max=rows_max,
        bursts=bursts,
        mix=TxnMix(huge_rows=huge_rows),
        churn=churn,
        push_ms=push_ms,
        ddl_per_min=ddl_per_min,
    )
    _run(config, seed, objects, url, duration, truth, promises)


def _run(
    config: ClusterConfig,
    seed: int,
    objects: str,
    url: str | None,
    duration: float | None,
    truth: Path | None,
    promises: Path | None,
) -> None:
    from tistream.clock import SystemClock  # noqa: PLC0415
    from tistream.errors import TiStreamError  # noqa: PLC0415
    from tistream.service.signals import stop_signals  # noqa: PLC0415
    from tistream.storage.open import open_objects  # noqa: PLC0415
    from tistream_client.cli.errors import CliError  # noqa: PLC0415
    from tistream_upstream.cluster import Cluster  # noqa: PLC0415

    gc.set_threshold(*_GC_THRESHOLD)
    clock = SystemClock()
    with contextlib.ExitStack() as stack:
        stopped = stack.enter_context(stop_signals()).is_set
        try:
            where = str(Path(objects).absolute()) if "://" not in objects and objects != "memory:" else objects
            store = open_objects(where)
            _refuse_what_is_there(store, config, {"--truth": truth, "--promises": promises})
            api = None if url is None else _api(url, config.tenant)
            if api is not None:
                _register(api, stopped)
            lines = None if truth is None else stack.enter_context(_new_file("--truth", truth))
            told = None if promises is None else stack.enter_context(_new_file("--promises", promises))
            cluster = Cluster(replace(config, begin_ms=clock.now_ms()), seed)
            outcome = _drive(cluster, seed, store, api, lines, told, clock, _until(stopped, clock, duration))
        except TiStreamError as error:
            raise CliError(str(error)) from error
        except OSError as error:
            raise CliError(f"{error.filename or objects}: {error.strerror}") from error
    _report(cluster, outcome)


def _api(url: str, tenant: TenantKey) -> PlatformApi:
    from tistream.wire.clients.client import HttpClient  # noqa: PLC0415
    from tistream_client.cli import bearer, trust  # noqa: PLC0415
    from tistream_upstream.platform_api import DEADLINE_S, PlatformApi  # noqa: PLC0415

    http = HttpClient(deadline_s=DEADLINE_S, headers=bearer.headers(), tls=trust.tls_context())
    return PlatformApi(url, tenant, http)


def _refuse_what_is_there(store: ObjectStore, config: ClusterConfig, files: Mapping[str, Path | None]) -> None:
    """Check that the tenant has no change files, that the output files (by option) do not exist, and that their folders
    do. Existing files may belong to another run. Raises CliError if the check fails."""
    from tistream.storage import layout  # noqa: PLC0415
    from tistream_client.cli.errors import CliError  # noqa: PLC0415

    prefix = layout.push_prefix(config.tenant)
    if next(iter(store.list_after(prefix)), None) is not None:
        raise CliError(f"tenant {config.tenant} has files already ({prefix}); choose another --tenant")
    for option, path in files.items():
        if path is not None and path.is_file():
            raise _is_there(option, path)
        if path is not None and not path.absolute().parent.is_dir():
            raise CliError(f"{option} {path}: the folder {path.absolute().parent} does not exist")


def _new_file(option: str, path: Path) -> BinaryIO:
    """Create the file of an option, or open a pipe or device. Raises CliError if the file exists, and OSError."""
    try:
        return path.open("wb" if path.exists() and not path.is_file() else "xb")
    except FileExistsError as error:
        raise _is_there(option, path) from error


def _is_there(option: str, path: Path) -> Exception:
    from tistream_client.cli.errors import CliError  # noqa: PLC0415

    return CliError(
        f"{option} {path} is there already, and may belong to another run: choose another file, or remove it"
    )


def _register(api: PlatformApi, stopped: Callable[[], bool]) -> None:
    """Wait for the platform and create the tenant, before anything is written. Raises CliError if `stopped` returns
    True before the platform answers, and TiStreamError if the platform refuses the tenant."""
    from tistream import concurrency  # noqa: PLC0415
    from tistream_client.cli.errors import CliError  # noqa: PLC0415
    from tistream_upstream.driver import say_on_stderr  # noqa: PLC0415

    def pause(seconds: float) -> None:
        if not stopped():
            concurrency.sleep(seconds)
        if stopped():
            raise CliError("stopped before the platform answered; nothing was written")

    api.create_tenant(pause, say=say_on_stderr)


def _until(stopped: Callable[[], bool], clock: Clock, duration: float | None) -> Callable[[], bool]:
    """Make a function that returns whether a signal was received, or `duration` seconds have passed since now."""
    end_ms = None if duration is None else clock.monotonic_ms() + int(duration * 1000)
    return lambda: stopped() or (end_ms is not None and clock.monotonic_ms() >= end_ms)


def _drive(
    cluster: Cluster,
    seed: int,
    store: ObjectStore,
    api: PlatformApi | None,
    truth: BinaryIO | None,
    promises: BinaryIO | None,
    clock: Clock,
    stopping: Callable[[], bool],
) -> RunOutcome:
    """Run the cluster, with progress on stdout."""
    from tistream_upstream.driver import Driver, say_on_stderr  # noqa: PLC0415
    from tistream_verify.fingerprint import TruthRun  # noqa: PLC0415

    tenant = cluster.config.tenant
    run = TruthRun(tenant.cluster_id, tenant.tenant_id, seed, cluster.snapshot_ts)
    driver = Driver(cluster, store, api, truth, clock, say_on_stderr, run, promises)
    if sys.stdout.isatty():
        return driver.run(stopping, _shown_on_tty, _SHOW_TTY_MS)
    return driver.run(stopping, _shown, _SHOW_MS)


def _report(cluster: Cluster, outcome: RunOutcome) -> None:
    """Print a summary of the run. Raises CliError if coverage or pushes are missing."""
    from tistream_client.cli.errors import CliError  # noqa: PLC0415

    if sys.stdout.isatty():
        typer.echo()
    totals = cluster.totals
    typer.echo(
        f"pushed {totals.file_rows:,} entries of {totals.committed:,} transactions in {totals.files:,} files; "
        f"{totals.scans} scans, {totals.ddl_jobs} DDL jobs; the last truth line has ts {outcome.end_ts}"
    )
    if outcome.shed_ms:
        typer.echo(f"could not keep up with the clock: for {outcome.shed_ms / 1000:.1f} s no transactions began")
    if outcome.unanswered:
        raise CliError(f"{outcome.unanswered} requests for coverage were not answered, so lost spans were not scanned")
    if outcome.unput:
        raise CliError(f"{outcome.unput} bytes were not put, because the object store refuses them")


def _shown(progress: RunProgress) -> None:
    typer.echo(progress.line())


def _shown_on_tty(progress: RunProgress) -> None:
    typer.echo(f"\r\x1b[2K{progress.line()}", nl=False)
