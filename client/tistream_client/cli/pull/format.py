"""The options of `tistream pull` and their checks. This module has no heavy imports, so the command line starts
fast."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import typer

from tistream_client.core.arguments import OPERATIONS


class _Word(str, Enum):
    def __str__(self) -> str:
        return str(self.value)


class PullFormat(_Word):
    """The values of the pull's parameter `format`."""

    NDJSON = "ndjson"
    ARROW = "arrow"
    PARQUET = "parquet"


class PullEvents(_Word):
    """The values of the pull's parameter `events`."""

    ALL = "all"
    ROWS = "rows"
    DDL = "ddl"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """The parameters of a pull. `limit` is the total number of row and DDL events; None: unlimited. `since` is what the
    user gave as the beginning."""

    cluster: str
    tenant: str
    database: str | None = None
    table: str | None = None
    start_ts: str | None = None
    cursor: str | None = None
    end_ts: str | None = None
    limit: int | None = None
    follow: bool = False
    events: str | None = None  # the parameter `events`; None: the API's default
    raw: bool = False  # whether the tenant is RawKV
    keyspace: int | None = None  # the keyspace of RawKV; None: every keyspace
    snapshot: str | None = None  # begin with the rows as of this time, in the form of the API
    columns: str | None = None  # names, with commas between; None: all
    where: str | None = None
    tables: str | None = None  # rules of TiCDC
    operations: str | None = None
    since: str | None = None

    @property
    def chosen(self) -> dict[str, str]:
        """The query parameters that choose among events and columns."""
        given = {"events": None if self.events is None else str(self.events)}
        return {name: value for name, value in {**self.filters, **given}.items() if value is not None}

    @property
    def filters(self) -> dict[str, str]:
        """The query parameters that leave out events and columns."""
        names = ("columns", "where", "tables", "operations")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def named_table(database: str | None, table: str | None, hint: str = "--table") -> tuple[str | None, str | None]:
    """The names of a database and a table. `table` may have the form `shop.orders` if `database` is None. Raises
    typer.BadParameter, which names the parameter `hint`, if the database is missing, or one of the names is empty."""
    right = "shop.orders" if hint == "TABLE" else f"{hint} shop.orders"
    if table is not None and database is None and "." in table:
        database, _, table = table.partition(".")
        if not database or not table:
            raise typer.BadParameter(f"needs both names: {right}", param_hint=hint)
    if table is not None and database is None:
        raise typer.BadParameter(f"needs a database: {right}", param_hint=hint)
    return database, table


def operations_form(text: str | None) -> str | None:
    """Check the value of --operations, and return it unchanged; None passes. For Typer's `callback`. Raises
    BadParameter."""
    wrong = [one for one in (text or OPERATIONS[0]).split(",") if one.strip().lower() not in OPERATIONS]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} is not an operation: use some of {','.join(OPERATIONS)}")
    return text


def directory(text: str) -> Path:
    """The value of `-o`. Raises typer.BadParameter for a form of output, which `-o` names for other commands."""
    if text in ("json", "table"):
        raise typer.BadParameter(f"names a directory of this command: lines of JSON need no -o, or use -o ./{text}")
    return Path(text)


def check(request: PullRequest, form: PullFormat, out: Path | None) -> None:
    """Check the options of a pull. Raises typer.BadParameter if options exclude each other, or one is missing."""
    if request.tables is not None and request.table is not None:
        raise typer.BadParameter("cannot be used with --table, which names one", param_hint="--tables")
    if request.columns is not None and request.table is None:
        raise typer.BadParameter("needs --table, such as --table shop.orders", param_hint="--columns")
    if request.start_ts is not None and request.cursor is not None:
        raise typer.BadParameter("cannot be used with --since", param_hint="--cursor")
    if request.follow and (request.limit is not None or request.end_ts is not None):
        raise typer.BadParameter("cannot be used with --limit or --until", param_hint="--follow")
    if form is PullFormat.PARQUET and out is None:
        raise typer.BadParameter("is required with --format parquet: -o DIRECTORY", param_hint="-o")
    if out is not None and (form is PullFormat.ARROW or request.follow or request.raw or request.snapshot is not None):
        why = "cannot be used with --format arrow, --follow, --raw or --snapshot: use > FILE"
        raise typer.BadParameter(why, param_hint="-o")
    if request.follow and form is not PullFormat.NDJSON:
        raise typer.BadParameter("needs --format ndjson", param_hint="--follow")
    if form is PullFormat.ARROW and request.events is None:
        choices = "rows (of one table: one IPC stream), ddl (one IPC stream) or all (several IPC streams, in turn)"
        raise typer.BadParameter(f"is required with --format arrow: {choices}", param_hint="--events")
    if form is PullFormat.ARROW and request.events == PullEvents.ROWS and request.table is None:
        raise typer.BadParameter("rows with --format arrow needs --table", param_hint="--events")


def check_raw(request: PullRequest, form: PullFormat, *, squash: bool) -> None:
    """Check the options of a pull with --raw. Raises typer.BadParameter if one cannot be used with it, or if --keyspace
    is used without it."""
    if not request.raw:
        if request.keyspace is not None:
            raise typer.BadParameter("needs --raw", param_hint="--keyspace")
        return
    if request.database is not None or request.events is not None or request.snapshot is not None or squash:
        why = "cannot be used with --database, --events, --snapshot or --squash: RawKV has keys and values alone"
        raise typer.BadParameter(why, param_hint="--raw")
    if form is not PullFormat.NDJSON:
        raise typer.BadParameter("needs --format ndjson", param_hint="--raw")


def _check_unfiltered(request: PullRequest, option: str) -> None:
    if request.filters:
        why = f"cannot be used with {option}: pull the changes with a filter, or all rows"
        raise typer.BadParameter(why, param_hint=f"--{next(iter(request.filters))}")


def check_snapshot(request: PullRequest, form: PullFormat, *, squash: bool) -> None:
    """Check the options of a pull with --snapshot. Raises typer.BadParameter if one cannot be used with it."""
    _check_unfiltered(request, "--snapshot")
    if request.start_ts is not None or request.cursor is not None or squash:
        raise typer.BadParameter("cannot be used with --since, --cursor or --squash", param_hint="--snapshot")
    if form is not PullFormat.NDJSON:
        raise typer.BadParameter("needs --format ndjson", param_hint="--snapshot")


def check_squash(request: PullRequest, form: PullFormat, out: Path | None) -> None:
    """Check the options of a pull with --squash. Raises typer.BadParameter if one cannot be used with it."""
    _check_unfiltered(request, "--squash")
    if request.start_ts is None and request.cursor is None:
        raise typer.BadParameter("needs --since or --cursor", param_hint="--squash")
    if request.cursor is not None and request.end_ts is not None:
        raise typer.BadParameter("cannot be used with --squash and --cursor, which holds it", param_hint="--until")
    if out is not None:
        raise typer.BadParameter("cannot be used with --squash: use > FILE", param_hint="-o")
    if request.follow or form is not PullFormat.NDJSON or request.events == PullEvents.DDL:
        why = "cannot be used with --follow, --events ddl, or a --format other than ndjson"
        raise typer.BadParameter(why, param_hint="--squash")
