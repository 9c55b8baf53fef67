"""The API server's answers to users, as far as it builds them itself. Ids and times are decimal strings.

The answers that it forwards from other services are in meta.py, usage.py, audit.py and tokens.py, and the lines of
pulls in changes.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from tistream.wire.changes import DdlChange, Id, Stamp, Version
from tistream.wire.sorter import Hold, Wire

TenantState = Literal["live", "late", "damaged", "waiting", "paused"]


class Problem(Wire):
    """An RFC 9457 problem: the body of every answer with a 4xx or 5xx status. Some problems have further members, such
    as `parameter`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = Field(pattern="^tistream:", description="`tistream:` and the problem's code, which does not change")
    title: str
    status: int
    detail: str
    cause_id: str | None = Field(default=None, description="the services' logs have it in each line of this request")
    parameter: str | None = Field(default=None, description="the query parameter that is wrong")


class DatabaseList(Wire):
    """The answer of ListDBs."""

    ts: Stamp
    databases: list[str]


class TableName(Wire):
    """One table in the answer of ListTables. `base_ts` (decimal): the ts from which on all rows can be read; null: some
    are not known. `held`: why the table is not served; null if it is."""

    name: str
    table_id: Id
    schema_version: Version
    base_ts: str | None = Field(description="the ts from which on all rows can be read; null: some are not known")
    held: str | None = Field(default=None, description="why the table is not served until it is backfilled (422)")


class TableNames(Wire):
    """The answer of ListTables."""

    ts: Stamp
    database: str
    tables: list[TableName]


class ShownColumn(Wire):
    """A column of a table's events: one that SELECT shows, unless it is a virtual generated column, which TiDB does not
    store. `sql_type` has the form of SHOW COLUMNS; `key`: whether the column is part of an event's `key`. `id` stays
    the same when the column is renamed."""

    id: Id
    name: str
    sql_type: str
    charset: str
    collation: str
    nullable: bool
    key: bool


class TableColumns(Wire):
    """The answer of TableSchema. `kind`: table, view or sequence."""

    ts: Stamp
    database: str
    table: str
    table_id: Id
    kind: str
    schema_version: Version
    columns: list[ShownColumn]


class RowPart(Wire):
    """A part of a table's rows: those after `cursor`, up to and with the cursor `until`; null: up to the last row.
    `rows` is an estimate."""

    cursor: str
    until: str | None
    rows: int


class RowParts(Wire):
    """The answer of RowParts, in the order of raw keys."""

    ts: Stamp
    parts: list[RowPart]


class ChangePart(Wire):
    """A part of a table's changes: those with `start_ts < commit_ts <= end_ts`. `rows` is an estimate."""

    start_ts: Stamp
    end_ts: Stamp
    rows: int


class ChangeParts(Wire):
    """The answer of ChangeParts, in the order of time."""

    parts: list[ChangePart]


class DdlPage(Wire):
    """The answer of DdlHistory, newest first. `more`: there are older events; request those below the last event's
    commit_ts."""

    resolved_ts: Stamp
    earliest_ts: Stamp
    events: list[DdlChange]
    more: bool


class TenantProgress(Wire):
    """The answer of TenantStatus. `lag_seconds` is null until the tenant's snapshot has been read."""

    resolved_ts: Stamp
    flushed_ts: Stamp
    lag_seconds: float | None
    held_by: Hold | None


class TaskPlace(Wire):
    """The sorter that holds a task, the one that prepares to take it over (`next_sorter`), and the reason if the task
    waits. `resolved_ts`: the task's progress."""

    task_id: Id
    start_key: str
    end_key: str
    sorter: str | None
    next_sorter: str | None
    task_epoch: Id
    resolved_ts: Stamp | None
    waits: str | None


class StorePlace(Wire):
    """A store of the upstream: the dispatcher that reads it, and the reason if it waits."""

    store_id: Id
    dispatcher: str | None
    last_file_ts: Stamp | None
    waits: str | None


class TenantPlacement(Wire):
    """The answer of TenantPlacement: tasks in key order, stores by id."""

    tasks: list[TaskPlace]
    stores: list[StorePlace]


class TenantSummary(Wire):
    """A tenant in the answer of Overview. `state` `waiting` means that nothing can be read yet; `waits` has the
    reason."""

    cluster_id: str
    tenant_id: str
    state: TenantState
    resolved_ts: Stamp | None
    lag_seconds: float | None
    held_by: Hold | None
    waits: str | None
    tasks: int
    stores: int
    retention_ms: str | None


class ReadablePart(Wire):
    """A database or a table to which the caller's token gives access. `table` null: the whole database."""

    cluster_id: str
    tenant_id: str
    database: str
    table: str | None


class TenantsOverview(Wire):
    """The answer of Overview."""

    tenants: list[TenantSummary]
    parts: list[ReadablePart]


class LagSamples(Wire):
    """The answer of TenantLag, the history of a tenant's lag. `at_ms`: times of the samples in ms since the Unix epoch,
    oldest first. `stages`: by the name of the stage, its lag behind the wall clock in seconds at each of these times;
    null if unknown."""

    at_ms: list[str]
    stages: dict[str, list[float | None]]


class Retired(Wire):
    """The answer (202) of RetireStore: an empty object."""
