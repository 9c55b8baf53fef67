"""PullTenant of a simulated run, in memory: its committed rows through the real schema history and the real API."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import orjson
import polars as pl

from support.simulated import Run
from tistream.clock import ManualClock
from tistream.decode.keys import table_ids
from tistream.format.segment import SCHEMA
from tistream.pool.writer import write_segment
from tistream.schema.history import History
from tistream.schema.meta_change import DDL_JOB_TABLE_ID, MetaDecoder, MetaRow
from tistream.schema.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.memory import MemoryObjectStore
from tistream_api.cursor import Position, Scope
from tistream_api.group_cache import GroupCache
from tistream_api.params import PullParams
from tistream_api.pull import Pull
from tistream_api.row_events import Barrier
from tistream_api.scan import Budget, Scan
from tistream_api.segment_index import SegmentIndex
from tistream_api.source import TenantSource
from tistream_api.source_contract import Batch

Event = dict[str, Any]


def history(run: Run, rows: pl.DataFrame) -> History:
    """The schema history that the registry makes of the snapshot and these committed rows."""
    snapshot = parse_snapshot(run.schema_snap.key, run.schema_snap.data)
    out, decoder = History(snapshot.snapshot_ts), MetaDecoder()
    for record in snapshot.records:
        decoder.learn(record)
    out.apply(snapshot.records)
    rows = rows.with_columns(pl.Series("table_id", table_ids(rows["key"].to_arrow()), pl.Int64))
    meta = rows.filter(pl.col("table_id").is_in([0, DDL_JOB_TABLE_ID])).sort("commit_ts", "start_ts", "key")
    records = []
    for row in meta.iter_rows(named=True):
        value = row["value"] if row["op"] == 1 else None
        place = (row["table_id"], row["commit_ts"], row["start_ts"], row["key"])
        found = decoder.decode(MetaRow(*place, value, row["old_value"]))
        records += [found] if found is not None else []
    out.apply(records)
    out.advance(run.end_ts)
    return out


def events(run: Run, rows: pl.DataFrame) -> list[Event]:
    """The row and ddl events of one uninterrupted pull from the snapshot on."""
    known = history(run, rows)
    objects = MemoryObjectStore()
    rows = rows.with_columns(pl.Series("table_id", table_ids(rows["key"].to_arrow()), pl.Int64))
    table = rows.sort("table_id", "commit_ts", "start_ts", "key").select(SCHEMA.names).to_arrow().cast(SCHEMA)
    index = SegmentIndex()
    if table.num_rows:
        key = layout.segment(run.tenant, 1, 1, "00", 0)
        body, segment = write_segment(table, key)
        objects.put(key, body)
        index.update((segment,))
    cache = GroupCache(objects, 64 << 20)
    source = TenantSource(threading.RLock(), lambda: known, lambda: [index], cache, lambda: None)
    scope = Scope(run.tenant)

    def scan(at: Position, high: int, size: int | None) -> Iterator[Batch]:
        return Scan(source, scope, at, high, Budget()).batches()

    params = PullParams(None, None, run.end_ts, 1_000_000, 0, False)
    progress = _Standing(run.end_ts)
    start = Position(run.snapshot_ts)
    text = b"".join(Pull(scope, params, start, progress, scan, ManualClock(), lambda *_: None).answer())
    found = [orjson.loads(line) for line in text.splitlines()]
    assert found[-1]["type"] == "resolved", found[-1]
    return [event for event in found if event["type"] in ("row", "ddl")]


class _Standing:
    """A resolved_ts that stands still; nothing may be undecodable."""

    def __init__(self, ts: int) -> None:
        self._ts = ts

    def resolved_ts(self) -> int:
        return self._ts

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        return self._ts > ts

    def stopping(self) -> bool:
        return False

    def met(self, barrier: Barrier) -> None:
        raise AssertionError(str(barrier))
