"""Kernel ticks one after the other, and the entries to feed them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tistream.model.ts import Window
from tistream_sorter.match.contracts import (
    CHANGE_COLUMNS,
    COMMITTED,
    PREWRITE,
    READY_SCHEMA,
    SCANS_SCHEMA,
    UNMATCHED_SCHEMA,
)
from tistream_sorter.match.kernel import Matched, MatchRules, match
from tistream_sorter.watermark.slice_history import HISTORY

CHANGES = pa.schema(
    [
        *(f for f in UNMATCHED_SCHEMA if f.name in CHANGE_COLUMNS),
        pa.field("seq", pa.int32()),
        UNMATCHED_SCHEMA.field("pointer"),
    ]
)
Entry = dict[str, Any]


def record_key(name: bytes, table_id: int = 7) -> bytes:
    return b"t" + (table_id ^ (1 << 63)).to_bytes(8, "big") + b"_r" + name


def entry(kind: int, name: bytes, start_ts: int, commit_ts: int | None = None, **more: Any) -> Entry:
    base = {"region_version": 1, "log_index": 1, "txn_source": None, "generation": None, "old_value": None, "seq": 0}
    value = b"v%d" % start_ts if kind in (PREWRITE, COMMITTED) else None
    row = {"type": kind, "op_type": 1, "key": record_key(name), "value": value, "start_ts": start_ts}
    return {**base, **row, "commit_ts": commit_ts, **more}


def states(*rows: tuple[int, int, int, int, int, int, int, int]) -> pa.Table:
    """HISTORY over all keys: (seq, version, index, resolved, row_version, row_index, row_resolved, scan_index)."""
    names = [name for name in HISTORY.names if name not in ("start_key", "end_key")]
    return pa.Table.from_pylist(
        [{"start_key": b"", "end_key": b"", **dict(zip(names, row, strict=True))} for row in rows], schema=HISTORY
    )


NOTHING_KNOWN = states((-1, 0, 0, 0, -1, -1, -1, -1))


def scan(seq: int, version: int, place: int) -> pa.Table:
    row = {"seq": seq, "start_key": b"", "end_key": b"", "region_version": version, "log_index": place}
    return pa.Table.from_pylist([row], schema=SCANS_SCHEMA)


class Ticks:
    """Ticks one after the other, with the pending parts that they leave."""

    def __init__(self, snapshot_ts: int = 0) -> None:
        self.snapshot_ts = snapshot_ts
        self.unmatched: list[pa.Table] = []
        self.ready: list[pa.Table] = []
        self.low = snapshot_ts

    def tick(
        self, entries: list[Entry], high: int, history: pa.Table = NOTHING_KNOWN, scans: pa.Table | None = None
    ) -> Matched:
        out = match(
            pa.Table.from_pylist(entries, schema=CHANGES),
            self.unmatched,
            self.ready,
            history,
            SCANS_SCHEMA.empty_table() if scans is None else scans,
            MatchRules(Window(self.low, high), self.snapshot_ts),
        )
        self.unmatched = _left(self.unmatched, out.unmatched_parts, out.unmatched.cast(UNMATCHED_SCHEMA))
        self.ready = _left(self.ready, out.ready_parts, out.ready.cast(READY_SCHEMA))
        self.low = high
        return out

    def waiting(self) -> list[tuple[int, int]]:
        table = pa.concat_tables([UNMATCHED_SCHEMA.empty_table(), *self.unmatched])
        return sorted(zip(table["type"].to_pylist(), table["start_ts"].to_pylist(), strict=True))

    def above(self) -> int:
        return sum(table.num_rows for table in [READY_SCHEMA.empty_table(), *self.ready])


def _left(parts: list[pa.Table], consumed: frozenset[int], new: pa.Table) -> list[pa.Table]:
    kept = [part for number, part in enumerate(parts) if number not in consumed]
    return [*kept, new] if new.num_rows else kept


def rows_of(out: Matched) -> list[tuple[bytes, int, int, bytes]]:
    columns = (out.committed[name].to_pylist() for name in ("key", "start_ts", "commit_ts", "value"))
    return list(zip(*columns, strict=True))
