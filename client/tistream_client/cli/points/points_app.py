"""The commands `tistream rows`, `history`, `txn` and `diff`, and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from typing import Annotated

import typer

from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Cluster, Json, Tenant, Url
from tistream_client.cli.times import FORMS, SINCE_FORMS, now_ms, since_form, start_ts_form, time_form

TableName = Annotated[str, typer.Argument(help="DATABASE.TABLE, such as shop.orders.")]


def add_commands(app: typer.Typer) -> None:
    """Add the commands `rows`, `history`, `txn` and `diff` to the application."""
    app.command()(rows)
    app.command()(history)
    app.command()(txn)
    app.command()(diff)


def rows(
    table: TableName,
    cluster: Cluster,
    tenant: Tenant,
    at: Annotated[str, typer.Option(callback=time_form, help=f"Read as of this time: {FORMS}.")] = "now",
    cursor: Annotated[str | None, typer.Option(help="Continue where an answer ended, at its ts.")] = None,
    key: Annotated[str | None, typer.Option(help="Only the row with this key: id=1, or JSON.")] = None,
    from_key: Annotated[str | None, typer.Option(help="Rows from this key on, or from its first columns.")] = None,
    to_key: Annotated[str | None, typer.Option(help="Rows below this key, or below its first columns.")] = None,
    columns: Annotated[str | None, typer.Option(help="Names of columns, with commas between: id,total.")] = None,
    where: Annotated[str | None, typer.Option(help="Only rows for which this is true: 'total > 100'.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of rows.")] = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print a table's rows as they were at a time."""
    with importing():
        from tistream_client.cli.api_client import ApiClient
        from tistream_client.cli.points.reads import Named, key_text, pages
        from tistream_client.cli.points.show import show_json, show_rows
        from tistream_client.cli.times import ts_text

    first = {"ts": ts_text(at, now_ms())} if cursor is None else {"cursor": cursor}
    keys = {"key": key, "from_key": from_key, "to_key": to_key}
    always = {name: key_text(value) for name, value in keys.items() if value is not None}
    always |= {name: value for name, value in (("columns", columns), ("where", where)) if value is not None}
    lines = pages(ApiClient(url), Named.parse(cluster, tenant, table).path("rows"), first, always, limit)
    (show_json if as_json else show_rows)(lines)


def history(
    table: TableName,
    key: Annotated[str, typer.Argument(help="The row's key: id=1, or JSON as in events.")],
    cluster: Cluster,
    tenant: Tenant,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", "--from", callback=since_form, help=f"Versions after: {SINCE_FORMS}. Default: earliest."
        ),
    ] = None,
    to: Annotated[str, typer.Option("--until", "--to", callback=time_form, help="Versions up to this time.")] = "now",
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of newest versions.")] = 100,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the versions of one row, newest first."""
    with importing():
        from tistream_client.cli.api_client import ApiClient
        from tistream_client.cli.points.reads import Named, key_text, versions
        from tistream_client.cli.points.show import show_history, show_json
        from tistream_client.cli.times import since_text, ts_text

    params = {"key": key_text(key), "to": ts_text(to, now_ms())}
    if (low := since_text(since, now_ms())) is not None:
        params["from"] = low
    found = versions(ApiClient(url), Named.parse(cluster, tenant, table), params, limit)
    (show_json if as_json else show_history)(found)


def txn(
    start_ts: Annotated[
        str, typer.Argument(callback=start_ts_form, help="The transaction's start_ts, as in events and histories.")
    ],
    cluster: Cluster,
    tenant: Tenant,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print every row that one transaction changed."""
    with importing():
        from tistream_client.cli.api_client import ApiClient, tenant_path
        from tistream_client.cli.points.reads import answer_lines
        from tistream_client.cli.points.show import show_events, show_json

    lines = answer_lines(ApiClient(url), tenant_path(cluster, tenant, "transactions", start_ts), {})
    (show_json if as_json else show_events)(lines)


def diff(
    table: TableName,
    cluster: Cluster,
    tenant: Tenant,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", "--from", callback=since_form, help=f"The earlier time: {SINCE_FORMS}. With --key: all."
        ),
    ] = None,
    to: Annotated[str, typer.Option("--until", "--to", callback=time_form, help="The later time.")] = "now",
    key: Annotated[str | None, typer.Option(help="The history of this row, change by change: id=1, or JSON.")] = None,
    cursor: Annotated[str | None, typer.Option(help="Continue where an answer ended, between its times.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of keys; with --key, of newest changes.")] = (
        None
    ),
    as_json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the differences of a table between two times, each key once; with --key, each change of one row."""
    if cursor is not None and (key is not None or since is not None):
        raise typer.BadParameter("cannot be used with --since or --key", param_hint="--cursor")
    if key is None and since is None and cursor is None:
        raise typer.BadParameter(
            "is missing: --since 2h, or --key id=1 for the history of one row", param_hint="--since"
        )
    with importing():
        from tistream_client.cli.api_client import ApiClient
        from tistream_client.cli.points.reads import Named, earliest, key_text, pages, versions
        from tistream_client.cli.points.show import oldest_first, show_events, show_json, show_row_diff
        from tistream_client.cli.times import since_text, ts_text

    client, named = ApiClient(url), Named.parse(cluster, tenant, table)
    low = since_text(since, now_ms())
    times = {"to": ts_text(to, now_ms())} | ({} if low is None else {"from": low})
    if key is None:
        first = {"cursor": cursor} if cursor is not None else times
        if cursor is None and low is None:
            first["from"] = earliest(client, named.path("changes"))
        lines = pages(client, named.path("diff"), first, {}, limit)
        (show_json if as_json else show_events)(lines)
        return
    found = versions(client, named, {"key": key_text(key), **times}, limit or 1_000_000)
    (show_json if as_json else show_row_diff)(oldest_first(found))
