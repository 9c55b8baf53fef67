"""The answer of SignedChanges: how a reader fetches a table's changes from the object store by itself, and decodes
them. Ids and times are decimal strings."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tistream.wire.changes import Id, Stamp, Version
from tistream.wire.sorter import Wire


class SignedGroup(Wire):
    """One row group, all of whose rows are of one table, with the bounds of its commit_ts, both inclusive. A GET of
    `url` with the header `Range: bytes=START-END`, where END is start + length - 1, returns its bytes."""

    rows: int
    table_id: Id = Field(description="the physical id")
    commit_ts_min: Stamp
    commit_ts_max: Stamp
    start: int = Field(description="offset of its first byte in the object")
    length: int = Field(description="in bytes")
    url: str = Field(description="signed for this range alone")


class SignedObject(Wire):
    """A segment, a Parquet file of `size` bytes, of which some row groups can be read."""

    key: str
    size: int
    footer: str = Field(description="base64: the end of a Parquet file, which describes `groups` alone, in their order")
    groups: list[SignedGroup]


class ShownTable(Wire):
    """A definition of the table: TiDB's TableInfo, and the database that it was in."""

    database_id: Id
    database: str
    info: dict[str, Any]


class ShownInterval(Wire):
    """Rows of a physical id with `low < commit_ts <= high` are decoded by a definition."""

    table_id: Id
    low: Stamp
    high: Stamp
    table: int | None = Field(description="index into `tables`; null: the rows give no events")


class SchemaVersionFrom(Wire):
    """Events with a commit_ts above `after_ts` have this schema version, up to the next entry."""

    after_ts: Stamp
    version: Version


class SignedChanges(Wire):
    """The answer of SignedChanges. It is about the changes with `start_ts < commit_ts <= end_ts`, where end_ts may be
    lower than the one requested: request the rest after it. `direct`: their rows are in the row groups of `objects`,
    beside rows outside of this range; otherwise pull them (PullTable)."""

    start_ts: Stamp
    end_ts: Stamp
    direct: bool
    seconds: int = Field(description="how long the URLs are valid")
    objects: list[SignedObject]
    tables: list[ShownTable]
    intervals: list[ShownInterval]
    schema_versions: list[SchemaVersionFrom]
