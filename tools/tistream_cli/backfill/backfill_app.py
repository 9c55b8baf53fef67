"""The commands of `tistream backfill` and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from typing import Annotated

import typer

from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Cluster, Json, Tenant, Url
from tistream_client.cli.output import new_app

backfill_app = new_app("Backfills: rows that were there before a tenant's changes.")

Backfill = Annotated[str, typer.Argument(help="Backfill id, as `tistream backfill list` shows it.")]


@backfill_app.command("run")
def backfill_run(
    cluster: Cluster,
    tenant: Tenant,
    br_full: Annotated[str | None, typer.Option(help="A full backup of BR, as s3://bucket/prefix.")] = None,
    sql_dsn_file: Annotated[
        str | None, typer.Option(help="Read a TiDB by SQL: a file below TISTREAM_INGEST__BACKFILL_DSN_DIR.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Connections of a backfill by SQL.")] = 8,
    push: Annotated[bool, typer.Option("--push", help="Another program pushes the plan and the chunks.")] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", "--tables", help="database.table, with * and ? as wildcards; may be repeated. Default: *.*"
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end, and show its tables.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Bring in the rows that tables had before the tenant's changes began."""
    if (br_full is not None) + (sql_dsn_file is not None) + push != 1:
        raise typer.BadParameter("give one of --br-full, --sql-dsn-file and --push", param_hint="--br-full")
    with importing():
        from tistream_cli.backfill.backfill import run_backfill
        from tistream_client.cli.api_client import ApiClient

    source: dict[str, str | int] = {"kind": "push"}
    if br_full is not None:
        source = {"kind": "br-full", "url": br_full}
    elif sql_dsn_file is not None:
        source = {"kind": "sql", "dsn_file": sql_dsn_file, "threads": threads}
    run_backfill(ApiClient(url), (cluster, tenant), source, table or ["*.*"], wait=wait)


@backfill_app.command("list")
def backfill_list(cluster: Cluster, tenant: Tenant, as_json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List a tenant's backfills, newest first."""
    with importing():
        from tistream_cli.backfill.backfill import list_backfills
        from tistream_client.cli.api_client import ApiClient

    list_backfills(ApiClient(url), (cluster, tenant), as_json=as_json)


@backfill_app.command("show")
def backfill_show(
    backfill: Backfill, cluster: Cluster, tenant: Tenant, as_json: Json = False, url: Url = DEFAULT_URL
) -> None:
    """Show the progress of each table of a backfill, and what it waits for."""
    with importing():
        from tistream_cli.backfill.backfill import show_backfill
        from tistream_client.cli.api_client import ApiClient

    show_backfill(ApiClient(url), (cluster, tenant), backfill, as_json=as_json)


@backfill_app.command("cancel")
def backfill_cancel(backfill: Backfill, cluster: Cluster, tenant: Tenant, url: Url = DEFAULT_URL) -> None:
    """Cancel a backfill. The tenant keeps the rows that were brought in."""
    with importing():
        from tistream_cli.backfill.backfill import cancel_backfill
        from tistream_client.cli.api_client import ApiClient

    cancel_backfill(ApiClient(url), (cluster, tenant), backfill)
