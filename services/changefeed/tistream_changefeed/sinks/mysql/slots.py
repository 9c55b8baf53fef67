"""Divides the net change of a window among slots, which are connections that write side by side. Pure.

Two changes that have a value of a unique key in common go to one slot, where deletes come before puts. So no slot waits
for another one, and no unique key collides. Values are compared so that all that are equal under the column's collation
are equal here; where that is not certain, more values are equal here than there, and more changes share a slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from tistream.arrays import Bools, Int64s
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column
from tistream_changefeed.rows.net import TableNet

FIRST = 0  # the slot of changes that more than one slot could have
_BIN = frozenset({"binary", "utf8mb4_bin", "utf8mb4_0900_bin", "utf8_bin", "ascii_bin", "latin1_bin"})
# Under these, ASCII texts are equal if they differ in case or trailing blanks only.
_OF_ASCII = frozenset(
    {"utf8mb4_general_ci", "utf8_general_ci", "utf8mb4_unicode_ci", "utf8_unicode_ci", "utf8mb4_0900_ai_ci"}
)
_PLAIN = r"^[ -~]*$"


def divided(nets: Sequence[TableNet], slots: int) -> list[list[TableNet]]:
    """Divide the net change of a window among slots 0 to `slots` - 1. Returns the part of each, by its number."""
    out: list[list[TableNet]] = [[] for _ in range(slots)]
    for one in nets:
        at = assigned(one, slots)
        ends = np.cumsum([one.deletes.num_rows, one.updates.num_rows])
        for slot in range(slots) if at.any() else (FIRST,):
            part = one.chosen(*np.split(at == slot, ends))
            if len(part):
                out[slot].append(part)
    return out


def assigned(one: TableNet, slots: int) -> Int64s:
    """The slot of each row of a table's net change: of its deletes, then its updates, then its inserts."""
    rows = pa.concat_batches([one.deletes, one.updates, one.inserts])
    if slots == 1 or not one.handle:  # rows without a key are written in order
        return np.full(rows.num_rows, FIRST, np.int64)
    values = _Values(one.columns, rows)
    key = values.hashes(one.handle)
    slot = (key.value % np.uint64(slots)).astype(np.int64)
    freed_or_taken = np.ones(rows.num_rows, bool)
    freed_or_taken[one.deletes.num_rows : one.deletes.num_rows + one.updates.num_rows] = False
    shared = [
        _Hashes(found.value[freed_or_taken & ~found.null], np.flatnonzero(freed_or_taken & ~found.null))
        for found in (values.hashes(columns) for columns in _unique(one))
    ]
    while True:
        crossing = np.concatenate([np.empty(0, np.int64), *(_crossing(one, slot) for one in shared)])
        if not len(crossing):
            return slot
        slot[np.isin(key.value, key.value[crossing])] = FIRST


@dataclass(frozen=True, slots=True)
class _Hashes:
    """Hashes of values, and the numbers of the rows that have them."""

    value: np.ndarray
    rows: Int64s


def _crossing(one: _Hashes, slot: Int64s) -> Int64s:
    """The rows that are not in the first slot, and have a value in common with a row of another slot."""
    frame = pl.DataFrame({"value": one.value, "slot": slot[one.rows], "row": one.rows})
    apart = frame.filter(pl.col("slot").n_unique().over("value") > 1).filter(pl.col("slot") != FIRST)
    return apart["row"].to_numpy()


@dataclass(frozen=True, slots=True)
class _Keys:
    value: np.ndarray
    null: Bools


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of rows. Values that a server may find equal have equal hashes."""

    columns: Sequence[Column]
    rows: pa.RecordBatch

    def hashes(self, columns: Sequence[Column]) -> _Keys:
        """A hash of each row's values in these columns, and whether one of them is NULL."""
        found: list[pl.Series] = []
        null = np.zeros(self.rows.num_rows, bool)
        for column in columns:
            array = self.rows.column(self.columns.index(column))
            null |= array.is_null().to_numpy(zero_copy_only=False)
            text = _folded(column, pl.Series(pl.from_arrow(array)))
            if text is not None:
                found.append(text.alias(str(len(found))))
        if not found:
            return _Keys(np.zeros(self.rows.num_rows, np.uint64), null)
        return _Keys(pl.DataFrame(found).hash_rows(seed=0).to_numpy(), null)


def _folded(column: Column, values: pl.Series) -> pl.Series | None:
    """The values of a column, so that all are equal here that are equal for a server. None if that is not known: then
    any two values may be equal."""
    if column.tp in (t.FLOAT, t.DOUBLE):
        return values + 0.0  # -0 equals 0
    if column.tp not in t.TEXTS or column.binary:
        return values
    if column.collate in _BIN:
        return values.str.strip_chars_end(" ")
    plain = column.collate in _OF_ASCII and bool(values.drop_nulls().str.contains(_PLAIN).all())
    return values.str.strip_chars_end(" ").str.to_uppercase() if plain else None


def _unique(one: TableNet) -> Iterator[tuple[Column, ...]]:
    """The columns of each unique index of the table. Columns whose values are not known, or of which the index has only
    a prefix, are left out, which makes more rows equal."""
    table = one.version.table
    for index in table.indexes:
        if index.unique or index.primary:
            parts = [table.columns[part.offset] for part in index.columns if part.length == -1]
            yield tuple(column for column in parts if column in one.columns)
