"""WATERMARK rows as a task sees them, and how those that wait are kept few and written down. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tistream.model.ts import MAX_TS


@dataclass(frozen=True, slots=True)
class Watermark:
    """One WATERMARK row, clipped to the task's span, with the file that brought it."""

    start: bytes
    end: bytes
    region_id: int
    region_version: int
    first_index: int
    log_index: int
    base_ts: int | None
    resolved_ts: int
    after: tuple[tuple[int, int], ...]
    store_id: int
    file_ts: int

    def clipped(self, start: bytes, end: bytes) -> Watermark:
        """The same row for fewer keys."""
        return replace(self, start=start, end=end)


_PLAIN = (
    "region_id",
    "region_version",
    "first_index",
    "log_index",
    "base_ts",
    "resolved_ts",
    "store_id",
    "file_ts",
)
WAITING = pa.schema(
    [
        pa.field("start_key", pa.binary()),
        pa.field("end_key", pa.binary()),
        *(pa.field(name, pa.int64()) for name in _PLAIN),
        pa.field("after", pa.list_(pa.list_(pa.int64()))),
    ]
)


def rows_of(rows: pa.Table, store_id: int, file_ts: int) -> list[Watermark]:
    """Rows of wire.file_batch.WATERMARKS."""
    return [
        Watermark(
            start=row["start_key"],
            end=row["end_key"],
            region_id=row["region_id"],
            region_version=row["region_version"],
            first_index=row["first_index"],
            log_index=row["log_index"],
            base_ts=row["base_ts"],
            resolved_ts=row["resolved_ts"],
            after=tuple((pair["region_id"], pair["log_index"]) for pair in row["after"] or ()),
            store_id=store_id,
            file_ts=file_ts,
        )
        for row in rows.to_pylist()
    ]


class Queue:
    """Waiting rows as arrays, for as long as they are the same ones."""

    def __init__(self, rows: list[Watermark]) -> None:
        self.rows = rows
        self.start = pa.array([row.start for row in rows], pa.binary())
        self.end = pa.array([row.end for row in rows], pa.binary())
        self.region = np.array([row.region_id for row in rows], np.int64)
        self.version = np.array([row.region_version for row in rows], np.int64)
        self.first_index = np.array([row.first_index for row in rows], np.int64)
        self.base_ts = np.array([MAX_TS if row.base_ts is None else row.base_ts for row in rows], np.int64)
        self.has_after = np.array([bool(row.after) for row in rows], bool)


def joined(rows: Iterable[Watermark]) -> list[Watermark]:
    """Waiting rows as few as possible, in log order: what waits behind a missing file for an hour is one row per
    region and gap, not one per push.

    A row is joined to one before it in the same log when it begins no later than that one ends and promises no less:
    it could not connect where that one cannot, and proves all that both prove.
    """
    out: list[Watermark] = []
    for row in sorted(set(rows), key=_log_order):
        before = out[-1] if out else None
        if before is not None and _continues(before, row):
            out[-1] = replace(before, log_index=row.log_index, resolved_ts=row.resolved_ts)
        else:
            out.append(row)
    return out


def _log_order(row: Watermark) -> tuple[object, ...]:
    base_ts = -1 if row.base_ts is None else row.base_ts
    place = (row.region_version, row.region_id, row.first_index, row.log_index, row.resolved_ts)
    return (row.start, row.end, *place, base_ts, row.after, row.store_id, row.file_ts)


def _continues(before: Watermark, row: Watermark) -> bool:
    same = (before.start, before.end, before.region_id, before.region_version)
    return (
        same == (row.start, row.end, row.region_id, row.region_version)
        and row.base_ts is None
        and not row.after
        and row.first_index <= before.log_index + 1
        and row.log_index >= before.log_index
        and row.resolved_ts >= before.resolved_ts
    )


def to_table(rows: Iterable[Watermark]) -> pa.Table:
    """WAITING, as a manifest restates it."""
    plain = [
        {
            "start_key": row.start,
            "end_key": row.end,
            "after": [list(pair) for pair in row.after],
            **{name: getattr(row, name) for name in _PLAIN},
        }
        for row in rows
    ]
    return pa.Table.from_pylist(plain, schema=WAITING)


def from_table(waiting: pa.Table) -> list[Watermark]:
    """The inverse of to_table."""
    return [
        Watermark(
            start=row["start_key"],
            end=row["end_key"],
            after=tuple((pair[0], pair[1]) for pair in row["after"] or ()),
            **{name: row[name] for name in _PLAIN},
        )
        for row in waiting.to_pylist()
    ]
