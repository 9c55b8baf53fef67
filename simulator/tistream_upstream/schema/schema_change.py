"""What readers see of a DDL step, as plain data for the truth."""

from __future__ import annotations

from dataclasses import dataclass

from tistream_upstream.schema.layout import Layout


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as it is from a commit on. `layout` is None if SELECT does not show the table."""

    table_id: int
    database: str
    name: str
    layout: Layout | None


@dataclass(frozen=True, slots=True)
class DdlText:
    """The DDL event of a job. It belongs to the first transaction that changes what SELECT shows (design.md 5).
    `undone`: the event belongs to the transaction that reverts the job."""

    database: str
    table: str
    query: str
    action: int
    involved: tuple[tuple[str, str], ...]
    undone: bool = False


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The changes that one transaction of a DDL job makes visible to readers. `version` is the schema version of its
    SchemaDiff; 0 if the transaction writes no SchemaDiff."""

    version: int = 0
    tables: tuple[TableShape, ...] = ()
    event: DdlText | None = None
