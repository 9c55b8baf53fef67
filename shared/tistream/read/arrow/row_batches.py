"""Converts row events to Arrow record batches, with one schema for each table and set of columns (docs/api.md,
"Formats"). Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.decode.cells.kinds import arrow_type, kind_of
from tistream.read.events import Events, Image, Rows
from tistream.schema.tidb.sql_type import sql_type
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion

VERSION = "1"
BATCH_ROWS = 16_384

_OPS = pa.array(["delete", "put"], pa.string())
ROWID = pa.field("_tidb_rowid", pa.int64())


def row_schema(version: TableVersion, columns: Sequence[Column]) -> pa.Schema:
    """The schema of a table's row events that have these columns."""
    table = version.table
    row = [field_of(column) for column in columns]
    key = [field_of(column) for column in table.key_columns] or [ROWID]
    return _row_schema(key, row, {"database": version.database, "table": table.name, "table_id": str(table.id)})


def nameless_schema(database: str, table: str) -> pa.Schema:
    """The schema of row events of a pull whose name no table has, so that even such a pull has an Arrow stream. `key`
    and `row` have no members, and there is no table_id."""
    return _row_schema([], [], {"database": database, "table": table})


def _row_schema(key: list[pa.Field], row: list[pa.Field], named: dict[str, str]) -> pa.Schema:
    return pa.schema(
        [
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("op", pa.string(), nullable=False),
            pa.field("commit_ts", pa.int64(), nullable=False),
            pa.field("start_ts", pa.int64(), nullable=False),
            pa.field("schema_version", pa.int64(), nullable=False),
            pa.field("key", pa.struct(key), nullable=False),
            pa.field("row", pa.struct(row)),
            pa.field("old_row", pa.struct(row)),
        ],
        metadata={
            "tistream.version": VERSION,
            "tistream.type": "row",
            **{f"tistream.{name}": value for name, value in named.items()},
        },
    )


def row_batches(events: Events, seq: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of events that are all row events, of at most BATCH_ROWS: table by table, in the order in which
    the tables first appear. `seq` is the number of the first event in the answer; the column `seq` restores the
    order."""
    numbers, firsts = np.unique(events.source, return_index=True)
    shapes: dict[Hashable, list[int]] = {}
    for number in numbers[np.argsort(firsts)].tolist():
        rows = events.sets[number]
        assert isinstance(rows, Rows)
        shapes.setdefault(_shape(rows), []).append(number)
    for same in shapes.values():
        at = np.arange(len(events)) if len(same) == len(numbers) else np.flatnonzero(np.isin(events.source, same))
        chosen = events if len(same) == len(numbers) else events.chosen(at)
        table = _TableBatches([one for number in same if isinstance(one := events.sets[number], Rows)], same)
        for start in range(0, len(at), BATCH_ROWS):
            end = start + BATCH_ROWS
            yield table.batch(chosen.between(start, end), seq + at[start:end])


def _shape(rows: Rows) -> Hashable:
    """A key that is equal for two sets of events if their rows can be in one batch: the table's names, its id, and its
    columns."""
    table = rows.version.table
    columns = tuple((column.name, sql_type(column)) for column in rows.columns)
    return rows.version.database, table.name, table.id, columns, tuple(column.name for column in table.key_columns)


class _TableBatches:
    """Builds the batches of several sets of events (Rows) of one table with equal columns (`_shape`)."""

    def __init__(self, sets: Sequence[Rows], numbers: Sequence[int]) -> None:
        self._sets = sets
        self._numbers = np.array(numbers, np.int64)
        first = self._sets[0]
        self._new = _Side([one.new for one in self._sets])
        self._old = _Side([one.old for one in self._sets])
        self._schema = row_schema(first.version, first.columns)
        self._row_fields, self._key_fields = (list(self._schema.field(name).type) for name in ("row", "key"))

    def batch(self, events: Events, seq: Int64s) -> pa.RecordBatch:
        """A batch of these events, which must belong to the sets of this builder. `seq` is the number of each event in
        the answer."""
        new, old = (self._places(events, "new_at", self._new), self._places(events, "old_at", self._old))
        columns = [
            pa.array(seq),
            _OPS.take(pa.array(events.op)),
            pa.array(events.commit_ts),
            pa.array(events.start_ts),
            pa.array(self._places(events, "schema_version", None)),
            self._key(new, old),
            _struct(self._new.columns, self._row_fields, new, old),
            _struct(self._old.columns, self._row_fields, old, new),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _key(self, new: Int64s, old: Int64s) -> pa.Array:
        """The key column of a batch: the key of the new row, or of the old row if the event is a delete. `new` and
        `old` are row indexes."""
        deletes = new < 0
        if not deletes.any():
            return _struct(self._new.keys, self._key_fields, new, old)
        if deletes.all():
            return _struct(self._old.keys, self._key_fields, old, new)
        mask = pa.array(deletes)
        pairs = zip(_elements(self._old.keys, old, new), _elements(self._new.keys, new, old), strict=True)
        return pa.StructArray.from_arrays([pc.if_else(mask, *pair) for pair in pairs], fields=self._key_fields)

    def _places(self, events: Events, name: str, side: _Side | None) -> Int64s:
        """The value of a field of Rows for each event. With a `side`, the values are row indexes, which are converted
        to indexes into that side's concatenated rows."""
        if len(self._sets) == 1:
            out: Int64s = getattr(self._sets[0], name)[events.at]
            return out
        found = np.empty(len(events), np.int64)
        for number, (source, one) in enumerate(zip(self._numbers.tolist(), self._sets, strict=True)):
            mine = events.source == source
            values = getattr(one, name)[events.at[mine]]
            found[mine] = values if side is None else np.where(values < 0, -1, values + side.begins[number])
        return found


class _Side:
    """The rows of one side (new or old) of several sets, concatenated."""

    def __init__(self, images: Sequence[Image | None]) -> None:
        there = [image for image in images if image is not None]
        sizes = [0 if image is None else len(image.keys[0]) for image in images]
        self.begins = np.cumsum([0, *sizes])
        self.rows = sum(sizes)
        self.columns = [_joined(arrays) for arrays in zip(*(image.columns for image in there), strict=True)]
        self.keys = [_joined(arrays) for arrays in zip(*(image.keys for image in there), strict=True)]


def _struct(arrays: Sequence[pa.Array], fields: list[pa.Field], places: Int64s, others: Int64s) -> pa.Array:
    """A struct array with the rows of these columns at the indexes `places`; a negative index gives null. `others` are
    the indexes of the events' rows on the other side."""
    gone = places < 0
    if gone.all():
        return pa.nulls(len(places), pa.struct(fields))
    if not arrays:
        there = pa.py_buffer(np.packbits(~gone, bitorder="little"))
        return pa.StructArray.from_buffers(pa.struct([]), len(places), [there])
    mask = pa.array(gone) if gone.any() else None
    return pa.StructArray.from_arrays(_elements(arrays, places, others), fields=fields, mask=mask)


def _elements(arrays: Sequence[pa.Array], places: Int64s, others: Int64s) -> list[pa.Array]:
    """The elements of each array at the indexes `places`; a negative index gives null. Usually both sides have the same
    indexes, and an event without a row on this side is null at the index of its row on the other side (`others`). Then
    whole sequences of elements are copied, or none at all."""
    gone = places < 0
    at = np.where(gone, others, places)
    first, count = int(at[0]), int(at[-1]) - int(at[0]) + 1
    if first >= 0 and count <= 2 * len(at) and first + count <= len(arrays[0]) and (np.diff(at) > 0).all():
        found = [array.slice(first, count) for array in arrays]
        if count > len(at):
            chosen = np.zeros(count, np.bool_)
            chosen[at - first] = True
            mask = pa.array(chosen)
            found = [array.filter(mask) for array in found]
        missing = pa.array(np.flatnonzero(gone))
        if not len(missing) or all(array.take(missing).null_count == len(missing) for array in found):
            return found
    exact = pa.array(places, mask=gone)
    return [array.take(exact) for array in arrays]


def field_of(column: Column) -> pa.Field:
    """The Arrow field of a column, with its SQL type."""
    return pa.field(column.name, arrow_type(kind_of(column)), metadata={"tidb.type": sql_type(column)})


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
