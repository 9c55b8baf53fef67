"""Follows a task's manifests: floor, checkpoint, then number by number until the next does not exist. Never uses LIST.

The floor is read again after the manifests that are relied on, and after each NotFoundYet. A manifest below the floor
may have been collected, or created again by a put that was under way for long; then everything is read again (design.md
4).
"""

from __future__ import annotations

from dataclasses import dataclass

from tistream.errors import CorruptObject, NotFoundYet, Unavailable
from tistream.format import floor as floor_format
from tistream.format import manifest as manifest_format
from tistream.format.manifest import Manifest
from tistream.format.task_view import NOTHING, TaskView, check_identity, extend
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore

PLANS = 10  # how often the floor may overtake one call


@dataclass(frozen=True, slots=True)
class TaskObjects:
    """One task's manifests and floor, as they are in the store."""

    objects: ObjectStore
    tenant: TenantKey
    task_id: int

    def floor(self) -> int:
        """The checkpoint at which readers begin; 0 if no floor was written yet."""
        key = layout.floor(self.tenant, self.task_id)
        try:
            return floor_format.decode(key, self.objects.get(key))
        except NotFoundYet:
            return 0

    def manifest(self, number: int) -> Manifest:
        """Manifest `number`, which may be one below the floor. Raises NotFoundYet, CorruptObject."""
        key = layout.manifest(self.tenant, self.task_id, number)
        found = manifest_format.decode(key, self.objects.get(key))
        check_identity(key, found, self.tenant, self.task_id, number)
        return found

    def follow(self, view: TaskView = NOTHING) -> TaskView:
        """The newest view, continuing from `view`. With nothing new this costs two small requests.

        Raises:
            CorruptObject: a manifest or the floor is damaged, or the floor names no checkpoint.
            InvariantBroken: the manifests contradict each other.
            Unavailable: no answer came, or the floor moved faster than this reader reads.
        """
        oldest = view.number + 1  # the lowest number that this call relies on
        for _ in range(PLANS):
            if not view.number:
                view = self._from_floor()
                oldest = max(1, view.number)
            run = self._run(view.number + 1)
            if self.floor() <= oldest:
                return extend(view, run)
            view = NOTHING
        raise Unavailable(f"task {self.task_id} of {self.tenant}: its floor moves faster than it can be read")

    def _from_floor(self) -> TaskView:
        """The view at the checkpoint that the floor names; NOTHING if there is no floor."""
        seen = -1
        while (checkpoint := self.floor()) != seen:
            if not checkpoint:
                return NOTHING
            try:
                found = self.manifest(checkpoint)
            except NotFoundYet:
                seen = checkpoint  # if it was collected since, the floor has moved
                continue
            if found.live_segments is None:
                break
            return extend(NOTHING, [found])
        key = layout.floor(self.tenant, self.task_id)
        raise CorruptObject(key, f"names manifest {checkpoint}, which does not exist or is not a checkpoint")

    def _run(self, number: int) -> list[Manifest]:
        out: list[Manifest] = []
        while True:
            try:
                out.append(self.manifest(number))
            except NotFoundYet:
                return out
            number += 1
