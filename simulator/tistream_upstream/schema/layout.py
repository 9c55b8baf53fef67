"""A layout is one version of a table, which says how its rows are written and shown. Pure.

A row is a tuple of cells in the order of its layout's columns. A row may be read under a later layout: added columns
show their origin default, and dropped columns are omitted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tistream_upstream.schema import codec
from tistream_upstream.schema.columns import NULL, Cell, Kind

PUBLIC, WRITE_REORG, WRITE_ONLY, DELETE_ONLY, NONE, DELETE_REORG = 5, 3, 2, 1, 0, 4
_WRITTEN = frozenset({PUBLIC, WRITE_REORG, WRITE_ONLY})

INT_HANDLE, COMMON_HANDLE, ROWID = "int", "common", "rowid"
HANDLES = (INT_HANDLE, COMMON_HANDLE, ROWID)


@dataclass(frozen=True, slots=True)
class Column:
    """A column in one version of a table. `default`: its value in rows that were written before it was added."""

    id: int
    name: str
    kind: Kind
    not_null: bool = False
    primary: bool = False
    state: int = PUBLIC
    default: Cell = NULL
    default_text: str | None = None

    @property
    def public(self) -> bool:
        return self.state == PUBLIC


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """A non-unique secondary index over one integer column."""

    id: int
    name: str
    column_id: int


class Layout:
    """One version of a table: its columns, and how its rows are encoded and shown. Immutable."""

    __slots__ = ("_encode", "_shown", "columns", "handle", "index", "pools", "table_id", "visible", "written")

    def __init__(
        self,
        table_id: int,
        handle: str,
        columns: Sequence[Column],
        pools: Mapping[int, tuple[Cell, ...]],
        index: IndexSpec | None = None,
    ) -> None:
        """`columns` are in the order of SELECT. `pools` has, by column id, the values that are drawn from; columns of
        the handle have none."""
        self.table_id = table_id
        self.handle = handle
        self.columns = tuple(columns)
        self.pools = pools
        self.index = index
        self.visible = tuple(column for column in self.columns if column.public)
        self.written = tuple(sorted((c for c in self.columns if c.state in _WRITTEN), key=lambda c: c.id))
        self._encode = _Encoder([c.id for c in self.written], [not c.primary or _restored(c) for c in self.written])
        places = {column.id: at for at, column in enumerate(self.written)}
        shown = sorted((c.name, places[c.id]) for c in self.visible)
        self._shown = [(b'"%s":' % name.encode(), at) for name, at in shown]

    def encode(self, cells: Sequence[Cell]) -> bytes:
        """Encode cells, which are in the order of `written`, as a row value."""
        return self._encode(cells)

    def show(self, cells: Sequence[Cell]) -> bytes:
        """The values that SELECT shows of a row, as a JSON object with sorted member names. The cells are in the order
        of `written`."""
        return b"{" + b",".join([name + cells[at][1] for name, at in self._shown]) + b"}"

    def adapt(self, row: Row) -> tuple[Cell, ...]:
        """The cells of a row, as a reader with this layout sees them, in the order of its `written` columns."""
        if row.layout is self or row.layout.written == self.written:
            return row.cells
        known = {column.id: cell for column, cell in zip(row.layout.written, row.cells, strict=True)}
        return tuple(known.get(column.id, column.default) for column in self.written)


class Row:
    """One version of a row: its key as in API events, its cells, and its encoded value."""

    __slots__ = ("_hash", "_shown", "_shown_in", "cells", "key", "layout", "value")

    def __init__(self, layout: Layout, key: bytes, cells: tuple[Cell, ...]) -> None:
        """`key` is the JSON text of an event's `key`. `cells` are in the order of `layout.written`."""
        self.layout = layout
        self.key = key
        self.cells = cells
        self.value = layout.encode(cells)
        self._shown: bytes = b""
        self._shown_in: Layout | None = None
        self._hash = -1

    def shown(self, layout: Layout) -> bytes:
        """The values that a SELECT with this layout shows of the row, as JSON text with sorted member names."""
        if self._shown_in is not layout:
            same = self._shown_in is not None and self._shown_in.visible == layout.visible
            if not same:
                self._shown = layout.show(layout.adapt(self))
                self._hash = -1
            self._shown_in = layout
        return self._shown

    def hash(self, layout: Layout, hashed: Any) -> int:
        """Call `hashed(key, row)` with the JSON text that SELECT shows of the row in `layout`, and return the result.
        It is cached while that text does not change."""
        shown = self.shown(layout)
        if self._hash < 0:
            self._hash = hashed(self.key, shown)
        return self._hash


class _Encoder:
    """Encodes rows of format v2 for a fixed list of columns. It caches the header for each set of NULLs."""

    def __init__(self, ids: Sequence[int], stored: Sequence[bool]) -> None:
        self._ids = [id_ for id_, kept in zip(ids, stored, strict=True) if kept]
        self._places = [at for at, kept in enumerate(stored) if kept]
        self._heads: dict[tuple[int, ...], tuple[bytes, struct.Struct]] = {}

    def __call__(self, row: Sequence[Cell]) -> bytes:
        cells = [row[at][0] for at in self._places]
        if None in cells:
            nulls = tuple([at for at, cell in enumerate(cells) if cell is None])
            filled = [cell for cell in cells if cell is not None]
        else:
            nulls, filled = (), cells  # type: ignore[assignment]
        head = self._heads.get(nulls)
        if head is None:
            head = self._heads[nulls] = self._head(nulls)
        values = b"".join(filled)
        if len(values) > 0xFFFF or self._ids[-1:] > [0xFF]:
            return codec.row_v2([(id_, cell) for id_, cell in zip(self._ids, cells, strict=True)])
        return head[0] + head[1].pack(*accumulate(map(len, filled))) + values

    def _head(self, nulls: tuple[int, ...]) -> tuple[bytes, struct.Struct]:
        none = [self._ids[at] for at in nulls]
        filled = [id_ for id_ in self._ids if id_ not in none]
        if self._ids[-1:] > [0xFF]:
            return b"", struct.Struct("")
        head = struct.pack("<BBHH", 0x80, 0, len(filled), len(none)) + bytes(filled) + bytes(none)
        return head, struct.Struct(f"<{len(filled)}H")


def _restored(column: Column) -> bool:
    """Whether the row value has the column although it is part of the clustered key (upstream-formats 4.3), as for a
    VARCHAR."""
    return column.kind.type.charset != "binary"
