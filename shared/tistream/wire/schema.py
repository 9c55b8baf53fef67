"""The schema registry's HTTP contract: the schema as of a time, and the log that it is made of."""

from typing import Any

from pydantic import Field

from tistream.wire.sorter import Hold, Wire


class ColumnView(Wire):
    """A visible column. `sql_type` is as SHOW COLUMNS has it; `key` says that an event's `key` has it."""

    id: int
    name: str
    sql_type: str
    charset: str
    collation: str
    nullable: bool
    key: bool


class TableView(Wire):
    """A visible table, view or sequence. `physical_ids` are those of its visible partitions, or its own."""

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
    """`GET /v1/clusters/{c}/tenants/{t}/schema?ts=`: everything that SELECT sees at `ts`."""

    ts: str
    schema_version: str
    databases: list[DatabaseView]


class LogPage(Wire):
    """`GET …/schema/log?after=N&known_resolved_ts=R&wait_ms=M`: records number N+1 and on, in order.

    The first records are those of the snapshot. `log_id` names the log: if it changes, start again with after=0.
    Records of one commit_ts may stand on two pages: take them together, once a page has `more` false; then all
    records at or below `resolved_ts` have been given. Answers at once where there are records, or where the
    registry's resolved_ts is above `known_resolved_ts`; else waits.
    """

    log_id: str
    snapshot_ts: int
    resolved_ts: int
    next_after: int
    more: bool
    records: list[dict[str, Any]]


class SchemaStatus(Wire):
    """`GET …/schema/status`. Before the snapshot could be read, snapshot_ts and resolved_ts are None."""

    cluster_id: str
    tenant_id: str
    snapshot_ts: int | None
    resolved_ts: int | None
    records: int
    log_objects: int
    holds: list[Hold] = Field(default_factory=list)
