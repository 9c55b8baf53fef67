"""All entries of one shard in one tick as columns, so that matching works on row numbers, and values are copied only
once, into the output. Pure. Rows are numbered in this order: the changes, the entries of the UNMATCHED parts, the rows
of the READY parts (contracts.py explains both)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.format import segment
from tistream.model.tidb_key import KeyParts, key_parts
from tistream_sorter.match.contracts import (
    COMMIT,
    COMMITTED,
    POINTED_WIDE,
    PREWRITE,
    READY_WIDE,
    UNMATCHED_SCHEMA,
    UNMATCHED_WIDE,
    widened,
)
from tistream_sorter.match.exact_match import NEW
from tistream_sorter.match.fast_match import PLAIN_COMMIT, PLAIN_PREWRITE, UNUSUAL, WHOLE, Entries

_NEWEST = pl.CompatLevel.newest()
_FACTS = ("type", "region_version", "log_index", "generation")


class ShardEntries:
    """All entries of one shard in one tick, as columns with one item per row.

    start_ts. commit_ts: 0 if the entry has none. part: NEW for a change of this tick, or else the position of the
    pending part in its list. kind: a constant of match/fast_match.py. keys: raw keys. parts: the decoded keys. away:
    whether the row's values are in a change file, to which its pointer leads.
    """

    def __init__(self, changes: pa.Table, unmatched: list[pa.Table], ready: list[pa.Table]) -> None:
        self.fresh = changes.num_rows
        self.pending = self.fresh + sum(table.num_rows for table in unmatched)  # where ready rows begin
        self._changes, self._unmatched, self._ready = changes, unmatched, ready
        self.part = np.repeat(
            np.array([NEW, *range(len(unmatched)), *range(len(ready))], np.int32),
            [self.fresh, *(table.num_rows for table in (*unmatched, *ready))],
        )
        self.start_ts = _numbers(self._column("start_ts"))
        self.commit_ts = _numbers(self._column("commit_ts"))
        keys = self._column("key")
        self.parts: KeyParts = key_parts(keys)
        self.keys = _series(keys)
        self.kind = self._kinds()
        pointing = [np.asarray(table.column("pointer").is_valid()) for table in unmatched]
        # The values of this tick's changes are in memory, so their pointers are not needed.
        self.away = np.concatenate([np.zeros(self.fresh, bool), *pointing, np.zeros(len(self) - self.pending, bool)])

    def __len__(self) -> int:
        return len(self.part)

    def plain(self, rows: Int64s) -> Entries:
        """The rows with these numbers, which must be ascending and without duplicates, as input of the fast path
        (match/fast_match.py)."""
        if len(rows) == len(self):
            return Entries(self.start_ts, self.kind, self.keys, self.parts)
        return Entries(self.start_ts[rows], self.kind[rows], self.keys.gather(rows), self.parts.take(rows))

    def _column(self, name: str, in_ready: str | None = None) -> pa.ChunkedArray:
        """A column of all rows, with the type that it has in UNMATCHED_SCHEMA. `in_ready`: the column's name in READY
        parts, if it differs."""
        found = [table.column(name) for table in (self._changes, *self._unmatched)]
        found += [table.column(in_ready or name) for table in self._ready]
        chunks = [chunk for column in found for chunk in column.chunks]
        wanted = UNMATCHED_SCHEMA.field(name).type
        return pa.chunked_array([chunk if chunk.type == wanted else chunk.cast(wanted) for chunk in chunks], wanted)

    def _entries(self, name: str) -> pa.ChunkedArray:
        """A column of the changes and the UNMATCHED parts; READY rows are not in it."""
        chunks = [chunk for table in (self._changes, *self._unmatched) for chunk in table.column(name).chunks]
        return pa.chunked_array(chunks, UNMATCHED_SCHEMA.field(name).type)

    def _kinds(self) -> npt.NDArray[np.int8]:
        """The kind of each row, as a constant of match/fast_match.py."""
        types = _numbers(self._entries("type"))
        by_type = np.full(256, UNUSUAL, np.int8)
        by_type[[PREWRITE, COMMIT, COMMITTED]] = PLAIN_PREWRITE, PLAIN_COMMIT, WHOLE
        kinds = np.full(len(self), WHOLE, np.int8)
        kinds[: self.pending] = by_type[types]
        generations = self._entries("generation")
        if generations.null_count < self.pending:
            pipelined = _numbers(generations) > 0
            kinds[: self.pending][pipelined & (types == PREWRITE)] = UNUSUAL
        return kinds

    # -- for the exact path ---------------------------------------------------------------------------------------

    def facts(self, rows: Int64s) -> pl.DataFrame:
        """All columns except the values, for the entries with these row numbers. They must be changes or rows of
        UNMATCHED parts (row number below `pending`)."""
        columns = {name: _series(self._entries(name)).gather(rows) for name in _FACTS}
        valued = np.asarray(self._entries("value").is_valid())[rows] | self.away[rows]
        seq = np.full(self.pending, -1, np.int64)
        seq[: self.fresh] = self._changes.column("seq").to_numpy()
        floor = pl.Series("floor", [None], pl.Int64).extend_constant(None, self.fresh)[1:]
        for table in self._unmatched:
            floor.append(_series(table.column("floor")))
        commit_ts = _series(self._entries("commit_ts")).gather(rows)
        return pl.DataFrame(
            {
                "row": rows,
                "part": self.part[rows],
                "seq": seq[rows],
                **columns,
                "key": self.keys.gather(rows),
                "start_ts": self.start_ts[rows],
                "commit_ts": commit_ts,
                "floor": floor.gather(rows),
                "valued": valued,
                "pending": self.part[rows] >= 0,
            }
        )

    def matched(self, rows: Int64s) -> pl.DataFrame:
        """Gather the columns row, part, start_ts, key and commit_ts of rows of READY parts, which an earlier tick has
        matched."""
        return pl.DataFrame(
            {
                "row": rows,
                "part": self.part[rows],
                "start_ts": self.start_ts[rows],
                "key": self.keys.gather(rows),
                "commit_ts": self.commit_ts[rows],
            }
        )

    # -- output tables ------------------------------------------------------------------------------------------

    def _values(self, name: str, in_ready: str, rows: Int64s) -> pa.Array:
        column = self._column(name, in_ready)
        if column.null_count == len(column):
            return pa.nulls(len(rows), column.type)
        return _series(column).gather(rows).to_arrow(compat_level=_NEWEST)

    def rows(self, rows: Int64s, commit_ts: Int64s, schema: pa.Schema) -> pa.Table:
        """Gather rows by number, in the order of `rows`, with the columns of `schema` (READY_WIDE or segment.SCHEMA).
        `commit_ts` is given for each row, because a prewrite has none. Binary columns are Arrow views."""
        made: dict[str, Callable[[], pa.Array]] = {
            "table_id": lambda: pa.array(self.parts.table_id[rows]),
            "commit_ts": lambda: pa.array(commit_ts),
            "start_ts": lambda: pa.array(self.start_ts[rows]),
            "key": lambda: self.keys.gather(rows).to_arrow(compat_level=_NEWEST),
            "op": lambda: self._values("op_type", "op", rows).cast(pa.int8()),
        }
        columns = [made[name]() if name in made else self._values(name, name, rows) for name in schema.names]
        fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def committed(self, rows: Int64s, commit_ts: Int64s) -> pa.Table:
        """Gather rows by number as a table of segment.SCHEMA, with the given commit_ts. `rows` must be in
        segment.ORDER. Binary columns are Arrow views."""
        return self.rows(rows, commit_ts, segment.SCHEMA) if len(rows) else segment.SCHEMA.empty_table()

    def ready_rows(self, rows: Int64s, commit_ts: Int64s) -> pa.Table:
        """Gather rows by number, with the given commit_ts, as the content of a READY part (contracts.READY_WIDE):
        committed rows above the watermark."""
        if not len(rows):
            return READY_WIDE.empty_table()
        return widened(self.rows(rows, commit_ts, READY_WIDE), READY_WIDE)

    def pointed_rows(self, rows: Int64s, commit_ts: Int64s) -> pa.Table:
        """Gather rows by number, with the given commit_ts, as a table of contracts.POINTED_WIDE: rows whose values stay
        in change files."""
        if not len(rows):
            return POINTED_WIDE.empty_table()
        columns = {
            "key": self.keys.gather(rows).to_arrow(),
            "start_ts": pa.array(self.start_ts[rows]),
            "commit_ts": pa.array(commit_ts),
            "op": _series(self._entries("op_type")).gather(rows).to_arrow(),
            "txn_source": _series(self._entries("txn_source")).gather(rows).to_arrow(),
            "pointer": _series(self._entries("pointer")).gather(rows).to_arrow(),
        }
        return pa.table(columns).select(POINTED_WIDE.names).cast(POINTED_WIDE)

    def unmatched_rows(self, entries: pl.DataFrame) -> pa.Table:
        """Gather the rows of `entries` as the content of an UNMATCHED part (contracts.UNMATCHED_WIDE). Their place in
        the log and their floor (glossary: floor of a lock) are those in `entries`."""
        if not len(entries):
            return UNMATCHED_WIDE.empty_table()
        rows = entries["row"].to_numpy()
        said = ("region_version", "log_index", "floor")
        columns = [
            entries[name].to_arrow() if name in said else _series(self._entries(name)).gather(rows).to_arrow()
            for name in UNMATCHED_WIDE.names
        ]
        return pa.table(columns, names=UNMATCHED_WIDE.names).cast(UNMATCHED_WIDE)


def _numbers(column: pa.ChunkedArray) -> Int64s:
    """A column of integers as an array, with 0 for null. Arrow's to_numpy would convert a column with nulls to
    floats."""
    if column.null_count:
        column = pc.fill_null(column, 0)
    out: Int64s = column.to_numpy()
    return out


def _series(column: pa.ChunkedArray) -> pl.Series:
    """The column as a Polars series with one chunk. Gathering from many chunks is several times slower, and the merge
    copies only the views of binary columns."""
    return pl.Series(column, dtype=None).rechunk()
