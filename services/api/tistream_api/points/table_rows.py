"""Decodes a table's rows as of a ts. Pure, except for reads of the pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode import handle_bytes
from tistream.decode.kernels.arrow_buffers import number_array, one_array
from tistream.decode.keys import int_handles
from tistream.decode.rows import decode_rows
from tistream.format.backfill.base_chunk import UNKNOWN_TS
from tistream.pool.versions.merge import key_array
from tistream.read.row_events import Barrier
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """How the rows of a table are shown: by the table's definition as of a ts, with the chosen columns."""

    version: TableVersion
    ts: int
    schema_version: int
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows in key order. `columns` has one array for each column that `shape` shows; `keys` one for each column of the
    key, or one of `_tidb_rowid` if the table has none."""

    shape: Shape
    columns: Sequence[pa.Array]
    keys: Sequence[pa.Array]
    commit_ts: Ints
    raw: pa.Array  # raw keys

    def __len__(self) -> int:
        return len(self.commit_ts)

    @property
    def known_commit_ts(self) -> pa.Array:
        """The commit_ts of each row; null if the row comes from a backfill that did not state it."""
        return pa.array(self.commit_ts, mask=self.commit_ts == UNKNOWN_TS)

    def slice(self, start: int, count: int) -> DecodedRows:
        """`count` consecutive rows from the index `start` on."""
        columns = [one.slice(start, count) for one in self.columns]
        keys = [one.slice(start, count) for one in self.keys]
        commit_ts = self.commit_ts[start : start + count]
        return DecodedRows(self.shape, columns, keys, commit_ts, self.raw.slice(start, count))

    def take(self, at: Ints) -> DecodedRows:
        """The rows at these indexes."""
        places = pa.array(at)
        columns = [one.take(places) for one in self.columns]
        keys = [one.take(places) for one in self.keys]
        return DecodedRows(self.shape, columns, keys, self.commit_ts[at], self.raw.take(places))


def decoded(shape: Shape, versions: pa.Table) -> tuple[DecodedRows, Barrier | None]:
    """Decode versions of rows that are puts (tistream.format.run.SCHEMA). The result ends before the first row that
    cannot be decoded; the barrier describes that row."""
    table = shape.version.table
    keys = table.key_columns
    columns = [*shape.columns, *(column for column in keys if column not in shape.columns)]
    raw, values = key_array(versions), one_array(versions.column("value"))
    found = decode_rows(table, columns, raw, values)
    arrays = [found.batch.column(at) for at in range(len(columns))]
    if keys:
        shown = [arrays[columns.index(column)] for column in keys]
    else:
        shown = [number_array(*int_handles(raw))]
    commit_ts = versions.column("commit_ts").to_numpy()
    rows = DecodedRows(shape, arrays[: len(shape.columns)], shown, commit_ts, raw)
    reasons = dict(found.errors)
    if values.null_count:
        without = int(np.argmax(pc.is_null(values).to_numpy(zero_copy_only=False)))
        reasons.setdefault(without, "a put without a value")
    if not reasons:
        return rows, None
    bad = min(reasons)
    name = f"{shape.version.database}.{table.name}"
    table_id = versions.column("table_id")[bad].as_py()
    barrier = Barrier(int(commit_ts[bad]), name, table_id, raw[bad].as_py(), reasons[bad])
    return rows.slice(0, bad), barrier


def with_key(rows: DecodedRows, text: str) -> DecodedRows:
    """Select the rows whose key has this text (handle_bytes.key_text)."""
    shown = key_texts(rows)
    hit = pc.equal(shown, pa.scalar(text, shown.type)).to_numpy(zero_copy_only=False)
    return rows if hit.all() else rows.take(np.flatnonzero(hit))


def key_texts(rows: DecodedRows) -> Any:
    """The keys of the rows as text, in the form of handle_bytes.key_text: a string array."""
    columns = rows.shape.version.table.key_columns
    if not columns:
        return pc.binary_join_element_wise('{"_tidb_rowid":"', rows.keys[0].cast(pa.string()), '"}', "")
    return handle_bytes.key_texts(columns, rows.keys)


def pages(shape: Shape, found: Iterator[pa.Table], only: str | None) -> Iterator[tuple[DecodedRows, Barrier | None]]:
    """Decode tables of puts, and yield the rows. If `only`, the text of a key as in `with_key`, is not None, other rows
    are dropped. A result that has a barrier is the last one."""
    for versions in found:
        rows, barrier = decoded(shape, versions)
        yield (rows if only is None else with_key(rows, only)), barrier
        if barrier is not None:
            return
