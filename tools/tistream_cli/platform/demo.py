"""`tistream demo`: pushes the recorded changes of a TiDB in real time, and shows the events that a consumer
receives."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tistream.clock import Clock, SystemClock
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream_cli.platform.data_dir import OWN_UMASK
from tistream_cli.platform.demo_platform import DemoClient, empty_data_dir, notification, platform_of
from tistream_cli.platform.demo_report import PulledEvents, excerpt, lags_ms, percentile
from tistream_cli.platform.recorded import Recorded, load_recorded
from tistream_client.cli.api_client import ApiClient, changes_path, tenant_path
from tistream_client.cli.errors import CliError
from tistream_client.core.errors import ApiError

_CATCH_UP_SECONDS = 600
_EXCERPT_DDLS = 5


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The arguments of the demo: the recorded set to push, the platform's data directory, and its port (0: any free
    port)."""

    golden: Path
    data_dir: Path
    port: int


def run_demo(options: DemoOptions) -> None:
    """Run the demo. Raises CliError if the platform fails, or the consumer does not receive the recorded changes."""
    console = Console(highlight=False, soft_wrap=True)
    recorded = load_recorded(options.golden)
    os.umask(OWN_UMASK)  # this process writes into the platform's directory
    empty_data_dir(options.data_dir)
    console.print(f"starting TiStream in {options.data_dir} …")
    with platform_of(options.data_dir, options.port) as url:
        console.print(f"ready at {url}")
        client = DemoClient(url)
        tenant = recorded.tenant
        DirectoryObjectStore(options.data_dir / "objects").put(layout.schema_snap(tenant), recorded.schema_snap)
        client.call("POST", tenant_path(tenant.cluster_id), {"tenant_id": tenant.tenant_id})
        seconds = recorded.arrivals[-1].at_ms / 1000
        console.print(
            f"tenant {tenant}: pushing {len(recorded.arrivals)} change files of "
            f"{len({a.store_id for a in recorded.arrivals})} stores as they were recorded, over {seconds:.1f} s"
        )
        seen, arrived = _push_and_follow(url, recorded, options.data_dir, SystemClock())
    _print_report(console, recorded, seen, arrived)
    check(recorded, seen)


def _push_and_follow(url: str, recorded: Recorded, data_dir: Path, clock: Clock) -> tuple[PulledEvents, dict[str, int]]:
    """Push every file at its recorded time while a consumer follows. Returns the events that the consumer has received,
    and when each file was pushed: by the file's key, in monotonic ms."""
    seen = PulledEvents()
    consumer = threading.Thread(target=follow, args=(url, recorded, seen, clock, recorded.snapshot_ts), daemon=True)
    objects = DirectoryObjectStore(data_dir / "objects")
    consumer.start()
    client = DemoClient(url)
    arrived: dict[str, int] = {}
    pause = threading.Event()
    started_ms = clock.monotonic_ms()
    for arrival in recorded.arrivals:
        body = arrival.path.read_bytes()
        pause.wait(max(0.0, (started_ms + arrival.at_ms - clock.monotonic_ms()) / 1000))
        objects.put(arrival.key, body)
        arrived[arrival.key] = clock.monotonic_ms()
        client.call("POST", "/v1/notifications", notification(recorded, arrival.store_id, arrival.ts))
    consumer.join(_CATCH_UP_SECONDS)
    if seen.failure is not None:
        raise CliError(seen.failure)
    if consumer.is_alive():
        tenant = recorded.tenant
        status = client.call("GET", tenant_path(tenant.cluster_id, tenant.tenant_id, "status"))
        raise CliError(
            f"the consumer has not received all events in {_CATCH_UP_SECONDS} s: status.held_by says what is late: "
            f"{status}"
        )
    return seen, arrived


def follow(url: str, recorded: Recorded, seen: PulledEvents, clock: Clock, start_ts: int) -> None:
    """Pull the tenant from `start_ts` on until all recorded changes have arrived, and record the arrival time of each
    line in `seen`."""
    tenant, client = recorded.tenant, ApiClient(url)
    path = changes_path(tenant.cluster_id, tenant.tenant_id, None, None)
    deadline_ms = clock.monotonic_ms() + _CATCH_UP_SECONDS * 1000
    pause = threading.Event()
    while clock.monotonic_ms() < deadline_ms:
        at = {"cursor": seen.cursor} if seen.cursor else {"start_ts": str(start_ts)}
        try:
            for line in client.lines(path, {**at, "follow": "true"}):
                seen.see(line, clock.monotonic_ms())
                if seen.resolved_ts >= recorded.end_ts:
                    return
        except (ApiError, CliError) as error:
            # Pulls of a tenant return 503 until its schema_snap has been read.
            seen.trouble = str(error)
        pause.wait(0.1)
    seen.failure = f"the consumer timed out: {seen.trouble or 'the end was not reached'}"


def _print_report(console: Console, recorded: Recorded, seen: PulledEvents, arrived: dict[str, int]) -> None:
    console.print("\nan excerpt of the consumer's events:\n")
    for line in excerpt(seen.events, _EXCERPT_DDLS):
        console.print(line, markup=False)
    last = {a.key: a.commit_ts_max for a in recorded.arrivals if a.commit_ts_max is not None}
    lags = lags_ms(arrived, last, seen.resolved)
    console.print(f"\n{seen.rows} row events, {seen.ddls} DDL events, resolved_ts {seen.resolved_ts}")
    console.print(
        f"lag, from a file's arrival until a following pull has returned all its rows: "
        f"p50 {percentile(lags, 50) / 1000:.2f} s, p99 {percentile(lags, 99) / 1000:.2f} s, "
        f"max {lags[-1] / 1000:.2f} s, {len(lags)} files"
    )


def check(recorded: Recorded, seen: PulledEvents) -> None:
    """Compare the numbers of rows that were removed and added with those that TiDB's own SELECTs gave. Raises CliError
    if they differ."""
    expected = (recorded.rows_removed, recorded.rows_added)
    if (seen.removed, seen.added) != expected:
        raise CliError(
            f"the consumer received (rows removed, rows added) {(seen.removed, seen.added)}, and TiDB's own SELECTs "
            f"give {expected}: this is a fault of TiStream; keep the data directory and report it"
        )
