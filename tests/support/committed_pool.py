"""A task's committed pool, written as a sorter would: segments and manifests in an object store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tistream.format import manifest as manifest_format
from tistream.format.manifest import KIND_CHECKPOINT, KIND_CLAIM, KIND_SEAL, KIND_TICK, Manifest
from tistream.format.run import IndexPart
from tistream.format.segment import SCHEMA, SegmentRef
from tistream.model.base_cover import Base, Cover, laid_over
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.pool.writer import write_segment
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream.wire.sorter import TaskStatus

Row = dict[str, Any]


class CommittedTask:
    """One task; `flush` commits the next window."""

    def __init__(
        self, objects: ObjectStore, tenant: TenantKey, snapshot_ts: int, *, task_id: int = 1, span: KeySpan = WHOLE
    ) -> None:
        self._objects = objects
        self.tenant = tenant
        self.task_id = task_id
        self.span = span
        self.number = 0
        self.flushed_ts = snapshot_ts
        self.retained_ts = 0  # what the next manifest says of it
        self.schema_retained_ts: int | None = None  # the same of the schema's keys; None: no other
        self.cover: Cover = ()  # of backfills
        self.live: list[SegmentRef] = []
        self._commit(KIND_CLAIM, 0, 0, ())

    def flush(self, flushed_ts: int, rows: Sequence[Row] = ()) -> None:
        """Commit rows (of segment.SCHEMA, in any order) with flushed_ts."""
        segments = (self._written(rows),) if rows else ()
        self._commit(KIND_TICK, self.flushed_ts, flushed_ts, segments)
        self.flushed_ts = flushed_ts

    def rewrite_live(self, rows: Sequence[Row]) -> None:
        """Replace all live segments by one segment with these rows, and delete them."""
        before, self.live = self.live, [self._written(rows)]
        self._commit(KIND_CHECKPOINT, self.flushed_ts, self.flushed_ts, ())
        for segment in before:
            self._objects.delete(segment.key)

    def backfill(self, span: KeySpan, base_ts: int) -> None:
        """Commit that all rows of `span` are known as of `base_ts`: a base without rows."""
        self.cover = laid_over(self.cover, [Base(span, base_ts)])
        self._commit(KIND_CHECKPOINT, self.flushed_ts, self.flushed_ts, ())

    def _written(self, rows: Sequence[Row]) -> SegmentRef:
        ordered = sorted(rows, key=lambda row: (row["table_id"], row["commit_ts"], row["start_ts"], row["key"]))
        table = pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names} for row in ordered], SCHEMA)
        key = layout.segment(self.tenant, self.task_id, 1, f"{self.number:016x}", 0)
        body, segment = write_segment(table, key)
        self._objects.put(key, body)
        return segment

    def status(self, progress_ts: int | None = None, **changes: Any) -> TaskStatus:
        """The status that the task's sorter would report."""
        told: dict[str, Any] = {
            "cluster_id": self.tenant.cluster_id,
            "tenant_id": self.tenant.tenant_id,
            "task_id": self.task_id,
            "task_epoch": 1,
            "start_key": self.span.start.hex(),
            "end_key": self.span.end.hex(),
            "manifest": self.number,
            "checkpoint": 0,
            "flushed_ts": self.flushed_ts,
            "progress_ts": self.flushed_ts if progress_ts is None else progress_ts,
            "received": {},
            "durable": {},
            "pending_rows": 0,
            "pending_bytes": 0,
            "counters": {},
        }
        return TaskStatus(**{**told, **changes})

    def seal(self, *heirs: CommittedTask) -> None:
        """Commit the last manifest, which names the child tasks."""
        children = tuple((heir.task_id, heir.span) for heir in heirs)
        self._commit(KIND_SEAL, self.flushed_ts, self.flushed_ts, (), children)

    def inherit(self, *parents: CommittedTask) -> None:
        """Commit the first manifest of a task that continues sealed tasks."""
        self.flushed_ts = parents[0].flushed_ts
        self.live = list({segment.key: segment for parent in parents for segment in parent.live}.values())
        self._commit(KIND_CHECKPOINT, self.flushed_ts, self.flushed_ts, ())

    def _commit(
        self,
        kind: str,
        low_ts: int,
        flushed_ts: int,
        segments: tuple[SegmentRef, ...],
        children: tuple[tuple[int, KeySpan], ...] = (),
    ) -> None:
        self.number += 1
        self.live += segments
        made = Manifest(
            tenant=self.tenant,
            task_id=self.task_id,
            number=self.number,
            task_epoch=1,
            nonce=f"{self.number:016x}",
            kind=kind,
            span=self.span,
            low_ts=low_ts,
            flushed_ts=flushed_ts,
            segments=segments,
            live_segments=None if kind in (KIND_CLAIM, KIND_TICK) else tuple(self.live),
            children=children,
            index=(IndexPart(self.span, 0, 0, 0),) if self.cover and kind == KIND_CHECKPOINT else None,
            cover=self.cover if self.cover and kind == KIND_CHECKPOINT else None,
            retained_ts=self.retained_ts,
            schema_retained_ts=self.retained_ts if self.schema_retained_ts is None else self.schema_retained_ts,
        )
        self._objects.put_new(layout.manifest(self.tenant, self.task_id, self.number), manifest_format.encode(made))
