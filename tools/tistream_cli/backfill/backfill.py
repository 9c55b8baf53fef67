"""The implementation of `tistream backfill …`. A tenant is a pair of cluster id and tenant id."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import CliError
from tistream_client.cli.output import json_wanted, say

LOOK_SECONDS = 1.0
Named = tuple[str, str]


def run_backfill(
    client: ApiClient,
    tenant: Named,
    source: dict[str, str | int],
    tables: list[str],
    *,
    wait: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Start a backfill; with `wait`, wait for its end and print its tables. Raises CliError, also if the backfill
    fails."""
    body = {"source": source, "tables": tables}
    begun = client.call("POST", tenant_path(*tenant, "backfills"), body)
    backfill_id = begun["backfill_id"]
    if not (wait and json_wanted()):
        say(f"backfill {backfill_id} of tenant {'/'.join(tenant)} runs", begun)
    if not wait:
        return
    while (found := _one(client, tenant, backfill_id))["state"] == "running":
        sleep(LOOK_SECONDS)
    _write([json.dumps(found, indent=2)] if json_wanted() else _lines(found))
    if found["state"] != "finished":
        raise CliError(
            f"backfill {backfill_id} is {found['state']}: the lines above say why; `tistream backfill run` begins "
            "another one"
        )


def list_backfills(client: ApiClient, tenant: Named, *, as_json: bool) -> None:
    """Print the backfills of a tenant. Raises CliError."""
    found: dict[str, list[dict[str, Any]]] = client.call("GET", tenant_path(*tenant, "backfills"))
    if as_json:
        _write([json.dumps(found, indent=2)])
        return
    if not found["backfills"]:
        _write([f"tenant {'/'.join(tenant)} has had no backfill"])
    for one in found["backfills"]:
        _write(_head(one))


def show_backfill(client: ApiClient, tenant: Named, backfill_id: str, *, as_json: bool) -> None:
    """Print a backfill and its tables. Raises CliError."""
    found = _one(client, tenant, backfill_id)
    _write([json.dumps(found, indent=2)] if as_json else _lines(found))


def cancel_backfill(client: ApiClient, tenant: Named, backfill_id: str) -> None:
    """Cancel a backfill. Raises CliError."""
    client.call("DELETE", tenant_path(*tenant, "backfills", backfill_id))
    text = f"backfill {backfill_id} of tenant {'/'.join(tenant)} cancelled; the tenant keeps its rows"
    say(text, {"backfill_id": backfill_id})


def _one(client: ApiClient, tenant: Named, backfill_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.call("GET", tenant_path(*tenant, "backfills", backfill_id))
    return found


def _head(one: dict[str, Any]) -> list[str]:
    source = " ".join(filter(None, (one["source"]["kind"], one["source"].get("url"))))
    lines = [f"{one['backfill_id']}  {one['state']}  {source}  {' '.join(one['asked'])}"]
    return lines if one["reason"] is None else [*lines, f"  {one['reason']}"]


def _lines(found: dict[str, Any]) -> list[str]:
    lines = _head(found)
    for table in found["tables"]:
        name = f"{table['database']}.{table['table']}" if table["database"] else table["table"]
        rows = "rows being counted" if table["rows"] is None else f"{table['rows']} rows"
        begins = "not complete" if table["base_ts"] is None else f"complete from {table['base_ts']} on"
        lines.append(f"  {name}: {begins}; {table['chunks_done']} of {table['chunks']} chunks, {rows}")
        if table["held_by"] is not None:
            lines.append(f"    {table['held_by']}")
    return lines


def _write(lines: list[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
