"""What a schema transaction changes for readers: the truth's side of a DDL step. Plain facts."""

from __future__ import annotations

from dataclasses import dataclass

from tistream_upstream.schema.layout import Layout


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table from a commit on; `layout` None: SELECT does not show it."""

    table_id: int
    database: str
    name: str
    layout: Layout | None


@dataclass(frozen=True, slots=True)
class DdlText:
    """The event of a job, at the first transaction that changes what SELECT shows (design.md 5); `undone`: that of the
    one that takes it back."""

    database: str
    table: str
    query: str
    action: int
    involved: tuple[tuple[str, str], ...]
    undone: bool = False


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One transaction of a job. `version`: its Diff's, 0 if it has none."""

    version: int = 0
    tables: tuple[TableShape, ...] = ()
    event: DdlText | None = None
