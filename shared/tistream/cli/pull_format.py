"""What `tistream pull` may be asked to write; apart, so that the command line needs nothing of how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import typer


class PullFormat(StrEnum):
    """The parameter `format` of a pull."""

    NDJSON = "ndjson"
    ARROW = "arrow"
    PARQUET = "parquet"


class PullEvents(StrEnum):
    """The parameter `events` of a pull."""

    ALL = "all"
    ROWS = "rows"
    DDL = "ddl"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """What to pull. `limit` is the number of row and ddl events in all; None: no bound."""

    cluster: str
    tenant: str
    database: str | None = None
    table: str | None = None
    start_ts: str | None = None
    cursor: str | None = None
    end_ts: str | None = None
    limit: int | None = None
    follow: bool = False
    events: str | None = None  # the parameter `events`; None: as the API has it


def check(request: PullRequest, form: PullFormat, out: Path | None) -> None:
    """Raises typer.BadParameter for what does not go together."""
    if request.table is not None and request.database is None:
        raise typer.BadParameter("needs --database", param_hint="--table")
    if request.start_ts is not None and request.cursor is not None:
        raise typer.BadParameter("does not go with --start-ts", param_hint="--cursor")
    if request.follow and (request.limit is not None or request.end_ts is not None):
        raise typer.BadParameter("does not go with --limit or --end-ts", param_hint="--follow")
    if (form is PullFormat.PARQUET) != (out is not None):
        raise typer.BadParameter("goes with --format parquet, and that with it", param_hint="--out")
    if request.follow and form is not PullFormat.NDJSON:
        raise typer.BadParameter("goes with --format ndjson alone", param_hint="--follow")
    if form is PullFormat.ARROW and request.events is None:
        choices = "rows (of one table: one IPC stream), ddl (one IPC stream) or all (several IPC streams, in turn)"
        raise typer.BadParameter(f"is wanted with --format arrow: {choices}", param_hint="--events")
    if form is PullFormat.ARROW and request.events == PullEvents.ROWS and request.table is None:
        raise typer.BadParameter("rows goes with --format arrow for one --table alone", param_hint="--events")
