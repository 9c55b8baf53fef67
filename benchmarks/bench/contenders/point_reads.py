"""Single keys of a table in the version index: the API's answers without HTTP, and DuckDB over the same objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from bench.inputs.mixed_rows import TABLE_ID, keys
from bench.inputs.version_pool import SCOPE, VersionPool, record_barrier
from tistream.decode import warm
from tistream.format.run import RunRef
from tistream.model.ts import Window
from tistream.pool.versions.lookup import PLACES
from tistream.pool.versions.pool_reads import PoolReads
from tistream.storage.open import open_objects
from tistream_api.points.list_rows import RowsPage
from tistream_api.points.named_table import ranges_asked, shape_of, table_at
from tistream_api.points.row_formats import ENCODERS
from tistream_api.points.row_history import RowHistory

HISTORY_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Took:
    """One answer: wall and processor seconds, GET requests, and the rows or versions in it."""

    wall_s: float
    cpu_s: float
    gets: int
    found: int


class PointReads:
    """A call reads the rows of these handles at the end, or with `history` their versions above base_ts, and returns
    one Took for each. With `cold`, no footer is known before each."""

    def __init__(
        self, root: str, runs: Sequence[RunRef], base_ts: int, end_ts: int, history: bool, handles: Sequence[int]
    ) -> None:
        warm()
        self._handles = handles
        self._pool = VersionPool(open_objects(root), runs, base_ts, end_ts)
        self._low_ts, self._reads = base_ts, self._pool.reads()
        self._read: Callable[[PoolReads, dict[str, Any]], int] = self._history if history else self._row

    def __call__(self, cold: bool = False) -> list[Took]:
        took = []
        for handle in self._handles:
            reads = self._pool.reads() if cold else self._reads
            gets, wall, cpu = self._pool.gets(), time.perf_counter(), time.process_time()
            found = self._read(reads, {"id": handle})
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            took.append(Took(wall, cpu, self._pool.gets() - gets, found))
        return took

    def _row(self, reads: PoolReads, key: dict[str, Any]) -> int:
        source, ts, sent = self._pool.source, self._pool.end_ts, 0
        version = table_at(source, SCOPE, ts, None)
        shape = shape_of(source, version, ts, None)
        ranges, only = ranges_asked(version, key, None, None)

        def count(rows: int, _events: int, _size: int) -> None:
            nonlocal sent
            sent += rows

        encoder = ENCODERS["ndjson"](shape)
        page = RowsPage(SCOPE, shape, ranges, only, b"", 10, reads, encoder, count, record_barrier, lambda: False)
        for _ in page.pieces():
            pass
        return sent

    def _history(self, reads: PoolReads, key: dict[str, Any]) -> int:
        window = Window(self._low_ts, self._pool.end_ts)
        found = RowHistory(SCOPE, key, window, HISTORY_LIMIT, self._pool.source, reads).answer()
        return len(found["versions"])

    def values(self) -> list[bytes | None]:
        """The newest raw value of each handle; they ascend."""
        ids = np.full(len(self._handles), TABLE_ID)
        places = pa.table([pa.array(ids), keys(ids, np.array(self._handles))], schema=PLACES)
        found: list[bytes | None] = self._reads.newest(places, self._pool.end_ts).column("value").to_pylist()
        return found


class DuckDbPoints:
    """The newest value of each handle, or with `history` the number of versions above base_ts, a query each, over the
    objects of the same runs."""

    def __init__(self, paths: Sequence[str], base_ts: int, history: bool, handles: Sequence[int]) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._paths, self._base_ts, self._history, self._handles = list(paths), base_ts, history, handles

    def __call__(self) -> list[Any]:
        paths, base_ts = self._paths, self._base_ts
        ids = np.full(len(self._handles), TABLE_ID)
        out = []
        for key in keys(ids, np.array(self._handles)).to_pylist():
            if self._history:
                text = "SELECT count(*) FROM read_parquet(?) WHERE key = ? AND commit_ts > ?"
                found = self._connection.execute(text, [paths, key, base_ts]).fetchone()
            else:
                text = "SELECT value FROM read_parquet(?) WHERE key = ? ORDER BY commit_ts DESC LIMIT 1"
                found = self._connection.execute(text, [paths, key]).fetchone()
            assert found is not None
            out.append(found[0])
        return out
