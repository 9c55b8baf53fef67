"""The implementation of `tistream source …`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

from tistream.model.ts import physical_ms
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.output import json_wanted, say


def add_source(client: ApiClient, cluster: str, tenant: str, url: str, br_full: str | None) -> None:
    """Make a log backup the source of a tenant. `br_full`: the URL of a full backup, from which the rows from before
    the log are backfilled. Raises CliError; if the log backup cannot be read, with the reason."""
    snapshot = {"kind": "none"} if br_full is None else {"kind": "br-full", "url": br_full}
    body = {"kind": "log-backup", "url": url, "snapshot": snapshot}
    added = client.call("POST", tenant_path(cluster, tenant, "sources"), body)
    say(f"source {added['source_id']} of tenant {cluster}/{tenant} added", added)
    if br_full is not None and not json_wanted():
        sys.stdout.write("the backfill of all tables has begun: tistream backfill list\n")


def remove_source(client: ApiClient, cluster: str, tenant: str, source: str) -> None:
    """Remove a source. Raises CliError."""
    client.call("DELETE", tenant_path(cluster, tenant, "sources", source))
    say(f"source {source} of tenant {cluster}/{tenant} removed; the tenant keeps what it has", {"source_id": source})


def list_sources(client: ApiClient, cluster: str, tenant: str, *, as_json: bool) -> None:
    """Print the sources of a tenant. Raises CliError."""
    found: list[dict[str, Any]] = client.call("GET", tenant_path(cluster, tenant, "sources"))
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    if not found:
        sys.stdout.write(f"tenant {cluster}/{tenant} has no source: stores push to it\n")
    for one in found:
        sys.stdout.write("\n".join(_lines(one)) + "\n")


def _lines(one: dict[str, Any]) -> list[str]:
    lines = [f"{one['source_id']}  {one['kind']}  {one['state']}"]
    if one["reason"]:
        lines.append(f"  {one['reason']}")
    for name in ("checkpoint_ts", "released_ts", "safe_point_ts"):
        if one[name] is not None:
            lines.append(f"  {name} {one[name]} ({_time(physical_ms(int(one[name])))})")
    if one["flush_interval_s"] is not None:
        lines.append(f"  flushes every {one['flush_interval_s']:g} s")
    stores = [store for store in one["stores"] if store["newest_flush_ms"] is not None]
    if stores:
        slowest = min(stores, key=lambda store: int(store["newest_flush_ms"]))
        lines.append(f"  slowest store {slowest['store_id']}: newest flush {_time(slowest['newest_flush_ms'])}")
    return lines


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
