"""Encodes one change file (design.md 2) of a release: committed rows, then one watermark. Pure.

A release is one step of reading a log backup (docs/log-backup.md). A file without changes still has the watermark,
because the tenant advances by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tistream.format.change_file import COMMITTED, OP_PUT, SCHEMA, WATERMARK
from tistream.logbackup.release import REGION_ID, REGION_VERSION, STORE_ID, Release, ReleaseFile
from tistream.model.ids import TenantKey
from tistream.push.change_writer import GROUP_BYTES, GROUP_ROWS, FileIdentity, write_change_file
from tistream.schema.tidb import restored_mark
from tistream_ingest.jobs.joining import ROWS, in_order

_DICTIONARY = ("type", "op_type", "region_id", "region_version", "log_index", "txn_source")
_ROW_BYTES = 48  # of an entry besides its key and values


def encode(tenant: TenantKey, release: Release, number: int, rows: pa.Table) -> bytes:
    """Encode the change file that `release.files[number]` describes. rows: its changes (joining.ROWS), in the order of
    keys. The marks of restores are added to them."""
    piece = release.files[number]
    prev_ts = release.files[number - 1].ts if number else release.prev_ts
    base_ts = release.base_ts if piece.index == release.files[0].index else None
    identity = FileIdentity(tenant, STORE_ID, prev_ts)
    watermarks = _watermark(piece, base_ts) if piece.watermark else SCHEMA.empty_table()
    # Timestamps of single-row transactions are all different: a dictionary would only add to them.
    return write_change_file(
        identity, _groups(_changes(in_order(_marked(release, piece, rows)), piece)), watermarks, _DICTIONARY
    )


def _marked(release: Release, piece: ReleaseFile, rows: pa.Table) -> pa.Table:
    """Add the marks of the release's restores that belong to the file."""
    marks = []
    for one in release.restored:
        (key, value), commit_ts = restored_mark.encode(one), release.marked_at(one)
        if piece.low < commit_ts <= piece.high and key in piece.span:
            mark = {"key": key, "value": value, "op": OP_PUT, "start_ts": commit_ts - 1, "commit_ts": commit_ts}
            marks.append({"old_value": None, "txn_source": None, **mark})
    if not marks:
        return rows
    return pa.concat_tables([rows, pa.Table.from_pylist(marks, ROWS)]).sort_by("key")


def _changes(rows: pa.Table, piece: ReleaseFile) -> pa.Table:
    count = rows.num_rows
    columns: dict[str, Any] = {
        **{name: rows[name] for name in ("key", "value", "old_value", "start_ts", "commit_ts", "txn_source")},
        "type": pa.array(np.full(count, COMMITTED, np.int32)),
        "op_type": rows["op"].cast(pa.int32()),
        "region_id": pa.array(np.full(count, REGION_ID, np.int64)),
        "region_version": pa.array(np.full(count, REGION_VERSION, np.int64)),
        "log_index": pa.array(np.full(count, piece.index, np.int64)),
    }
    return _table(columns, count)


def _watermark(piece: ReleaseFile, base_ts: int | None) -> pa.Table:
    return _table(
        {
            "type": pa.array([WATERMARK], pa.int32()),
            "op_type": pa.array([0], pa.int32()),
            "region_id": pa.array([REGION_ID], pa.int64()),
            "region_version": pa.array([REGION_VERSION], pa.int64()),
            "log_index": pa.array([piece.index], pa.int64()),
            "key": pa.array([b""], pa.binary()),
            "end_key": pa.array([b""], pa.binary()),
            "first_index": pa.array([piece.index], pa.int64()),
            "base_ts": pa.array([base_ts], pa.int64()),
            "resolved_ts": pa.array([piece.high], pa.int64()),
        },
        1,
    )


def _table(columns: dict[str, Any], rows: int) -> pa.Table:
    arrays = [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _groups(changes: pa.Table) -> Iterator[pa.Table]:
    """Cut rows into row groups of at most GROUP_ROWS rows and GROUP_BYTES bytes. A larger row is a row group by
    itself."""
    if not changes.num_rows:
        return
    sizes = np.full(changes.num_rows, _ROW_BYTES, np.int64)
    for name in ("key", "value", "old_value"):
        sizes += _lengths(changes[name])
    ends = np.cumsum(sizes)
    start = 0
    while start < changes.num_rows:
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + GROUP_BYTES, side="right"))
        end = min(max(end, start + 1), start + GROUP_ROWS)
        yield changes.slice(start, end - start)
        start = end


def _lengths(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return found
