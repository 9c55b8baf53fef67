"""The schema registry's answers: the schema at a ts, and the log from which a replica of the history is built."""

from typing import Any

from pydantic import Field

from tistream.wire.sorter import Hold, Wire


class ColumnView(Wire):
    """A visible column, which is not a virtual generated one. `sql_type` is formatted as in SHOW COLUMNS; `key`: the
    column is part of an event's `key`."""

    id: int
    name: str
    sql_type: str
    charset: str
    collation: str
    nullable: bool
    key: bool


class TableView(Wire):
    """A visible table, view or sequence, which `kind` says. `physical_ids`: the ids in the keys of its rows: those of
    its partitions, or without partitions the table's own id; empty for a view or sequence."""

    table_id: str
    name: str
    kind: str
    physical_ids: list[str]
    columns: list[ColumnView]


class DatabaseView(Wire):
    """A visible database."""

    name: str
    tables: list[TableView]


class SchemaView(Wire):
    """The answer of `GET /v1/clusters/{c}/tenants/{t}/schema?ts=`: all databases, tables and columns that SELECT shows
    at `ts`, without virtual generated columns, which no event has."""

    ts: str
    schema_version: str
    databases: list[DatabaseView]


class LogPage(Wire):
    """The answer of `GET …/schema/log?after=N&known_resolved_ts=R&known_base_ts=B&wait_ms=M`: records N+1 and later, in
    order.

    The first records are those of the snapshot, or restate the history up to `base_ts`. `log_id` names the log: if it
    changes, start again with after=0. Numbers do not change when old records are deleted, so a reader that is up to
    date continues. A reader that lacks deleted records gets all remaining ones: `begins` is set, and the reader must
    drop its earlier records. Records that restate the history are numbered too, and each base numbers them anew. So the
    reader states in B which base its records belong to.

    Records of one commit_ts may be on two pages: apply them together, when a page has `more` false. Then all records at
    or below `resolved_ts` have been returned. The answer comes at once if there are records, or if the registry's
    resolved_ts is above `known_resolved_ts`; otherwise after a wait.
    """

    log_id: str
    snapshot_ts: int
    base_ts: int = 0
    resolved_ts: int
    begins: bool = False
    next_after: int
    more: bool
    records: list[dict[str, Any]]


class SchemaStatus(Wire):
    """The answer of `GET …/schema/status`. Before the snapshot was read, every ts is `None`.

    The schema can be requested from base_ts on. The log has the history up to `durable_ts`; below it, the rows from
    which the history was read are no longer needed. `records` counts the log's records, and `log_objects` is the number
    of its newest object.
    """

    cluster_id: str
    tenant_id: str
    snapshot_ts: int | None
    base_ts: int | None = None
    resolved_ts: int | None
    durable_ts: int | None = None
    records: int
    log_objects: int
    holds: list[Hold] = Field(default_factory=list)
