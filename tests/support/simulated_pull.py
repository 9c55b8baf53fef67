"""PullTenant of a simulated run, in memory: its committed rows through the real schema history and the real API."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import orjson
import polars as pl
import pyarrow as pa

from support.simulated import Run
from tistream.clock import ManualClock
from tistream.decode.json_text import render_objects
from tistream.decode.keys import table_ids
from tistream.decode.rows import decode_rows
from tistream.format.segment import SCHEMA
from tistream.model.ids import TenantKey
from tistream.pool.segment_index import SegmentIndex
from tistream.pool.writer import write_segment
from tistream.read.cursor import Position, Scope
from tistream.read.group_cache import GroupCache
from tistream.read.row_events import Barrier
from tistream.read.scan import Budget, Scan
from tistream.read.source import TenantSource
from tistream.read.source_contract import Batch
from tistream.schema.history import History
from tistream.schema.tidb.meta_change import DDL_JOB_TABLE_ID, MetaDecoder, MetaRow
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_api.encode.ndjson import NdjsonEncoder
from tistream_api.pull.answer import Pull
from tistream_api.request.params import PullParams

Event = dict[str, Any]


def history(run: Run, rows: pl.DataFrame) -> History:
    """The schema history that the registry makes of the snapshot and these committed rows."""
    return _history(run.schema_snap.data, rows, run.end_ts)


def _history(schema_snap: bytes, rows: pl.DataFrame, end_ts: int) -> History:
    snapshot = parse_snapshot("schema_snap", schema_snap)
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
    out.advance(end_ts)
    return out


def events(run: Run, rows: pl.DataFrame) -> list[Event]:
    """The row and ddl events of one uninterrupted pull from the snapshot on."""
    return events_of(run.tenant, run.schema_snap.data, rows, run.end_ts)


def events_of(tenant: TenantKey, schema_snap: bytes, rows: pl.DataFrame, end_ts: int) -> list[Event]:
    """The same of a tenant's committed rows, whoever pushed them."""
    known = _history(schema_snap, rows, end_ts)
    objects = MemoryObjectStore()
    rows = rows.with_columns(pl.Series("table_id", table_ids(rows["key"].to_arrow()), pl.Int64))
    table = rows.sort("table_id", "commit_ts", "start_ts", "key").select(SCHEMA.names).to_arrow().cast(SCHEMA)
    index = SegmentIndex()
    if table.num_rows:
        key = layout.segment(tenant, 1, 1, "00", 0)
        body, segment = write_segment(table, key)
        objects.put(key, body)
        index.update((segment,))
    cache = GroupCache(objects, 64 << 20)
    source = TenantSource(threading.RLock(), lambda: known, lambda: [index], cache, lambda: None)
    scope = Scope(tenant)

    def scan(at: Position, high: int, size: int | None) -> Iterator[Batch]:
        return Scan(source, scope, at, high, Budget()).batches()

    params = PullParams(None, None, end_ts, 1_000_000, 0, False)
    progress = _Standing(end_ts)
    start = Position(known.snapshot_ts)
    pull = Pull(scope, params, start, progress, scan, ManualClock(), lambda *_: None, NdjsonEncoder())
    text = b"".join(pull.answer())
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

    def record_barrier(self, barrier: Barrier) -> None:
        raise AssertionError(str(barrier))


def select(known: History, alive: dict[bytes, bytes], ts: int) -> dict[int, list[tuple[Event, Event]]]:
    """What SELECT shows at `ts` of these raw rows: by table id (key, row) as the API words them."""
    out: dict[int, list[tuple[Event, Event]]] = {}
    ids = table_ids(pa.array(list(alive), pa.binary())).tolist()
    for (key, value), table_id in zip(alive.items(), ids, strict=True):
        version = known.table_at(table_id, ts + 1) if key[9:11] == b"_r" else None
        if version is not None:
            table = version.table
            rows = decode_rows(table, table.visible_columns, pa.array([key]), pa.array([value]))
            assert rows.errors == {}
            row = orjson.loads(render_objects(table.visible_columns, rows.batch)[0].as_py())
            names = [column.name for column in table.key_columns]
            handle = str(int.from_bytes(key[11:19], "big") - (1 << 63))
            shown = {name: row[name] for name in names} or {"_tidb_rowid": handle}
            out.setdefault(table_id, []).append((shown, row))
    return out
