"""A tenant's pool that can be pulled without any service: segments, schema history, and the API's own reader."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.inputs.changes import TENANT
from bench.inputs.mixed_rows import schema_snap
from tistream.clock import SystemClock
from tistream.format.segment import SegmentRef
from tistream.pool.segment_index import SegmentIndex
from tistream.read.cursor import Position, Scope
from tistream.read.group_cache import GroupCache
from tistream.read.row_events import Barrier
from tistream.read.scan import Budget, Scan
from tistream.read.source import TenantSource
from tistream.read.source_contract import Batch
from tistream.schema.history import History
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream_api.encode.encoding import new_encoder
from tistream_api.encode.one_stream import one_stream
from tistream_api.encode.piece import Piece
from tistream_api.pull.answer import Pull
from tistream_api.request.params import ALL, PullParams

SNAPSHOT_TS = 1_790_000_000_000 << 18


@dataclass(frozen=True, slots=True)
class _Standing:
    """A resolved_ts that stands still."""

    ts: int

    def resolved_ts(self) -> int:
        return self.ts

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        del timeout_ms
        return self.ts > ts

    def stopping(self) -> bool:
        return False

    def record_barrier(self, barrier: Barrier) -> None:
        raise AssertionError(str(barrier))


def source_of(
    objects: ObjectStore, segments: Sequence[SegmentRef], end_ts: int, tables: int, cache_bytes: int
) -> TenantSource:
    """The source of what reads these segments of so many tables of mixed_rows."""
    snapshot = parse_snapshot("schema_snap", schema_snap(SNAPSHOT_TS, tables))
    history = History(snapshot.snapshot_ts)
    history.apply(snapshot.records)
    history.advance(end_ts)
    index = SegmentIndex()
    index.update(tuple(segments))
    cache = GroupCache(objects, cache_bytes)
    return TenantSource(threading.RLock(), lambda: history, lambda: [index], cache, lambda: None)


class PulledPool:
    """Pulls from these segments; `cache_bytes` as the server's setting."""

    def __init__(
        self, objects: ObjectStore, segments: Sequence[SegmentRef], end_ts: int, tables: int, cache_bytes: int
    ) -> None:
        self.store = MeasuredObjectStore(objects)
        self._source = source_of(self.store, segments, end_ts, tables, cache_bytes)
        self._end_ts = end_ts

    def pull(self, *names: str, form: str = "ndjson", **more: Any) -> Iterator[Piece]:
        """One answer, as the API server makes it, from the beginning of the pool on."""
        scope = Scope(TENANT, *names)
        params = PullParams(None, None, None, more.get("limit", 1_000_000), 0, False, form, more.get("events", ALL))
        one = one_stream(params, self._source, scope, lambda: self._end_ts)

        def scan(at: Position, high: int, limit: int | None) -> Iterator[Batch]:
            budget = Budget() if limit is None else Budget().for_page(limit)
            return Scan(self._source, scope, at, high, budget).batches()

        return Pull(
            scope,
            params,
            Position(SNAPSHOT_TS),
            _Standing(self._end_ts),
            scan,
            SystemClock(),
            lambda *_: None,
            new_encoder(params, one),
            one,
        ).answer()

    @property
    def read_bytes(self) -> int:
        """Bytes read from the store so far."""
        return sum(one.read_bytes for one in self.store.traffic().values())
