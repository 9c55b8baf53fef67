"""Checks the rows of a change file (design.md 2). Each check compares whole columns, not row by row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.errors import CorruptObject
from tistream.format.change_file import (
    COMMIT,
    COMMITTED,
    OP_DELETE,
    OP_NONE,
    OP_PUT,
    PREWRITE,
    ROLLBACK,
    SCHEMA,
    WATERMARK,
)
from tistream.model import keyspace
from tistream.model.span import shown_key

WATERMARKS = pa.schema(
    [
        pa.field("start_key", pa.binary(), nullable=False),
        pa.field("end_key", pa.binary(), nullable=False),  # empty = +inf
        pa.field("region_id", pa.int64(), nullable=False),
        pa.field("region_version", pa.int64(), nullable=False),
        pa.field("first_index", pa.int64(), nullable=False),
        pa.field("log_index", pa.int64(), nullable=False),
        pa.field("base_ts", pa.int64()),
        pa.field("resolved_ts", pa.int64(), nullable=False),
        SCHEMA.field("after"),
    ]
)

# The number of pairs of a file's watermark rows that may overlap is OVERLAPS_MAX + OVERLAPS_PER_ROW * rows. Rows of
# different regions overlap only after a split or merge. Rows of one region always overlap, but a valid file has only a
# few pairs per row, or many if one region was split repeatedly. The limit exists because overlapping rows are applied
# one by one, each to all the slices into which the others cut it.
OVERLAPS_PER_ROW = 64
OVERLAPS_MAX = 1_000_000

_NEEDS_START_TS = (PREWRITE, COMMIT, ROLLBACK, COMMITTED)
_NEEDS_COMMIT_TS = (COMMIT, COMMITTED)
_NEEDS_OP = (PREWRITE, COMMITTED)


def check_changes(key: str, table: pa.Table, key_min: bytes | None = None, key_max: bytes | None = None) -> None:
    """Check that the rows of change row groups are complete changes. Only columns that `table` has are checked.

    `key_min` and `key_max` are the key bounds in the footer. The file was sent to tasks by these bounds, and no CRC
    covers them, so this check finds a damaged bound. Raises CorruptObject.
    """
    _no_nulls(key, table, [column.name for column in SCHEMA if not column.nullable])
    if "type" in table.column_names and not _sound(table):
        kind = table.column("type")
        _refuse(key, _not_in(kind, (PREWRITE, COMMIT, ROLLBACK, COMMITTED)), kind, "a change has type")
        for name, kinds in (("start_ts", _NEEDS_START_TS), ("commit_ts", _NEEDS_COMMIT_TS)):
            if name in table.column_names:
                missing = pc.and_(_is_in(kind, kinds), pc.invert(pc.greater(pc.fill_null(table.column(name), 0), 0)))
                _refuse(key, missing, kind, f"a change has no {name}; its type is")
        if "op_type" in table.column_names:
            op = table.column("op_type")
            _refuse(key, _not_in(op, (OP_NONE, OP_PUT, OP_DELETE)), op, "a change has op_type")
            _refuse(key, pc.and_(_is_in(kind, _NEEDS_OP), pc.equal(op, OP_NONE)), kind, "no op_type with type")
    if "key" in table.column_names and table.num_rows:
        _check_keys(key, table.column("key"), key_min, key_max)


def _check_keys(key: str, keys: pa.ChunkedArray, key_min: bytes | None, key_max: bytes | None) -> None:
    found = pc.min_max(keys).as_py()
    if key_min is not None and key_max is not None and (found["min"] < key_min or found["max"] > key_max):
        raise CorruptObject(key, "contains a key outside of the bounds that its footer states")
    if found["max"] < keyspace.PREFIX:  # all keys of TiDB are below
        return
    long_enough = pc.greater_equal(pc.binary_length(keys), keyspace.PREFIX_BYTES)
    named = keys.filter(pc.and_(pc.starts_with(keys, pattern=keyspace.PREFIX), long_enough))
    if len(named) and (reason := keyspace.refusal(named[0].as_py())) is not None:
        raise CorruptObject(key, reason)


def _sound(table: pa.Table) -> bool:
    """Whether all rows pass a few fast checks, as the rows of every valid file do. If not, slower checks must find
    which rule is broken."""
    if not {"start_ts", "commit_ts", "op_type"} <= set(table.column_names) or table.column("start_ts").null_count:
        return False
    kind, op, start_ts = (table.column(name).to_numpy() for name in ("type", "op_type", "start_ts"))
    if not table.num_rows:
        return True
    if kind.min() < PREWRITE or kind.max() > COMMITTED or op.min() < OP_NONE or op.max() > OP_DELETE:
        return False
    commit_ts = pc.fill_null(table.column("commit_ts"), 0).to_numpy()
    needs_commit_ts = (kind == COMMIT) | (kind == COMMITTED)
    needs_op = (kind == PREWRITE) | (kind == COMMITTED)
    return bool(start_ts.min() > 0 and (commit_ts[needs_commit_ts] > 0).all() and (op[needs_op] != OP_NONE).all())


def watermarks(key: str, table: pa.Table) -> pa.Table:
    """Check the watermark rows of a file, and convert them to the schema WATERMARKS. `table` has the columns
    WATERMARK_COLUMNS; the rows stay in file order.

    Raises CorruptObject if a row is not a complete watermark.
    """
    kind = table.column("type")
    _no_nulls(key, table, ("type",))
    _refuse(key, pc.not_equal(kind, WATERMARK), kind, "a watermark row group contains a row of type")
    renamed = table.drop_columns(["type"]).rename_columns({"key": "start_key"}).select(WATERMARKS.names)
    _no_nulls(key, renamed, [column.name for column in WATERMARKS if not column.nullable])
    start, end = renamed.column("start_key"), renamed.column("end_key")
    bounded = pc.greater(pc.binary_length(end), 0)
    _refuse(key, pc.and_(bounded, pc.less_equal(end, start)), start, "an empty or reversed span at start key")
    first, last = renamed.column("first_index"), renamed.column("log_index")
    _refuse(key, pc.greater(first, pc.add(last, 1)), first, "first_index beyond log_index + 1:")
    for name in ("region_id", "region_version", "first_index", "log_index", "base_ts", "resolved_ts"):
        column = renamed.column(name)
        _refuse(key, pc.fill_null(pc.less(column, 0), False), column, f"a watermark has {name}")
    _check_after(key, renamed.column("after"))
    _check_overlaps(key, start, end)
    return renamed.cast(WATERMARKS).combine_chunks()


def _check_overlaps(key: str, start: pa.ChunkedArray, end: pa.ChunkedArray) -> None:
    rows = len(start)
    found, allowed = overlaps(start, end), OVERLAPS_MAX + OVERLAPS_PER_ROW * rows
    if found > allowed:
        raise CorruptObject(
            key, f"its {rows} watermark rows overlap each other in {found} pairs; no more than {allowed} are accepted"
        )


def overlaps(start: pa.ChunkedArray, end: pa.ChunkedArray) -> int:
    """The number of pairs of spans that overlap. `start` and `end` have one element for each span; an empty end is no
    bound."""
    ends = end.filter(pc.greater(pc.binary_length(end), 0))
    bounds = pa.chunked_array([*ends.chunks, *start.chunks], pa.binary())
    order = pc.sort_indices(bounds).to_numpy()  # the sort is stable, so of equal keys, ends come before starts
    is_end = order < len(ends)
    apart = int(np.cumsum(is_end)[~is_end].sum())
    return len(start) * (len(start) - 1) // 2 - apart


def _check_after(key: str, after: pa.ChunkedArray) -> None:
    named = pc.list_flatten(after)
    if (
        named.null_count
        or pc.struct_field(named, "region_id").null_count
        or pc.struct_field(named, "log_index").null_count
    ):
        raise CorruptObject(key, "an entry of a watermark's `after` lacks the region_id or log_index")


def _no_nulls(key: str, table: pa.Table, names: list[str] | tuple[str, ...]) -> None:
    for name in names:
        if name in table.column_names and table.column(name).null_count:
            raise CorruptObject(key, f"column {name} holds nulls, which are not allowed")


def _is_in(column: pa.ChunkedArray, values: tuple[int, ...]) -> pa.ChunkedArray:
    return pc.is_in(column, value_set=pa.array(values, column.type))


def _not_in(column: pa.ChunkedArray, values: tuple[int, ...]) -> pa.ChunkedArray:
    return pc.invert(_is_in(column, values))


def _refuse(key: str, bad: pa.ChunkedArray, shown: pa.ChunkedArray, what: str) -> None:
    if pc.any(bad).as_py():
        example = shown.filter(bad)[0].as_py()
        raise CorruptObject(key, f"{what} {shown_key(example) if isinstance(example, bytes) else example}")
