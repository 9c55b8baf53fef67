"""Encodes rows as of a ts as NDJSON, one Arrow IPC stream or one Parquet file (docs/points-in-time.md). Pure."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.json_text import object_parts
from tistream.decode.kernels.render_kernel import Form
from tistream.read.arrow.row_batches import BATCH_ROWS, ROWID, VERSION, field_of
from tistream_api.encode.arrow_stream import END_OF_STREAM
from tistream_api.encode.one_stream import marker_batch
from tistream_api.encode.parquet_tar import storable
from tistream_api.encode.piece import Piece
from tistream_api.points.table_rows import DecodedRows, Shape

PIECE_BYTES = 1 << 20
GROUP_BYTES = 8 << 20  # rows that a row group of a Parquet file has, in bytes


class RowEncoder(Protocol):
    """Encodes the rows of one answer."""

    def rows(self, rows: DecodedRows) -> Iterator[Piece]:
        """Encode the next rows. Output may be held back until `end`."""

    def end(self, cursor: str | None) -> Iterator[Piece]:
        """Encode the end of the answer. `cursor` is None if the answer has sent the last row."""


class NdjsonRows:
    """Encodes each row as a line of JSON, and the end of the answer as a line of type `end`."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def rows(self, rows: DecodedRows) -> Iterator[Piece]:
        """Implement RowEncoder.rows: encode the next rows."""
        groups = [
            LineGroup('{"type":"row","key":', key_parts(rows), brackets=True),
            LineGroup(',"row":', object_parts(self._shape.columns, rows.columns), brackets=True),
            LineGroup("", [LineColumn(',"commit_ts":', Form.INT_TEXT, rows.known_commit_ts)]),
        ]
        tail = f',"schema_version":"{self._shape.schema_version}"}}\n'
        for written in LineWriter(len(rows), groups, tail).write(PIECE_BYTES):
            yield written.data.tobytes()

    def end(self, cursor: str | None) -> Iterator[Piece]:
        """Implement RowEncoder.end: encode the end of the answer."""
        line = {"type": "end", "ts": str(self._shape.ts), "cursor": cursor}
        yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def key_parts(rows: DecodedRows) -> list[LineColumn]:
    """The columns of the key, for a LineWriter: they become the members of the object `key` of each row."""
    columns = rows.shape.version.table.key_columns
    if columns:
        return object_parts(columns, rows.keys)
    return [LineColumn('"_tidb_rowid":', Form.INT_TEXT, rows.keys[0])]


class ArrowRows:
    """Encodes rows as one IPC stream with one schema. The cursor at the end of the answer is in the metadata of a last
    batch without rows."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._schema = row_schema(shape)
        self._open = False

    def rows(self, rows: DecodedRows) -> Iterator[Piece]:
        """Implement RowEncoder.rows: encode the next rows."""
        yield from self._begin()
        for start in range(0, len(rows), BATCH_ROWS):
            yield memoryview(batch_of(rows.slice(start, BATCH_ROWS), self._schema).serialize())

    def end(self, cursor: str | None) -> Iterator[Piece]:
        """Implement RowEncoder.end: encode the end of the answer."""
        yield from self._begin()
        yield marker_batch(self._schema, end_metadata(self._shape, cursor)) + END_OF_STREAM

    def _begin(self) -> Iterator[Piece]:
        if not self._open:
            self._open = True
            yield self._schema.serialize().to_pybytes()


class ParquetRows:
    """Encodes rows as one Parquet file. The cursor at the end of the answer is in the file's metadata."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._schema = row_schema(shape)
        self._sink = _Sink()
        empty = storable(self._schema.empty_table())
        self._file = pq.ParquetWriter(
            self._sink, empty.schema, compression="zstd", compression_level=1, write_statistics=["commit_ts"]
        )
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    def rows(self, rows: DecodedRows) -> Iterator[Piece]:
        """Implement RowEncoder.rows: encode the next rows."""
        self._held.append(batch_of(rows, self._schema))
        self._held_bytes += self._held[-1].nbytes
        if self._held_bytes >= GROUP_BYTES:
            self._flush()
            yield self._sink.taken()

    def end(self, cursor: str | None) -> Iterator[Piece]:
        """Implement RowEncoder.end: encode the end of the answer."""
        self._flush()
        self._file.add_key_value_metadata(end_metadata(self._shape, cursor))
        self._file.close()
        yield self._sink.taken()

    def _flush(self) -> None:
        if self._held:
            self._file.write_table(storable(pa.Table.from_batches(self._held)))
            self._held, self._held_bytes = [], 0


class _Sink(io.RawIOBase):
    """A writable file in memory. It releases bytes once `taken` has returned them."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._pieces.append(bytes(data))
        self._size += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._size

    def taken(self) -> bytes:
        """Return the bytes that were written since the last call, and release them."""
        found, self._pieces = b"".join(self._pieces), []
        return found


def row_schema(shape: Shape) -> pa.Schema:
    """The Arrow schema of rows: key, row, commit_ts, schema_version."""
    table = shape.version.table
    key = [field_of(column) for column in table.key_columns] or [ROWID]
    return pa.schema(
        [
            pa.field("key", pa.struct(key), nullable=False),
            pa.field("row", pa.struct([field_of(column) for column in shape.columns]), nullable=False),
            pa.field("commit_ts", pa.int64()),  # null of a row from a backfill that did not state it
            pa.field("schema_version", pa.int64(), nullable=False),
        ],
        metadata={
            "tistream.version": VERSION,
            "tistream.type": "row",
            "tistream.database": shape.version.database,
            "tistream.table": table.name,
            "tistream.table_id": str(table.id),
            "tistream.ts": str(shape.ts),
        },
    )


def batch_of(rows: DecodedRows, schema: pa.Schema) -> pa.RecordBatch:
    """The rows as one batch of `row_schema`."""
    count = len(rows)
    columns = [
        _struct(schema.field("key").type, rows.keys, count),
        _struct(schema.field("row").type, rows.columns, count),
        rows.known_commit_ts,
        pa.repeat(pa.scalar(rows.shape.schema_version, pa.int64()), count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def end_metadata(shape: Shape, cursor: str | None) -> dict[str, str]:
    """The position at the end of an answer as Arrow metadata. It has no cursor if the answer ends after the last
    row."""
    metadata = {"tistream.type": "end", "tistream.ts": str(shape.ts)}
    return metadata if cursor is None else {**metadata, "tistream.cursor": cursor}


def _struct(kind: pa.StructType, arrays: Sequence[pa.Array], count: int) -> pa.Array:
    if not arrays:
        return pa.StructArray.from_buffers(kind, count, [None])
    return pa.StructArray.from_arrays(list(arrays), fields=list(kind))


MEDIA_TYPES = {
    "ndjson": "application/x-ndjson",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
ENCODERS: dict[str, Callable[[Shape], RowEncoder]] = {
    "ndjson": NdjsonRows,
    "arrow": ArrowRows,
    "parquet": ParquetRows,
}
