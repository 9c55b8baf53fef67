"""Encodes sorted rows as a segment: a Parquet file from whose row groups a reader can fetch the rows of one table
alone.

This module runs in Spark's Python workers, so it imports nothing heavier than pyarrow and numpy. The encodings were
measured (docs/benchmarks.md): zstd level 1; DELTA_BINARY_PACKED for commit_ts, which ascends; BYTE_STREAM_SPLIT for
start_ts, which does not; DELTA_BYTE_ARRAY (front coding) for keys of similar length. If a sample of a value column does
not compress, the column is written at zstd's fastest level, which takes half of the time for the same size.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tistream.arrays import Int64s
from tistream.errors import InvariantBroken
from tistream.format.segment import SCHEMA, RowGroupInfo, SegmentRef

PACKED_ROWS = 65_536  # small tables share a row group up to this many rows
SPLIT_ROWS = 131_072  # a large table is split into row groups of this many rows
GROUP_BYTES = 64 << 20  # a row group ends at about this size, so that reading it takes bounded memory
SAMPLE_ROWS = 512
NARROW_SPREAD = 0.25  # lengths are similar if their standard deviation is at most this fraction of their mean
LEVEL, FASTEST_LEVEL = 1, -1
SQUEEZED = 0.95  # a sample is incompressible if its compressed size is above this fraction
VALUES = ("key", "value", "old_value")


def write_segment(
    table: pa.Table, key: str, packed_rows: int = PACKED_ROWS, level: int = LEVEL
) -> tuple[memoryview, SegmentRef]:
    """Encode rows as the segment object `key`.

    Args:
        table: at least one row, columns of segment.SCHEMA (any binary type for binary columns), sorted by
            segment.ORDER.
        key: the object key, for the returned reference.
        packed_rows: small tables share a row group up to this many rows.
        level: the zstd level, except for columns that do not compress.

    Returns:
        The object's bytes and its reference for a manifest.

    Raises:
        InvariantBroken: there are no rows, they are not sorted by table_id and commit_ts, one of these columns has a
            null, or the columns are wrong.
    """
    table_ids, commit_ts = _ints(table, "table_id"), _ints(table, "commit_ts")
    _check_order(table_ids, commit_ts)
    cuts = row_group_cuts(table_ids, _row_bytes(table), packed_rows)
    sink = pa.BufferOutputStream()
    groups = []
    with pq.ParquetWriter(sink, _file_schema(table), **_options(table, level)) as writer:
        for start, end in cuts:
            writer.write_table(table.slice(start, end - start), row_group_size=end - start)
            groups.append(_info(table_ids[start:end], commit_ts[start:end]))
    body = memoryview(sink.getvalue()).cast("B")
    checksum = f"{zlib.crc32(body):08x}"
    return body, SegmentRef(key, len(body), checksum, table.num_rows, tuple(groups))


def row_group_cuts(
    table_ids: Int64s, row_bytes: Int64s | None = None, packed_rows: int = PACKED_ROWS
) -> list[tuple[int, int]]:
    """The rows [start, end) of each row group, for rows sorted by table. Small tables share row groups of up to
    `packed_rows` rows; a table with more rows has row groups of its own, of up to SPLIT_ROWS rows.

    `row_bytes` has the size of each row in bytes: a row group ends before it exceeds GROUP_BYTES, unless a single row
    is larger. None means that no row group can get so large.
    """
    cuts: list[tuple[int, int]] = []
    packed = 0  # start of the row group that is being filled
    filled = 0
    for start, end in _runs(table_ids):
        if end - start > packed_rows or end - packed > packed_rows:
            if filled > packed:
                cuts.append((packed, filled))
            packed = start
        filled = end
        if end - start > packed_rows:
            cuts.extend((at, min(at + SPLIT_ROWS, end)) for at in range(start, end, SPLIT_ROWS))
            packed = end
    if filled > packed:
        cuts.append((packed, filled))
    if row_bytes is None:
        return cuts
    return [piece for cut in cuts for piece in _cut_by_bytes(*cut, row_bytes)]


def _runs(table_ids: Int64s) -> Iterator[tuple[int, int]]:
    """The rows [start, end) of each sequence of equal table ids."""
    edges = np.flatnonzero(table_ids[1:] != table_ids[:-1]) + 1
    bounds = [0, *edges.tolist(), len(table_ids)]
    return pairwise(bounds)


def _cut_by_bytes(start: int, end: int, row_bytes: Int64s) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(row_bytes[start:end])
    done = 0
    while start < end:
        fits = int(np.searchsorted(ends, done + GROUP_BYTES, side="right")) - (len(ends) - (end - start))
        step = max(1, fits)
        yield start, start + step
        start += step
        done = int(ends[len(ends) - (end - start) - 1])


def _row_bytes(table: pa.Table) -> Int64s | None:
    """The size in bytes of each row's key and values together; None if no row group can reach GROUP_BYTES."""
    if table.nbytes <= GROUP_BYTES:
        return None
    total = np.zeros(table.num_rows, np.int64)
    for name in VALUES:
        total += byte_lengths(table.column(name))
    widest = total.max(initial=0)
    return total if widest * SPLIT_ROWS > GROUP_BYTES else None


def _ints(table: pa.Table, name: str) -> Int64s:
    column = table.column(name)
    if column.null_count:
        raise InvariantBroken(8, f"segment column {name} contains nulls")
    out: Int64s = column.to_numpy()
    return out


def _check_order(table_ids: Int64s, commit_ts: Int64s) -> None:
    if not len(table_ids):
        raise InvariantBroken(10, "a segment has no rows")
    ids = table_ids[1:] >= table_ids[:-1]
    same = table_ids[1:] == table_ids[:-1]
    if not ids.all() or (same & (commit_ts[1:] < commit_ts[:-1])).any():
        raise InvariantBroken(8, "a segment's rows are not sorted by table_id, commit_ts")


def _info(table_ids: Int64s, commit_ts: Int64s) -> RowGroupInfo:
    return RowGroupInfo(
        len(table_ids), int(table_ids[0]), int(table_ids[-1]), int(commit_ts.min()), int(commit_ts.max())
    )


def _file_schema(table: pa.Table) -> pa.Schema:
    """The segment's SCHEMA, but with the binary types that `table` has. In the file, all binary types are encoded in
    the same way."""
    if table.column_names != SCHEMA.names:
        raise InvariantBroken(8, f"a segment has the wrong columns: {table.column_names}")
    return pa.schema([column.with_type(found.type) for column, found in zip(SCHEMA, table.schema, strict=True)])


def _options(table: pa.Table, level: int) -> dict[str, object]:
    encodings = {"commit_ts": "DELTA_BINARY_PACKED", "start_ts": "BYTE_STREAM_SPLIT"}
    levels = dict.fromkeys(SCHEMA.names, level)
    for name in VALUES:
        encodings[name], levels[name] = value_options(table.column(name), level)
    return {
        "compression": "zstd",
        "compression_level": levels,
        "use_dictionary": ["table_id", "op", "txn_source"],
        "column_encoding": encodings,
        "write_statistics": ["table_id", "commit_ts", "key", "op"],
        "write_page_checksum": True,
        "store_schema": False,
    }


def value_options(column: pa.ChunkedArray, level: int) -> tuple[str, int]:
    """Choose (encoding, zstd level) for a value column, by compressing a sample. The level is `level`, or FASTEST_LEVEL
    if the sample does not compress. DELTA_BYTE_ARRAY stores the lengths of values apart from their bytes, which is
    smaller for values of similar length and larger for mixed ones."""
    sample = _sample(column)
    joined = b"".join(sample)
    if not joined:
        return "PLAIN", level
    if len(pa.Codec("zstd", LEVEL).compress(joined, asbytes=True)) > SQUEEZED * len(joined):
        return "PLAIN", FASTEST_LEVEL
    lengths = np.array([len(value) for value in sample])
    return ("DELTA_BYTE_ARRAY" if lengths.std() <= NARROW_SPREAD * lengths.mean() else "PLAIN"), level


def _sample(column: pa.ChunkedArray) -> list[bytes]:
    """About SAMPLE_ROWS values, evenly spaced over the column. Nulls and empty values are left out."""
    step = max(1, len(column) // SAMPLE_ROWS)
    return [value for at in range(0, len(column), step) if (value := column[at].as_py())]


def byte_lengths(column: pa.ChunkedArray) -> Int64s:
    """The size of each value in bytes; 0 for null."""
    out = [np.zeros(0, np.int64)]
    for chunk in column.chunks:
        if not pa.types.is_binary_view(chunk.type):
            out.append(pc.fill_null(pc.binary_length(chunk), 0).to_numpy(zero_copy_only=False).astype(np.int64))
            continue
        # A view has 16 bytes and begins with its length.
        views = np.frombuffer(chunk.buffers()[1], np.int32).reshape(-1, 4)
        lengths = views[chunk.offset : chunk.offset + len(chunk), 0].astype(np.int64)
        out.append(np.where(chunk.is_valid().to_numpy(zero_copy_only=False), lengths, 0))
    return np.concatenate(out)
