"""The commands `tistream pull` and `tistream tail`, and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Cluster, Tenant, Url
from tistream_client.cli.pull.format import PullEvents, PullFormat, PullRequest, directory, named_table, operations_form
from tistream_client.cli.pull.run_pull import run
from tistream_client.cli.times import FORMS, SINCE_FORMS, since_form, time_form

Columns = Annotated[str | None, typer.Option(help="Names of columns, with commas between: id,total.")]
Operations = Annotated[str | None, typer.Option(callback=operations_form, help="Only these: insert,update,delete.")]
Tables = Annotated[str | None, typer.Option(help="Only tables that rules of TiCDC include: 'shop.*,!shop.secret'.")]
Where = Annotated[str | None, typer.Option(help="Only rows for which this is true: 'total > 100'.")]


def pull(
    cluster: Cluster,
    tenant: Tenant,
    table: Annotated[str | None, typer.Option(help="Only this table: shop.orders.")] = None,
    database: Annotated[str | None, typer.Option(help="Only this database.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", "--start-ts", callback=since_form, help=f"Begin after: {SINCE_FORMS}. Default: earliest."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", "--end-ts", callback=time_form, help=f"End here, once it is resolved: {FORMS}."),
    ] = None,
    columns: Columns = None,
    where: Where = None,
    operations: Operations = None,
    tables: Tables = None,
    form: Annotated[PullFormat, typer.Option("--format", help="arrow: IPC streams; parquet: files, needs -o.")] = (
        PullFormat.NDJSON
    ),
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            parser=directory,
            metavar="DIRECTORY",
            help="For parquet, ndjson; the same command continues it.",
        ),
    ] = None,
    cursor: Annotated[str | None, typer.Option(help="Begin at the cursor of an earlier pull.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of row and ddl events.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue endlessly; ndjson only.")] = False,
    events: Annotated[
        PullEvents | None,
        typer.Option(
            help="Default: all. Required with --format arrow: rows (of --table) and ddl give one IPC stream, "
            "all gives several, one after the other."
        ),
    ] = None,
    squash: Annotated[
        bool, typer.Option("--squash", help="Net changes only: each key once. With --since, or the first --cursor.")
    ] = False,
    snapshot: Annotated[
        str | None,
        typer.Option(callback=time_form, help=f"The rows as of then, and the changes after: {FORMS}; ndjson only."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="The changes of a tenant of RawKV.")] = False,
    keyspace: Annotated[
        int | None, typer.Option(min=0, help="With --raw: only this keyspace (its id). Default: all.")
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Print events until the pull has caught up. The last line has the cursor from which the next pull continues."""
    request = PullRequest(
        *(cluster, tenant, *named_table(database, table), since, cursor, until, limit, follow, events),
        raw=raw,
        keyspace=keyspace,
        snapshot=snapshot,
        columns=columns,
        where=where,
        operations=operations,
        tables=tables,
        since=since,
    )
    run(request, form, out, url, squash=squash)


def tail(
    cluster: Cluster,
    tenant: Tenant,
    table: Annotated[str | None, typer.Argument(help="Only this table: shop.orders. Default: all.")] = None,
    database: Annotated[str | None, typer.Option(help="Only this database.")] = None,
    since: Annotated[str, typer.Option(callback=since_form, help=f"Begin after: {SINCE_FORMS}.")] = "now",
    columns: Columns = None,
    where: Where = None,
    operations: Operations = None,
    tables: Tables = None,
    limit: Annotated[int | None, typer.Option("-n", "--limit", min=1, help="End after this number of events.")] = None,
    color: Annotated[
        bool | None, typer.Option("--color/--no-color", help="Default: on a terminal, unless $NO_COLOR is set.")
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Show changes as they are committed, for eyes: one line for each row and DDL."""
    with importing():
        from tistream_client.cli.api_client import ApiClient
        from tistream_client.cli.pull.run_pull import placed
        from tistream_client.cli.pull.tail import run_tail

    client = ApiClient(url)
    names = named_table(database, table, "TABLE")
    request = PullRequest(
        *(cluster, tenant, *names, since),
        follow=True,
        columns=columns,
        where=where,
        operations=operations,
        tables=tables,
    )
    run_tail(client, placed(client, request), limit, color)
