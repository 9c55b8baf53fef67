"""The commands `tistream rows`, `history`, `txn` and `diff`, and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

import time
from typing import Annotated

import typer

from tistream_cli.base_url import DEFAULT_URL
from tistream_cli.commands.tenant_app import Cluster, Tenant, Url
from tistream_cli.importing import importing

TableName = Annotated[str, typer.Argument(help="DATABASE.TABLE, such as shop.orders.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
_TIME = "now, 15m (before now), 2026-11-21T10:00:00Z, or a TSO"


def add_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(rows)
    app.command()(history)
    app.command()(txn)
    app.command()(diff)


def rows(
    table: TableName,
    cluster: Cluster,
    tenant: Tenant,
    at: Annotated[str, typer.Option(help=f"Read as of this time: {_TIME}.")] = "now",
    cursor: Annotated[str | None, typer.Option(help="Continue where an answer ended, at its ts.")] = None,
    key: Annotated[str | None, typer.Option(help='Only the row with this key: \'{"id":"1"}\'.')] = None,
    from_key: Annotated[str | None, typer.Option(help="Rows from this key on, or from its first columns.")] = None,
    to_key: Annotated[str | None, typer.Option(help="Rows below this key, or below its first columns.")] = None,
    columns: Annotated[str | None, typer.Option(help="Names of columns, with commas between.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of rows.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print a table's rows as they were at a time."""
    with importing():
        from tistream_cli.client import ApiClient
        from tistream_cli.points.reads import Named, pages
        from tistream_cli.points.show import show_json, show_rows
        from tistream_cli.points.times import ts_text

    first = {"ts": ts_text(at, _now_ms())} if cursor is None else {"cursor": cursor}
    params = {"key": key, "from_key": from_key, "to_key": to_key, "columns": columns}
    always = {name: value for name, value in params.items() if value is not None}
    lines = pages(ApiClient(url), Named.parse(cluster, tenant, table).path("rows"), first, always, limit)
    (show_json if as_json else show_rows)(lines)


def history(
    table: TableName,
    key: Annotated[str, typer.Argument(help='The row\'s key, as in events: \'{"id":"1"}\'.')],
    cluster: Cluster,
    tenant: Tenant,
    since: Annotated[str | None, typer.Option("--from", help=f"Versions after this time: {_TIME}.")] = None,
    to: Annotated[str, typer.Option(help="Versions up to this time.")] = "now",
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of newest versions.")] = 100,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the versions of one row, newest first."""
    with importing():
        from tistream_cli.client import ApiClient
        from tistream_cli.points.reads import Named, versions
        from tistream_cli.points.show import show_history, show_json
        from tistream_cli.points.times import ts_text

    params = {"key": key, "to": ts_text(to, _now_ms())}
    if since is not None:
        params["from"] = ts_text(since, _now_ms())
    found = versions(ApiClient(url), Named.parse(cluster, tenant, table), params, limit)
    (show_json if as_json else show_history)(found)


def txn(
    start_ts: Annotated[str, typer.Argument(help="The transaction's start_ts, as in events and histories.")],
    cluster: Cluster,
    tenant: Tenant,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print every row that one transaction changed."""
    with importing():
        from tistream_cli.client import ApiClient, tenant_path
        from tistream_cli.points.reads import answer_lines
        from tistream_cli.points.show import show_events, show_json

    lines = answer_lines(ApiClient(url), tenant_path(cluster, tenant, "transactions", start_ts), {})
    (show_json if as_json else show_events)(lines)


def diff(
    table: TableName,
    cluster: Cluster,
    tenant: Tenant,
    since: Annotated[str, typer.Option("--from", help=f"The earlier time: {_TIME}.")],
    to: Annotated[str, typer.Option(help="The later time.")] = "now",
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of keys.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the differences of a table between two times: each key once."""
    with importing():
        from tistream_cli.client import ApiClient
        from tistream_cli.points.reads import Named, pages
        from tistream_cli.points.show import show_events, show_json
        from tistream_cli.points.times import ts_text

    first = {"from": ts_text(since, _now_ms()), "to": ts_text(to, _now_ms())}
    lines = pages(ApiClient(url), Named.parse(cluster, tenant, table).path("diff"), first, {}, limit)
    (show_json if as_json else show_events)(lines)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
