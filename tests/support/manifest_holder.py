"""A holder of one task's manifests, as small as a sorter can be: every tick commits one segment of one row."""

from __future__ import annotations

from tistream.format.manifest import KIND_CHECKPOINT, KIND_TICK, Manifest
from tistream.format.segment import RowGroupInfo, SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.storage import layout
from tistream.storage.manifest_log import ManifestLog
from tistream.storage.object_store import ObjectStore

TENANT = TenantKey("7", "acme")
TASK = 3


def segment(name: str, ts: int = 10) -> SegmentRef:
    return SegmentRef(f"segment/{name}", 100, "00000000", 1, (RowGroupInfo(1, 5, 5, ts, ts),))


class Holder:
    """A sorter's hold on the task: plans ticks upon what its log says."""

    def __init__(self, objects: ObjectStore, name: str, epoch: int) -> None:
        self.log = ManifestLog(objects, TENANT, TASK, WHOLE, sleep=lambda _: None)
        self.name, self.epoch = name, epoch

    def claim(self) -> Holder:
        self.log.recover()
        self.log.claim(self.epoch, self.name, 0)
        return self

    def tick(self, name: str, kind: str = KIND_TICK) -> Manifest:
        view, new = self.log.view, segment(name)
        return Manifest(
            tenant=TENANT,
            task_id=TASK,
            number=self.log.next_number,
            task_epoch=self.epoch,
            nonce=f"{self.name}-{name}",
            kind=kind,
            span=WHOLE,
            low_ts=view.flushed_ts,
            flushed_ts=view.flushed_ts + 10,
            segments=(new,),
            live_segments=(*view.segments, new) if kind == KIND_CHECKPOINT else None,
        )

    def commit(self, name: str, kind: str = KIND_TICK) -> Manifest:
        manifest = self.tick(name, kind)
        self.log.commit(manifest)
        return manifest


def manifest_key(number: int) -> str:
    return layout.manifest(TENANT, TASK, number)
