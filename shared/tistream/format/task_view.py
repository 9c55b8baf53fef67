"""The state of a task, computed from its manifests, read one after the other. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tistream.errors import CorruptObject, InvariantBroken
from tistream.format import run
from tistream.format.manifest import KIND_CLAIM, KIND_SEAL, Manifest
from tistream.format.run import Index, RunRef
from tistream.format.segment import SegmentRef
from tistream.model.base_cover import Cover
from tistream.model.ids import TenantKey


@dataclass(frozen=True, slots=True)
class TaskView:
    """The state of a task as its manifests up to number `number` state it; 0: the task has no manifest yet."""

    number: int = 0
    epoch: int = 0
    flushed_ts: int = 0
    last: Manifest | None = None  # the newest manifest of any kind
    state: Manifest | None = None  # the newest manifest with state: any kind except a claim
    segments: tuple[SegmentRef, ...] = ()  # the live segments, in commit order
    index: Index = ()  # the version index; empty before its first run
    cover: Cover = ()  # the bases of backfills, from the newest checkpoint

    @property
    def runs(self) -> tuple[RunRef, ...]:
        """The run objects of all parts of the version index, each once. To read versions, use the runs of each part
        separately (tistream.format.run)."""
        return run.runs_of(self.index)

    @property
    def indexed_ts(self) -> int:
        """The ts up to which the version index has every change; 0 without an index."""
        return run.indexed_ts(self.index)

    @property
    def base_ts(self) -> int:
        """The lowest ts at which every key of the version index can be read; 0 without an index."""
        return run.base_ts(self.index)

    @property
    def sealed(self) -> bool:
        """Whether the task has ended, because its last manifest is a seal. Its children are `last.children`."""
        return self.last is not None and self.last.kind == KIND_SEAL


NOTHING = TaskView()


def check_identity(key: str, manifest: Manifest, tenant: TenantKey, task_id: int, number: int) -> None:
    """Check that the manifest is the one that its object key names. Raises CorruptObject."""
    found = (manifest.tenant, manifest.task_id, manifest.number)
    if found != (tenant, task_id, number):
        raise CorruptObject(key, f"is manifest {found[2]} of task {found[1]} of {found[0]}")


def extend(view: TaskView, manifests: Iterable[Manifest]) -> TaskView:
    """The state after `manifests`, which follow the view's last manifest in order. If `view` is empty, the first
    manifest may be any checkpoint.

    Raises:
        InvariantBroken: a manifest follows a seal, epochs or flushed_ts decrease, a number is missing, or its version
            index is invalid (run.check_index).
    """
    number, epoch, flushed_ts = view.number, view.epoch, view.flushed_ts
    last, state, cover = view.last, view.state, view.cover
    segments: list[SegmentRef] | None = None
    index = view.index
    for manifest in manifests:
        if last is not None and last.kind == KIND_SEAL:
            raise InvariantBroken(11, f"manifest {manifest.number} of task {manifest.task_id} follows its seal")
        fresh = last is None and manifest.live_segments is not None
        if manifest.number != number + 1 and not fresh:
            raise InvariantBroken(11, f"manifest {manifest.number} of task {manifest.task_id} after {number}")
        if manifest.task_epoch < epoch:
            raise InvariantBroken(11, f"epoch {manifest.task_epoch} after {epoch} in manifest {manifest.number}")
        if manifest.flushed_ts < flushed_ts or manifest.low_ts > manifest.flushed_ts:
            raise InvariantBroken(3, f"flushed_ts {manifest.flushed_ts} after {flushed_ts} in {manifest.number}")
        if manifest.kind != KIND_CLAIM:
            if state is not None and manifest.low_ts != flushed_ts:
                raise InvariantBroken(3, f"window from {manifest.low_ts} after {flushed_ts} in {manifest.number}")
            state, flushed_ts = manifest, manifest.flushed_ts
            if manifest.index is not None:
                run.check_index(manifest.index, manifest.span, flushed_ts, index)
                index = manifest.index
            if manifest.live_segments is not None:
                segments, cover = list(manifest.live_segments), manifest.cover or ()
            elif manifest.segments:
                segments = list(view.segments) if segments is None else segments
                segments.extend(manifest.segments)
        number, epoch, last = manifest.number, manifest.task_epoch, manifest
    live = view.segments if segments is None else tuple(segments)
    return TaskView(number, epoch, flushed_ts, last, state, live, index, cover)
