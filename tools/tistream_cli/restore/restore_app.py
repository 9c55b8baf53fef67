"""The commands `tistream restore` and `tistream undo` and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Cluster, Tenant, Url
from tistream_client.cli.times import FORMS, start_ts_form, time_form

IntoFile = Annotated[
    Path | None, typer.Option(help="A file with the text of --into, so that no password is in the list of processes.")
]


class IfExists(StrEnum):
    """The values of --if-exists: what to do if the target has a table that this restore has not created."""

    FAIL = "fail"
    REPLACE = "replace"


class Server(StrEnum):
    """The values of --dialect: the servers whose SQL can be written."""

    TIDB = "tidb"
    MYSQL = "mysql"
    MARIADB = "mariadb"


class Output(StrEnum):
    """The values of --output: how a plan is printed."""

    TEXT = "text"
    JSON = "json"


def _start_ts(texts: list[str] | None) -> list[str] | None:
    for text in texts or ():
        start_ts_form(text)
    return texts


def restore(
    cluster: Cluster,
    tenant: Tenant,
    names: Annotated[str, typer.Argument(help="shop.orders, shop (its tables), or * (all tables).")] = "*",
    at: Annotated[str, typer.Option(callback=time_form, help=f"The tables as of this time: {FORMS}.")] = "now",
    into: Annotated[
        str | None, typer.Option(help="mysql://user:password@host:port/database, parquet:DIR, or sql:DIR.")
    ] = None,
    into_file: IntoFile = None,
    as_name: Annotated[str | None, typer.Option("--as", help="Another name for the one restored table.")] = None,
    if_exists: Annotated[IfExists, typer.Option(help="When the target has the table.")] = IfExists.FAIL,
    dialect: Annotated[Server, typer.Option(help="The server that files are written for.")] = Server.TIDB,
    on_platform: Annotated[
        bool, typer.Option("--on-platform", help="The platform restores; --into is parquet:URL, sql:URL or dsn:FILE.")
    ] = False,
    rename: Annotated[
        list[str] | None, typer.Option(help="With --on-platform: OLD=NEW, a database's new name; may be repeated.")
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Restore tables as they were into a MySQL-like server or files, and compare the result with the original.

    If an earlier run was interrupted, the same command continues it. With --on-platform it shows the platform's
    progress.
    """
    if on_platform and (as_name is not None or into_file is not None):
        raise typer.BadParameter("cannot be used with --as or --into-file", param_hint="--on-platform")
    if rename and not on_platform:
        raise typer.BadParameter("needs --on-platform", param_hint="--rename")
    if on_platform:
        with importing():
            from tistream_cli.restore.on_platform import PlatformOptions, run_on_platform
            from tistream_client.cli.api_client import ApiClient

        run = PlatformOptions(names, at, into, rename or (), if_exists.value, dialect.value)
        run_on_platform(ApiClient(url), cluster, tenant, run)
        return
    with importing():
        from tistream.schema.tidb.create_table import Dialect
        from tistream_cli.restore.into import parse_into
        from tistream_cli.restore.restore import RestoreOptions, run_restore
        from tistream_client.cli.api_client import ApiClient

    target = parse_into(into, into_file)
    options = RestoreOptions(names, at, target, as_name, if_exists is IfExists.REPLACE, Dialect(dialect.value))
    run_restore(ApiClient(url), cluster, tenant, options)


def undo(
    cluster: Cluster,
    tenant: Tenant,
    txn: Annotated[
        list[str] | None, typer.Option(callback=_start_ts, help="start_ts of a transaction; may be repeated.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", callback=time_form, help="Every transaction committed after this time.")
    ] = None,
    to: Annotated[str, typer.Option(callback=time_form, help="And at or before this one.")] = "now",
    tables: Annotated[
        list[str] | None, typer.Option(help="Only changes of these: shop.orders, shop.*; may be repeated.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="Only rows that have had this value: COLUMN=VALUE; may be repeated.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Run it on the server of --into.")] = False,
    into: Annotated[str | None, typer.Option(help="mysql://user:password@host:port/database.")] = None,
    into_file: IntoFile = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="Form of the plan.")] = Output.TEXT,
    url: Url = DEFAULT_URL,
) -> None:
    """Show the changes that would undo transactions, and the conflicts; with --apply, execute them.

    They are executed in one transaction. If any row of the server is not as planned, nothing changes.
    """
    if bool(txn) == (from_ is not None):
        raise typer.BadParameter("give exactly one of --txn and --from", param_hint="--txn")
    if apply != (into is not None or into_file is not None):
        raise typer.BadParameter("--apply and --into (or --into-file) are needed together", param_hint="--apply")
    with importing():
        from tistream_cli.restore.into import parse_into
        from tistream_cli.restore.undo import UndoOptions, run_undo
        from tistream_client.cli.api_client import ApiClient

    window = None if from_ is None else (from_, to)
    target = parse_into(into, into_file) if apply else None
    options = UndoOptions(txn or (), window, tables or (), target, output is Output.JSON, where or ())
    run_undo(ApiClient(url, read_seconds=600), cluster, tenant, options)


def add_restore_commands(app: typer.Typer) -> None:
    """Add both commands."""
    app.command()(restore)
    app.command()(undo)
