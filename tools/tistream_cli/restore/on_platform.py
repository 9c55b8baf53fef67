"""`tistream restore --on-platform`: the platform runs the restore, and this command shows its progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tistream.clock import SystemClock
from tistream.restore.table_names import parse_names
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import USAGE, CliError
from tistream_client.cli.times import ts_text

FORMS = "parquet:URL, sql:URL, or dsn:FILE, which are places of the platform"
_POLL_S = 1.0
_UNFINISHED = ("queued", "running")


@dataclass(frozen=True, slots=True)
class PlatformOptions:
    """The arguments of the command. `into`: a text of one of FORMS. `renames`: new names of databases, as OLD=NEW."""

    names: str
    at: str
    into: str | None
    renames: Sequence[str]
    if_exists: str
    dialect: str


def run_on_platform(
    client: ApiClient,
    cluster: str,
    tenant: str,
    options: PlatformOptions,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Start the restore, and show its progress until it ends. Raises CliError, also if it fails or leaves tables
    out."""
    body = body_of(options, ts_text(options.at, SystemClock().now_ms()))
    path = tenant_path(cluster, tenant, "restores")
    found = client.call("POST", path, body)
    name = found["restore_id"]
    sys.stderr.write(f"restore {name} as of {found['ts']}; it continues if this command ends\n")
    shown = ""
    while found["state"] in _UNFINISHED:
        line = progress(found)
        if line != shown:
            sys.stderr.write(line + "\n")
            shown = line
        sleep(_POLL_S)
        found = client.call("GET", tenant_path(cluster, tenant, "restores", name))
    for table in found["tables"]:
        if table["checksum"] is not None:
            sys.stdout.write(
                f"{table['database']}.{table['table']}: {table['rows']} rows, checksum {table['checksum']}\n"
            )
    if found["state"] != "done" or found["reason"] is not None:
        raise CliError(f"restore {name} is {found['state']}: {found['reason'] or 'it was ended'}")


def body_of(options: PlatformOptions, ts: str) -> dict[str, Any]:
    """Build the body of the request CreateRestore. Raises CliError."""
    try:
        names = parse_names(options.names)
    except ValueError as error:
        raise CliError(str(error)) from None
    scope = {"database": names.database, "table": names.table}
    return {
        "scope": {name: value for name, value in scope.items() if value is not None},
        "ts": ts,
        "target": _target(options),
        "if_exists": options.if_exists,
    }


def _target(options: PlatformOptions) -> Mapping[str, Any]:
    form, _, place = (options.into or "").partition(":")
    if not place or form not in ("parquet", "sql", "dsn"):
        raise CliError(f"--on-platform needs --into with {FORMS}: the platform has no access to other targets", USAGE)
    if options.renames and form != "dsn":
        raise CliError("--rename is for --into dsn:FILE: leave it out", USAGE)
    if form == "parquet":
        return {"kind": "parquet", "url": place}
    if form == "sql":
        return {"kind": "sql-files", "url": place, "dialect": options.dialect}
    renames = [one.partition("=") for one in options.renames]
    if any(not old or not new for old, _, new in renames):
        raise CliError("--rename has not the form OLD=NEW, such as shop=shop_old", USAGE)
    return {"kind": "mysql", "dsn_file": place, "rename": {old: new for old, _, new in renames}}


def progress(found: Mapping[str, Any]) -> str:
    """Format the progress of a restore as one line of text."""
    tables = found["tables"]
    rows = sum(one["rows"] or 0 for one in tables)
    done = sum(one["rows_done"] for one in tables)
    compared = sum(one["checksum"] is not None for one in tables)
    reason = f"; {found['reason']}" if found["reason"] else ""
    return f"{found['state']}: {done} of {rows} rows, {compared} of {len(tables)} tables compared{reason}"
