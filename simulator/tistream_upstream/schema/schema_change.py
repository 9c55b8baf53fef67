"""The effect of a DDL step that readers see, as plain data for the truth."""

from __future__ import annotations

from dataclasses import dataclass

from tistream_upstream.schema.layout import Layout


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table from a commit on. `layout` is None if SELECT does not show the table."""

    table_id: int
    database: str
    name: str
    layout: Layout | None


@dataclass(frozen=True, slots=True)
class DdlText:
    """The event of a job, at the first transaction that changes what SELECT shows (design.md 5). `undone`: the event of
    the transaction that cancels it."""

    database: str
    table: str
    query: str
    action: int
    involved: tuple[tuple[str, str], ...]
    undone: bool = False


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One transaction of a job. `version` is the schema version of its Diff; 0 if it has no Diff."""

    version: int = 0
    tables: tuple[TableShape, ...] = ()
    event: DdlText | None = None
