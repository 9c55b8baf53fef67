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
    """`GET …/schema/log?after=N&known_resolved_ts=R&known_base_ts=B&wait_ms=M`: records number N+1 and on, in order.

    The first records are those of the snapshot, or restate as of `base_ts` what there was before. `log_id` names the
    log: if it changes, start again with after=0. Numbers stay what they are when old records are let go of, so who is
    up to date goes on. Who lacks records that are not kept any more is told all that is kept: `begins`, and what it had
    does not count. Records that restate have numbers too, with another meaning after each base: B says as of which one
    they were read.

    Records of one commit_ts may stand on two pages: take them together, once a page has `more` false; then all
    records at or below `resolved_ts` have been given. Answers at once where there are records, or where the
    registry's resolved_ts is above `known_resolved_ts`; else waits.
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
    """`GET …/schema/status`. Before the snapshot could be read, every ts is None.

    The schema can be asked for from base_ts on. What it was up to `durable_ts` is in the log, whatever becomes of the
    rows that it was read from; `records` are kept of it, and `log_objects` is the number of its newest object.
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
