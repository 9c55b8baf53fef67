"""The schema as the simulated TiDB knows it, and the live rows. Mutable; no I/O."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from tistream_upstream.schema import codec, table_info
from tistream_upstream.schema.columns import KINDS, NULL, Cell
from tistream_upstream.schema.layout import (
    COMMON_HANDLE,
    INT_HANDLE,
    PUBLIC,
    Column,
    IndexSpec,
    Layout,
    Row,
)

Json = dict[str, Any]
_SPREAD = 0x9E3779B1  # odd, so multiplication modulo 2^31 is a bijection
_SPREAD_BITS = 31
_KIND_ORDER = (
    "varchar", "int", "decimal", "datetime", "json", "double", "bigint", "timestamp",
    "text", "tinyint", "blob", "date", "enum", "ubigint", "set", "year",
)  # fmt: skip
STAMP = "stamp"


class LiveRows:
    """The committed rows of a table, by key. It can choose one at random."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, Row] = {}
        self._keys: list[bytes] = []
        self._places: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, key: bytes, row: Row) -> None:
        """Insert or replace a row."""
        if key not in self._places:
            self._places[key] = len(self._keys)
            self._keys.append(key)
        self.by_key[key] = row

    def drop(self, key: bytes) -> None:
        """Delete a row if it exists."""
        at = self._places.pop(key, None)
        if at is None:
            return
        del self.by_key[key]
        last = self._keys.pop()
        if last != key:
            self._keys[at] = last
            self._places[last] = at

    def any(self, rng: random.Random, hot: int = 0) -> bytes:
        """Choose a key at random; of the first `hot` keys if `hot` is not 0. The table must have rows."""
        count = len(self._keys)
        return self._keys[int(rng.random() * (min(hot, count) if hot else count))]


@dataclass(slots=True, eq=False)
class Table:
    """A table under its present id. `gone`: it was dropped or truncated; open transactions may still write to it."""

    id: int
    database_id: int
    name: str
    layout: Layout
    insert_share: float
    spread: bool
    state: int = PUBLIC
    revision: int = 0
    update_ts: int = 0
    gone: bool = False
    altered_by: int | None = None
    next_handle: int = 1
    next_column: int = 1
    rows: LiveRows = field(default_factory=LiveRows)
    users: set[int] = field(default_factory=set)

    @property
    def handle(self) -> str:
        return self.layout.handle

    def info(self, *, name: str | None = None) -> Json:
        """Make the TableInfo of the table; with `name`, under that name."""
        cols, indexes = table_info.of_columns(self.layout.columns, self.layout.index, self.handle)
        return table_info.table_info(
            self.id,
            name or self.name,
            cols,
            indexes,
            handle=self.handle,
            state=self.state,
            update_ts=self.update_ts,
            revision=self.revision,
            max_column_id=self.next_column - 1,
        )

    def new_key(self) -> tuple[bytes, bytes, tuple[Cell, ...]]:
        """Make the key of a new row. Returns (raw key, the key as JSON as in API events, the cells of the key)."""
        number = self.next_handle
        self.next_handle += 1
        if self.spread:
            number = number * _SPREAD % (1 << _SPREAD_BITS)
        if self.handle == COMMON_HANDLE:
            code = f"c{number % 1000:03d}-{number:x}"
            raw = codec.table_prefix(self.id) + b"_r" + codec.common_handle([code, number])
            cells = ((code.encode(), b'"%s"' % code.encode()), (codec.int_cell(number), b"%d" % number))
            return raw, b'{"code":"%s","n":%d}' % (code.encode(), number), cells
        raw = codec.record_key(self.id, number)
        if self.handle == INT_HANDLE:
            return raw, b'{"id":"%d"}' % number, ((b"", b'"%d"' % number),)
        return raw, b'{"_tidb_rowid":"%d"}' % number, ()

    def index_key(self, row: Row, raw_key: bytes) -> bytes | None:
        """The key of a row's entry in the secondary index; None if the table has no index."""
        index = self.layout.index
        if index is None:
            return None
        cell = dict(zip((c.id for c in row.layout.written), row.cells, strict=True)).get(index.column_id, NULL)[0]
        datum = b"\0" if cell is None else codec.key_datum(int.from_bytes(cell, "little", signed=True))
        handle = raw_key[11:]
        if self.handle != COMMON_HANDLE:
            handle = bytes((codec.FLAG_INT,)) + handle
        return codec.index_prefix(self.id, index.id) + datum + handle


@dataclass(slots=True, eq=False)
class Database:
    """A database of the cluster."""

    id: int
    name: str


class Catalog:
    """The databases and tables that user transactions use, and TiDB's counters of ids."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.databases: dict[int, Database] = {}
        self.tables: dict[int, Table] = {}
        self.last_id = 111
        self.version = 0
        self.names = 0

    def new_id(self) -> int:
        """Take the next global id."""
        self.last_id += 1
        return self.last_id

    def new_name(self, prefix: str) -> str:
        """Make a name that was not used before."""
        self.names += 1
        return f"{prefix}{self.names}"

    def usable(self) -> list[Table]:
        """The tables that statements can use, in the order of their creation."""
        return [table for table in self.tables.values() if not table.gone]

    def add_database(self, name: str) -> Database:
        """Add a database without a DDL job."""
        database = Database(self.new_id(), name)
        self.databases[database.id] = database
        return database

    def make_table(self, database_id: int, name: str, handle: str, columns: int, *, indexed: bool) -> Table:
        """Make a table without adding it to the catalog. `handle`: a kind of layout.HANDLES. `columns`: the number of
        columns besides those of the key and the stamp. `indexed`: it gets a secondary index, if it has a column of type
        int."""
        table_id = self.new_id()
        shape = self.columns_of(handle, columns)
        pools = {c.id: c.kind.pool(self.rng, nullable=not c.not_null) for c in shape if not c.primary}
        index = None
        if indexed:
            column = next((c for c in shape if c.kind is KINDS["int"] and not c.primary), None)
            if column is not None:
                index = IndexSpec(2, f"i_{column.name}", column.id)
        layout = Layout(table_id, handle, shape, pools, index)
        insert_share = self.rng.choice([0.95, 0.5, 0.2])
        spread = handle == INT_HANDLE and self.rng.random() < 0.5
        return Table(
            table_id, database_id, name, layout, insert_share, spread, next_column=max(c.id for c in shape) + 1
        )

    def columns_of(self, handle: str, count: int) -> list[Column]:
        """Make the columns of a new table: those of the key, a stamp that each write changes, and `count` others."""
        columns = []
        if handle == INT_HANDLE:
            columns.append(Column(1, "id", KINDS["bigint"], not_null=True, primary=True))
        elif handle == COMMON_HANDLE:
            columns.append(Column(1, "code", KINDS["varchar"], not_null=True, primary=True))
            columns.append(Column(2, "n", KINDS["int"], not_null=True, primary=True))
        columns.append(Column(len(columns) + 1, STAMP, KINDS["bigint"], not_null=True))
        first = self.rng.randrange(3)
        for number in range(count):
            kind = KINDS[_KIND_ORDER[(first + number) % len(_KIND_ORDER)]]
            columns.append(Column(len(columns) + 1, f"c{number}_{kind.sql.split('(')[0].replace(' ', '_')}", kind,
                                  not_null=self.rng.random() < 0.4))  # fmt: skip
        return columns


def dump(info: Json) -> bytes:
    """Encode JSON as TiDB stores it."""
    return orjson.dumps(info)


def draw(layout: Layout, rng: random.Random, key_cells: Sequence[Cell], stamp: int) -> tuple[Cell, ...]:
    """Draw the cells of a new row, in the order of `layout.written`. The first ones are `key_cells`. `stamp` is the
    value of the stamp column."""
    picks = rng.randbytes(len(layout.written))
    cells: list[Cell] = list(key_cells)
    for at in range(len(key_cells), len(layout.written)):
        column = layout.written[at]
        if column.name == STAMP:
            cells.append((codec.int_cell(stamp), b'"%d"' % stamp))
        elif column.public:
            pool = layout.pools[column.id]
            cells.append(pool[picks[at] % len(pool)])
        else:
            cells.append(column.default)
    return tuple(cells)


def changed(layout: Layout, rng: random.Random, row: Row, stamp: int) -> tuple[Cell, ...]:
    """Draw the cells of an updated row, in the order of `layout.written`: the stamp column gets `stamp`, and up to two
    other columns get new values."""
    cells = list(layout.adapt(row))
    for at, column in enumerate(layout.written):
        if column.name == STAMP:
            cells[at] = (codec.int_cell(stamp), b'"%d"' % stamp)
    for _ in range(2):
        at = int(rng.random() * len(cells))
        column = layout.written[at]
        if column.public and column.id in layout.pools and column.name != STAMP:
            cells[at] = layout.pools[column.id][int(rng.random() * len(layout.pools[column.id]))]
    return tuple(cells)
