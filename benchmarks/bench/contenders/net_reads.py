"""The net changes of a table between two timestamps as Arrow: DiffTable's answer without HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from bench.inputs.version_pool import SCOPE, VersionPool, record_barrier
from tistream.decode import warm
from tistream.format.run import RunRef
from tistream.format.segment import SegmentRef
from tistream.storage.open import open_objects
from tistream_api.encode.encoding import FORMATS
from tistream_api.points.named_table import table_at
from tistream_api.points.net.net_changes import parts_between
from tistream_api.points.net.net_page import NetPage, diff_parts
from tistream_api.points.point_cursor import Kind, PointPosition


class Diff:
    """A call compares base_ts with the end, and returns the events sent. `segments`: as VersionPool has them."""

    def __init__(
        self,
        root: str,
        runs: Sequence[RunRef],
        base_ts: int,
        end_ts: int,
        limit: int,
        segments: Sequence[SegmentRef] = (),
    ) -> None:
        warm()
        self._pool = VersionPool(open_objects(root), runs, base_ts, end_ts, segments)
        self._base_ts, self._limit = base_ts, limit

    def __call__(self) -> int:
        source, at, sent = self._pool.source, PointPosition(self._base_ts, self._pool.end_ts), 0

        def count(events: int, _rows: int, _size: int) -> None:
            nonlocal sent
            sent += events

        before, after = (table_at(source, SCOPE, ts, None) for ts in (at.low_ts, at.high_ts))
        versions = source.schema_version(at.low_ts), source.schema_version(at.high_ts)
        parts = diff_parts(parts_between(before, after, versions, at.low_ts, at.high_ts))
        encoder, reads = FORMATS["arrow"].new(), self._pool.reads()
        page = NetPage(
            Kind.DIFF, SCOPE, parts, at, self._limit, source, reads, encoder, count, record_barrier, lambda: False
        )
        for _ in page.pieces():
            pass
        return sent
