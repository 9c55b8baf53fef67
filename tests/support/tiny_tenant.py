"""A tenant of one region, whose files tests write row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support import change_files
from support.golden import Delivery
from support.oracle import COMMIT, COMMITTED, PREWRITE, ROLLBACK, WATERMARK
from tistream.model.ids import TenantKey
from tistream.storage import layout

Row = dict[str, Any]


class TinyTenant:
    """Region 1, version 1, all keys; snapshot_ts 100."""

    tenant = TenantKey("7", "tiny")
    snapshot_ts = 100

    def file(self, store: int, ts: int, prev_ts: int, changes: Sequence[Row], *watermarks: Row) -> Delivery:
        """A store's file."""
        data = change_files.change_file("7", "tiny", store, prev_ts, changes=changes, watermarks=watermarks)
        return Delivery(0.0, layout.change_file(self.tenant, store, ts), data)


def key(name: bytes) -> bytes:
    """A record key of table 7."""
    return b"t" + (7 | 1 << 63).to_bytes(8, "big") + b"_r" + name


def watermark(first: int, last: int, resolved_ts: int, **more: Any) -> Row:
    """A row of region 1 over all keys."""
    row = {"type": WATERMARK, "op_type": 0, "region_id": 1, "region_version": 1, "key": b"", "end_key": b""}
    return {**row, "first_index": first, "log_index": last, "resolved_ts": resolved_ts, **more}


def prewrite(name: bytes, start_ts: int, index: int, **more: Any) -> Row:
    return {**_change(PREWRITE, name, start_ts, index), "op_type": 1, "value": b"v%d" % start_ts, **more}


def commit(name: bytes, start_ts: int, commit_ts: int, index: int) -> Row:
    return {**_change(COMMIT, name, start_ts, index), "commit_ts": commit_ts}


def rollback(name: bytes, start_ts: int, index: int) -> Row:
    return _change(ROLLBACK, name, start_ts, index)


def whole(name: bytes, start_ts: int, commit_ts: int, index: int) -> Row:
    body = {"op_type": 1, "value": b"v%d" % start_ts, "commit_ts": commit_ts}
    return {**_change(COMMITTED, name, start_ts, index), **body}


def _change(kind: int, name: bytes, start_ts: int, index: int) -> Row:
    place = {"region_id": 1, "region_version": 1, "log_index": index}
    return {"type": kind, "op_type": 0, "key": key(name), "start_ts": start_ts, **place}
