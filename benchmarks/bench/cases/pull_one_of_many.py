"""What a pull of one table costs where there are ten thousand."""

from __future__ import annotations

import time

import pyarrow as pa

from bench.inputs.mixed_rows import TABLE_ID, committed
from bench.inputs.pulled_pool import SNAPSHOT_TS, PulledPool
from bench.measure import Bench
from tistream.decode import warm
from tistream.pool.writer import write_segment
from tistream.storage.backends.directory import DirectoryObjectStore

WHAT = (
    "a PullTable of one table among 10,000 in a directory on local disk: bytes read from the store, bytes sent, time "
    "to the first byte; nothing is held in memory before"
)
TABLES = 10_000
USUAL = 4
BUSY_ROWS, SMALL_ROWS = 131_072, 100


def run(bench: Bench) -> None:
    """See WHAT."""
    warm()
    busy = committed(BUSY_ROWS, SNAPSHOT_TS)
    for scale in bench.scales:
        tables = bench.sized(TABLES, scale)
        others = committed(tables * 20, SNAPSHOT_TS, tables=tables)
        others = others.filter(pa.compute.greater(others["table_id"], TABLE_ID))
        uneven = pa.concat_tables([busy, others])
        _measure(bench, "a busy table of 131,072 rows, 9,999 others of 20", uneven, 1.3, scale)
        even = committed(tables * SMALL_ROWS, SNAPSHOT_TS, tables=tables)
        _measure(bench, "every table has 100 rows in the segment", even, 1.3, scale)


def _measure(bench: Bench, name: str, rows: pa.Table, aim: float | None, scale: int) -> None:
    folder = name.split(",", maxsplit=1)[0].replace(" ", "-")
    objects = DirectoryObjectStore(bench.tmp / str(scale) / folder)
    body, ref = write_segment(rows.combine_chunks(), "segment")
    objects.put(ref.key, body)
    end_ts = int(pa.compute.max(rows["commit_ts"]).as_py())
    pool = PulledPool(objects, [ref], end_ts, bench.sized(TABLES, scale), 256 << 20)
    began = time.perf_counter()
    answer = pool.pull("bench", "mixed_0")
    sent = len(next(answer))
    first = time.perf_counter() - began
    sent += sum(map(len, answer))
    own = [group for group in ref.row_groups if group.table_id_min <= TABLE_ID <= group.table_id_max]
    stored = ref.size * sum(group.rows for group in own) / ref.rows
    bench.figure(f"{name}: bytes read for each byte sent", pool.read_bytes / sent, "bytes", aim, scale=scale)
    ratio = pool.read_bytes / stored
    bench.figure(f"{name}: bytes read for each byte of row groups with its rows", ratio, "bytes", scale=scale)
    bench.figure(f"{name}: requests to the store", pool.store.traffic()["get"].requests, "requests", scale=scale)
    bench.figure(f"{name}: time to the first byte", 1000 * first, "ms", 100, scale=scale)
