"""Watermarks of a second, from change files to a task's watermark: the dispatcher's half and the sorter's."""

from __future__ import annotations

import io
from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from bench.inputs.tasks import TASK_ID, identity
from bench.inputs.watermarks import SNAPSHOT_TS, IdleCluster
from tistream.format.change_file import WATERMARK_COLUMNS
from tistream.model.span import WHOLE
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire import file_batch
from tistream_dispatcher.delivery.router import Router, TaskSpan
from tistream_dispatcher.delivery.window import batch_for
from tistream_dispatcher.stores.change_source import read_file, route
from tistream_sorter.routes import by_task
from tistream_sorter.state.task_state import first_state
from tistream_sorter.task.tick import after_files_without_job, apply_files

POSTS = 10  # batches, and ticks, a second


class Seconds:
    """A cluster's files of one second after the other, in memory."""

    def __init__(self, regions: int, stores: int) -> None:
        self._cluster = IdleCluster(regions, stores)
        self._second = -1
        self.objects = MemoryObjectStore()
        self.keys: list[str] = []

    def next(self) -> None:
        """Put the next second's files in place of the last one's."""
        self._second += 1
        for key in self.keys:
            self.objects.delete(key)
        self.keys = []
        for store in self._cluster.stores:
            key, body = self._cluster.file(store, self._second)
            self.objects.put(key, body)
            self.keys.append(key)


class Dispatcher:
    """Reads, routes and encodes: bodies of POST /v1/files for one sorter that has the whole tenant."""

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds
        self._router = Router([TaskSpan(TASK_ID, WHOLE)])
        self._chains: dict[int, int] = {}
        self.bodies: list[bytes] = []

    def __call__(self) -> None:
        keys = self._seconds.keys
        count = -(-len(keys) // POSTS)
        self.bodies = [self._body(keys[at : at + count]) for at in range(0, len(keys), count)]

    def _body(self, keys: Sequence[str]) -> bytes:
        routed = []
        for key in keys:
            file = read_file(self._seconds.objects, key, 0)
            chain_ts = self._chains.setdefault(file.store_id, file.seen.ts)
            routed.append(route(file, chain_ts, self._router))
        return file_batch.encode(batch_for(1, routed, [TASK_ID]))


class Sorter:
    """Decodes the bodies and takes them into the task's slices, a tick each."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._state = first_state(identity(SNAPSHOT_TS), 1)
        self.watermark = 0

    def __call__(self) -> None:
        for body in self._dispatcher.bodies:
            files = by_task(file_batch.decode(body))[TASK_ID]
            self._state = after_files_without_job(apply_files(self._state, files)[0])
            self.watermark = self._state.progress_ts


class PlainReader:
    """The same rows by pyarrow's own reader, as a table; nothing is checked or routed."""

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds
        self.rows = 0

    def __call__(self) -> None:
        tables = []
        for key in self._seconds.keys:
            body = io.BytesIO(self._seconds.objects.get(key))
            tables.append(pq.ParquetFile(body).read(columns=list(WATERMARK_COLUMNS), use_threads=False))
        self.rows = pa.concat_tables(tables).num_rows


class PolarsUpdate:
    """The newest resolved_ts per region by a join in Polars, on the same bodies; no keys, no log ranges."""

    def __init__(self, dispatcher: Dispatcher, regions: int) -> None:
        self._dispatcher = dispatcher
        ids = pl.Series("region_id", range(1_000, 1_000 + regions), pl.Int64)
        self._known = pl.DataFrame([ids, pl.repeat(SNAPSHOT_TS, regions, dtype=pl.Int64, eager=True).alias("resolved")])
        self.watermark = 0

    def __call__(self) -> None:
        for body in self._dispatcher.bodies:
            rows = pl.from_arrow(file_batch.decode(body).watermarks.select(["region_id", "resolved_ts"]))
            assert isinstance(rows, pl.DataFrame)
            newest = pl.max_horizontal("resolved", "resolved_ts").alias("resolved")
            joined = self._known.lazy().join(rows.lazy(), on="region_id", how="left", maintain_order="left")
            self._known = joined.select("region_id", newest).collect()
            self.watermark = int(self._known["resolved"].min())  # type: ignore[arg-type]
