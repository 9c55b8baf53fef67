"""The holders of changefeeds, as a worker runs them, on a pool in memory, into a broker."""

from __future__ import annotations

import itertools
import threading
import time
from random import Random

from prometheus_client import CollectorRegistry

from bench.inputs.changes import TENANT
from bench.inputs.mixed_rows import committed
from bench.inputs.pulled_pool import SNAPSHOT_TS, source_of
from tistream.clock import SystemClock
from tistream.decode import warm, warm_messages
from tistream.pool.versions.plan import IndexShard
from tistream.pool.writer import write_segment
from tistream.read.row_events import Barrier
from tistream.read.source import TenantSource
from tistream.service.ids import random_id
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.settings import ChangefeedSettings
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink

CLOCK = SystemClock()
SEGMENT_ROWS = 262_144


class Pool:
    """A pool whose resolved_ts is set."""

    def __init__(self, source: TenantSource, ts: int) -> None:
        self.source, self._ts = source, ts
        self._moved = threading.Condition()

    def move(self, ts: int) -> None:
        """Let readers read up to `ts`."""
        with self._moved:
            self._ts = ts
            self._moved.notify_all()

    def resolved_ts(self) -> int:
        return self._ts

    def wait_fresh(self) -> None:
        """It is fresh."""

    def check_known(self) -> None:
        """It is known."""

    def check_served(self, ts: int) -> None:
        assert ts >= SNAPSHOT_TS

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        with self._moved:
            return self._moved.wait_for(lambda: self._ts > ts, timeout_ms / 1000)

    def shards(self) -> list[IndexShard]:
        return []  # no feed begins with rows

    def replan(self) -> None:
        """Nothing disappears."""

    def record_barrier(self, barrier: Barrier) -> None:
        raise AssertionError(str(barrier))


class Feeds:
    """Writes a whole pool by `feeds` feeds side by side, each into a topic of its own; gives the rows acknowledged.
    `every_rows`: the pool grows by so many rows each EVERY_S; 0: all of it is there from the beginning."""

    EVERY_S = 0.2

    def __init__(
        self, address: str, rows: int, updates: float, tables: int, options: str, feeds: int = 1, every_rows: int = 0
    ) -> None:
        warm()
        warm_messages()
        self._address, self._options, self._feeds = address, options, feeds
        self._settings = ChangefeedSettings(meta_url="http://bench", objects_url="memory:")
        step = every_rows or SEGMENT_ROWS
        pool = committed(rows, SNAPSHOT_TS, updates=updates, tables=tables).sort_by([("commit_ts", "ascending")])
        self._objects, self._segments, self._ends = MemoryObjectStore(), [], []
        for at in range(0, rows, step):
            part = pool.slice(at, step)
            self._ends.append(int(part.column("commit_ts")[-1].as_py()))
            body, ref = write_segment(part.sort_by([("table_id", "ascending"), ("commit_ts", "ascending")]), f"s-{at}")
            self._objects.put(ref.key, body)
            self._segments.append(ref)
        self._every = every_rows
        self._tables = tables
        self._names = (f"bench-{random_id()}" for _ in itertools.count())

    def __call__(self) -> int:
        source = source_of(self._objects, self._segments, self._ends[-1], self._tables, self._settings.cache_bytes)
        pool = Pool(source, SNAPSHOT_TS if self._every else self._ends[-1])
        holders = [self._holder(pool, next(self._names)) for _ in range(self._feeds)]
        threads = [threading.Thread(target=_finish, args=(holder,)) for holder in holders]
        for thread in threads:
            thread.start()
        for end in self._ends if self._every else ():
            time.sleep(self.EVERY_S)
            pool.move(end)
        for thread in threads:
            thread.join()
        return sum(holder.report().rows for holder in holders)

    def _holder(self, pool: Pool, topic: str) -> Holder:
        feed = parsed(f"kafka://{self._address}/{topic}?{self._options}", {})
        order = Order(TENANT, topic, 0, Fence(CLOCK.now_ms(), 1), SNAPSHOT_TS, self._ends[-1])
        return Holder(
            Shard(order, Random(1)),
            lambda: pool,
            lambda: KafkaSink(feed.target, order, CLOCK),
            feed.pipeline(None, topic),
            CLOCK,
            self._settings.budget,
            self._settings.window_bytes,
            ChangefeedMetrics(CollectorRegistry()),
        )


def _finish(holder: Holder) -> None:
    while holder.shard.phase != "finished":
        holder.step()
        assert holder.shard.failure is None, holder.shard.failure
    holder.stop()
    holder.run()
