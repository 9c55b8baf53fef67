"""Models of the lines of a pull with `format=ndjson` (design.md 5), for the OpenAPI document and for clients.

The API server renders lines without these models; a test validates its lines against them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, RootModel

from tistream.wire.sorter import Wire

TS_PATTERN = "^[0-9]{1,19}$"
Stamp = Annotated[str, Field(pattern=TS_PATTERN, description="a TSO, decimal")]
Version = Annotated[str, Field(pattern=TS_PATTERN, description="of the schema, decimal")]
Id = Annotated[str, Field(pattern="^[0-9]{1,19}$")]
Columns = Annotated[
    dict[str, Any],
    Field(
        description="by name. 64-bit integers, BIT, DECIMAL, times, ENUM and SET are strings; BINARY and BLOB are "
        "base64; JSON is itself; VECTOR is an array of numbers"
    ),
]


class InvolvedTable(Wire):
    """A database and a table in it. `table` is empty if the DDL job changed the database itself."""

    database: str
    table: str


class RowChange(Wire):
    """A change of one row: the row as SELECT shows it at commit_ts, and just before it."""

    type: Literal["row"]
    op: Literal["put", "delete"]
    commit_ts: Stamp
    start_ts: Stamp
    database: str
    table: str
    table_id: Id
    schema_version: Version
    key: Columns
    row: Columns | None = Field(description="null after a delete")
    old_row: Columns | None = Field(description="null if there was no row")


class ReadRow(Wire):
    """One row of a snapshot, between the lines `snapshot_begin` and `snapshot_end`: the row as SELECT shows it at the
    snapshot's ts."""

    type: Literal["row"]
    op: Literal["read"]
    commit_ts: Stamp | None = Field(description="of the row's last change; null: a backfill that does not state it")
    database: str
    table: str
    table_id: Id
    schema_version: Version
    key: Columns
    row: Columns
    old_row: None


class Row(RootModel[Annotated[RowChange | ReadRow, Field(discriminator="op")]]):
    """A changed row or, with op `read`, a row of a snapshot."""


class DdlChange(Wire):
    """One DDL job, at the first commit_ts at which SELECT shows it."""

    type: Literal["ddl"]
    commit_ts: Stamp
    database: str
    table: str
    query: str
    action: str = Field(description="TiDB's name of the job's type, as `add column`")
    schema_version: Version
    involved: list[InvolvedTable] = Field(description="by their names before and after it")


class Resolved(Wire):
    """All events at or below `resolved_ts` were sent. It is the last line of a page. An endless stream has such a line
    at intervals."""

    type: Literal["resolved"]
    resolved_ts: Stamp
    cursor: str


class Continue(Wire):
    """The page ended inside a snapshot, or inside a commit_ts that has more events than `limit`. The next page
    continues at `cursor`."""

    type: Literal["continue"]
    cursor: str


class SnapshotBegin(Wire):
    """The first line of a pull with `snapshot`: rows as of `snapshot_ts` follow."""

    type: Literal["snapshot_begin"]
    snapshot_ts: Stamp


class SnapshotEnd(Wire):
    """All rows as of `snapshot_ts` were sent. A `resolved` line follows, whose cursor continues with the changes."""

    type: Literal["snapshot_end"]
    snapshot_ts: Stamp


class RawChange(Wire):
    """One write of a RawKV key. There is no line when a value expires: from `expire_at` on, the key has no value."""

    type: Literal["raw"]
    op: Literal["put", "delete"]
    commit_ts: Stamp
    keyspace: Id
    key: str = Field(description="the user's key, base64")
    value: str | None = Field(description="base64; null after a delete")
    expire_at: str | None = Field(description="RFC 3339; null: it does not expire")


class RawValue(Wire):
    """The value of a key of RawKV at `ts`. `commit_ts`: that of its last put."""

    ts: Stamp
    keyspace: Id
    key: str = Field(description="the user's key, base64")
    commit_ts: Stamp
    value: str = Field(description="base64")
    expire_at: str | None = Field(description="RFC 3339; null: it does not expire")


LINES: dict[str, type[BaseModel]] = {
    "row": Row,
    "ddl": DdlChange,
    "raw": RawChange,
    "resolved": Resolved,
    "continue": Continue,
    "snapshot_begin": SnapshotBegin,
    "snapshot_end": SnapshotEnd,
}
"""The models, by the value of the member `type` in a line."""
