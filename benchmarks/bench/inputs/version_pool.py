"""A tenant's version index that can be read without any service: runs, schema history, and the API's own reader."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from bench.inputs.changes import TENANT
from bench.inputs.mixed_rows import schema_snap
from bench.inputs.pulled_pool import SNAPSHOT_TS
from tistream.format.run import RunRef
from tistream.format.segment import SegmentRef
from tistream.model.span import WHOLE
from tistream.pool.footers import FooterCache
from tistream.pool.segment_index import SegmentIndex
from tistream.pool.versions.plan import IndexShard
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read.cursor import Scope
from tistream.read.group_cache import GroupCache
from tistream.read.row_events import Barrier
from tistream.read.source import TenantSource
from tistream.schema.history import History
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream_api.points.cached_reader import CachedReader

SCOPE = Scope(TENANT, "bench", "mixed_0")
CACHE_BYTES = 64 << 20


class VersionPool:
    """One task whose runs hold every version up to `end_ts`; no segment is above them. `segments`, if there are any,
    hold every change above `base_ts` too."""

    def __init__(
        self,
        objects: ObjectStore,
        runs: Sequence[RunRef],
        base_ts: int,
        end_ts: int,
        segments: Sequence[SegmentRef] = (),
    ) -> None:
        snapshot = parse_snapshot("schema_snap", schema_snap(SNAPSHOT_TS, 1))
        history = History(snapshot.snapshot_ts)
        history.apply(snapshot.records)
        history.advance(end_ts)
        self.store, self.end_ts = MeasuredObjectStore(objects), end_ts
        cache = GroupCache(self.store, CACHE_BYTES)
        self.source = TenantSource(threading.RLock(), lambda: history, lambda: [SegmentIndex()], cache, _gone)
        logged_ts = base_ts if segments else None
        self._shards = [IndexShard(WHOLE, tuple(segments), tuple(runs), end_ts, base_ts, base_ts, logged_ts=logged_ts)]

    def reads(self) -> PoolReads:
        """Reads that know no footer and no row yet."""
        cache = GroupCache(self.store, CACHE_BYTES)
        return PoolReads(CachedReader(self.store, cache, FooterCache()), lambda: self._shards, _gone)

    def gets(self) -> int:
        """GET requests so far."""
        return self.store.traffic()["get"].requests


def _gone() -> None:
    raise AssertionError("nothing is deleted here")


def record_barrier(barrier: Barrier) -> None:
    """What a page does with a row that cannot be decoded."""
    raise AssertionError(str(barrier))
