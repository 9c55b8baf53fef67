"""Encodes sorted versions of rows as one object of a run (tistream.format.run). It is imported in Spark's Python
workers."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tistream.decode.kernels.arrow_buffers import one_array
from tistream.errors import InvariantBroken
from tistream.format.parquet_footer import TRAILER
from tistream.format.run import GROUP_BYTES, GROUP_ROWS, SCHEMA, RunRef
from tistream.pool import key_filter
from tistream.pool.writer import byte_lengths, value_options

LEVEL = 3  # zstd level; a run is written once and read often

Ints = npt.NDArray[np.int64]


def write_run(
    table: pa.Table, key: str, low_ts: int | None, high_ts: int, level: int = LEVEL
) -> tuple[memoryview, RunRef]:
    """Encode versions as the object `key` of the run (low_ts, high_ts]. If low_ts is None, it is an object of the base
    run at high_ts.

    Args:
        table: at least one row, columns of run.SCHEMA (any binary type for binary columns), sorted by run.ORDER.
        level: the zstd level, except for columns that do not compress.

    Returns:
        The object's bytes and its reference for a manifest.

    Raises:
        InvariantBroken: there are no rows, they are outside of the window or not sorted, or the columns are wrong.
    """
    if table.column_names != SCHEMA.names:
        raise InvariantBroken(8, f"a run has the wrong columns: {table.column_names}")
    if not table.num_rows:
        raise InvariantBroken(25, f"{key}: a run has no rows")
    _check(table, key, low_ts, high_ts)
    # A lookup reaches the base run last, so a filter would not save it from reading an older run.
    kept = None if low_ts is None else key_filter.built(one_array(table.column("key")))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, _file_schema(table), **_options(table, level)) as writer:
        for start, end in pairwise(group_edges(row_bytes(table))):
            writer.write_table(table.slice(start, end - start), row_group_size=end - start)
        if kept is not None:
            writer.add_key_value_metadata({key_filter.NAME.decode(): kept.stated().decode()})
    body = memoryview(sink.getvalue()).cast("B")
    if kept is not None:
        body = _before_footer(body, kept.bits)
    ids, keys = table.column("table_id"), table.column("key")
    first, last = ((ids[at].as_py(), keys[at].as_py()) for at in (0, table.num_rows - 1))
    checksum = f"{zlib.crc32(body):08x}"
    return body, RunRef(key, len(body), checksum, table.num_rows, low_ts, high_ts, first, last)


def _before_footer(body: memoryview, data: bytes) -> memoryview:
    """Insert bytes between the last page and the footer of a Parquet file. No offset in a footer points behind the
    pages, so the file stays valid."""
    (length,) = struct.unpack("<I", body[-TRAILER:-4])
    start = len(body) - TRAILER - length
    return memoryview(b"".join((body[:start], data, body[start:])))


def group_edges(sizes: Ints) -> list[int]:
    """Where to cut rows into row groups: the number of the first row of each group, and at the end the number of all
    rows. A group has at most GROUP_ROWS rows, and at most GROUP_BYTES bytes unless a single row is larger. `sizes`: the
    bytes of each row."""
    ends = np.cumsum(sizes)
    edges = [0]
    while (at := edges[-1]) < len(sizes):
        done = int(ends[at - 1]) if at else 0
        fits = int(np.searchsorted(ends, done + GROUP_BYTES, side="right"))
        edges.append(max(at + 1, min(fits, at + GROUP_ROWS)))
    return edges


def row_bytes(table: pa.Table) -> Ints:
    """The size in bytes of each row's key and value together."""
    return byte_lengths(table.column("key")) + byte_lengths(table.column("value"))


def _check(table: pa.Table, key: str, low_ts: int | None, high_ts: int) -> None:
    commit_ts = table.column("commit_ts").to_numpy()
    if int(commit_ts.max()) > high_ts or (low_ts is not None and int(commit_ts.min()) <= low_ts):
        raise InvariantBroken(25, f"{key}: versions outside of the window ({low_ts}, {high_ts}]")
    keys = table.column("key").combine_chunks()
    before, after = keys.slice(0, len(keys) - 1), keys.slice(1)
    rising = pc.less(before, after).to_numpy(zero_copy_only=False)
    same = pc.equal(before, after).to_numpy(zero_copy_only=False)
    newest_first = commit_ts[1:] <= commit_ts[:-1]
    if not (rising | (same & newest_first)).all():
        raise InvariantBroken(25, f"{key}: the versions are not sorted by key and commit_ts")
    if low_ts is None and same.any():
        raise InvariantBroken(25, f"{key}: a base run has two versions of a key")


def _file_schema(table: pa.Table) -> pa.Schema:
    """The run's SCHEMA, but with the binary types that `table` has. In the file, all binary types are encoded in the
    same way."""
    return pa.schema([column.with_type(found.type) for column, found in zip(SCHEMA, table.schema, strict=True)])


def _options(table: pa.Table, level: int) -> dict[str, object]:
    encoding, value_level = value_options(table.column("value"), level)
    return {
        "compression": "zstd",
        "compression_level": {**dict.fromkeys(SCHEMA.names, level), "value": value_level},
        "use_dictionary": ["table_id", "op", "txn_source"],
        # Sorted keys share prefixes. Timestamps follow the order of keys, so they do not ascend.
        "column_encoding": {
            "key": "DELTA_BYTE_ARRAY",
            "commit_ts": "BYTE_STREAM_SPLIT",
            "start_ts": "BYTE_STREAM_SPLIT",
            "value": encoding,
        },
        "write_statistics": ["table_id", "key", "commit_ts"],
        "write_page_checksum": True,
        "store_schema": False,
    }
