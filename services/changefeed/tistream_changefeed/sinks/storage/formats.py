"""The formats of data files: lines of canal-json or CSV, as TiCDC writes them, and Parquet. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tistream.arrays import Bools, Int64s, UInt64s
from tistream.decode.kernels.arrow_buffers import flat_bytes
from tistream.errors import CannotEncode
from tistream_changefeed.fingerprints.hashes import event_hashes
from tistream_changefeed.protocols.messages import Encoder
from tistream_changefeed.protocols.op_texts import DELETE, ops_of
from tistream_changefeed.rows.row_batch import RowBatch

LINE, COMMIT_TS = "line", "_commit_ts"
_OPS = ("I", "D", "U")
_GROUP_ROWS = 1 << 17
_FIXED_BYTES = 8  # of a number


class FileFormat(Protocol):
    """The format of data files. `suffix` is the ending of their names. `numbered`: rows must be decoded with the
    numbers of ENUM and SET, not their names."""

    @property
    def suffix(self) -> str: ...

    @property
    def numbered(self) -> bool: ...

    def rows(self, batch: RowBatch) -> tuple[pa.Table, Int64s]:
        """Encode the events of a batch, one row for each. Returns the rows, and the bytes that each has."""

    def hashes(self, rows: pa.Table, commit_ts: Int64s) -> UInt64s:
        """The hash of the event of each encoded row."""

    def body(self, rows: Sequence[pa.Table]) -> bytes:
        """The content of the file that has these rows. How the rows are divided among the given tables does not
        matter."""


class LinesFormat:
    """Files of lines: one or two for each event, as `encoder` encodes it. `end` is the text after each encoded
    value."""

    def __init__(self, encoder: Encoder, suffix: str, end: bytes) -> None:
        self.suffix, self.numbered = suffix, encoder.numbered
        self._encoder, self._end = encoder, end

    def rows(self, batch: RowBatch) -> tuple[pa.Table, Int64s]:
        """Encode the events of a batch. Returns a table with the column LINE, which has the line or lines of each
        event, and the bytes of each row."""
        values = self._encoder.rows(batch).values
        if self._end:
            kind = pa.large_binary()
            values = pc.binary_join_element_wise(values, pa.scalar(self._end, kind), pa.scalar(b"", kind))
        return pa.table({LINE: values}), _lengths(values)

    def hashes(self, rows: pa.Table, commit_ts: Int64s) -> UInt64s:
        """The hash of each event, from its commit_ts and its lines."""
        return event_hashes(commit_ts, rows.columns)

    def body(self, rows: Sequence[pa.Table]) -> bytes:
        """The content of the file that has the lines of these tables, in order."""
        found = (flat_bytes(chunk).data for one in rows for chunk in one.column(LINE).chunks)
        return b"".join(lines.data for lines in found)


class ParquetFormat:
    """Parquet files. The columns `_op` (I, U, D), `_commit_ts` and `_start_ts` come first, then those of the table. A
    delete has the row as it was before; an update has the new row only."""

    suffix, numbered = ".parquet", False

    def rows(self, batch: RowBatch) -> tuple[pa.Table, Int64s]:
        """Convert the events of a batch to the columns of a Parquet file, one row for each event. Returns the table,
        and the estimated bytes of each row. Raises CannotEncode if a column has a reserved name."""
        ops = ops_of(batch)
        deleted = ops == DELETE
        columns: dict[str, pa.Array] = {
            "_op": pa.array(_OPS).take(pa.array(ops)),
            COMMIT_TS: pa.array(batch.commit_ts),
            "_start_ts": pa.array(batch.start_ts),
        }
        taken = next((column.name for column in batch.columns if column.name.lower() in columns), None)
        if taken is not None:
            raise CannotEncode(
                f"column {taken} has a name that Parquet files use themselves: leave it out by a selector"
            )
        sizes = np.full(len(batch), len(columns) * _FIXED_BYTES, np.int64)
        for column, new, old in zip(batch.columns, batch.new, batch.old, strict=True):
            values = _shown(new, old, batch, deleted)
            columns[column.name] = values
            sizes += _sizes(values)
        return pa.table(columns), sizes

    def hashes(self, rows: pa.Table, commit_ts: Int64s) -> UInt64s:
        """The hash of each event, from its commit_ts, its values and the names of the columns."""
        return event_hashes(commit_ts, rows.columns, rows.column_names)

    def body(self, rows: Sequence[pa.Table]) -> bytes:
        """The content of the Parquet file that has the rows of these tables, in order."""
        table = pa.concat_tables(rows).combine_chunks()
        file = pa.BufferOutputStream()
        pq.write_table(table, file, compression="zstd", compression_level=1, row_group_size=_GROUP_ROWS)
        content: bytes = file.getvalue().to_pybytes()
        return content


def _shown(new: pa.Array, old: pa.Array, batch: RowBatch, deleted: Bools) -> pa.Array:
    """The value of a column for each event: that of the old row for a delete, otherwise that of the new row. `deleted`:
    which events are deletes."""
    if not deleted.any():
        return new.take(pa.array(batch.new_at))
    if deleted.all():
        return old.take(pa.array(batch.old_at))
    both = pa.concat_arrays([new, old])
    return both.take(pa.array(np.where(deleted, len(new) + batch.old_at, batch.new_at)))


def _sizes(values: pa.Array) -> Int64s:
    kind = values.type
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _lengths(values)
    return np.full(len(values), _FIXED_BYTES, np.int64)


def _lengths(values: pa.Array) -> Int64s:
    """The bytes of each value; 0 for a null."""
    lengths: Int64s = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths
