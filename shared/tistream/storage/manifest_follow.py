"""Follows a task's manifests: first the floor, then its checkpoint, then each next number until one does not exist.
Never uses LIST.

numbered_log.py has the protocol; this module makes manifests the entries of such a log. The floor is read again after
the manifests, because a manifest below the floor does not count; then their sequence is checked.
"""

from __future__ import annotations

from dataclasses import dataclass

from tistream.format import manifest as manifest_format
from tistream.format.manifest import Manifest
from tistream.format.task_view import NOTHING, TaskView, check_identity, extend
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.numbered_log import NumberedObjects
from tistream.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class ManifestPayload:
    """The manifests of one task as entries of a numbered log. Readers may begin at any checkpoint."""

    tenant: TenantKey
    task_id: int
    noun = "manifest"

    @property
    def what(self) -> str:
        return f"task {self.task_id} of {self.tenant}"

    @property
    def floor_key(self) -> str:
        return layout.floor(self.tenant, self.task_id)

    def key(self, number: int) -> str:
        return layout.manifest(self.tenant, self.task_id, number)

    def decode(self, number: int, body: bytes) -> Manifest:
        key = self.key(number)
        found = manifest_format.decode(key, body)
        check_identity(key, found, self.tenant, self.task_id, number)
        return found

    def why_not_base(self, number: int, entry: Manifest | None) -> str | None:
        if entry is None or entry.live_segments is None:
            return f"names manifest {number}, which does not exist or is not a checkpoint"
        return None


@dataclass(frozen=True, slots=True)
class TaskObjects:
    """Reads one task's manifests and floor from the store."""

    objects: ObjectStore
    tenant: TenantKey
    task_id: int

    def floor(self) -> int:
        """Read the number of the checkpoint at which readers begin; 0 if no floor was written yet."""
        return self._entries.floor()

    def manifest(self, number: int) -> Manifest:
        """Read manifest `number`, which may be below the floor. Raises NotFoundYet, CorruptObject."""
        return self._entries.entry(number)

    def follow(self, view: TaskView = NOTHING) -> TaskView:
        """Read the manifests after `view`. Returns the newest view. If nothing is new, this costs two small requests.

        Raises:
            CorruptObject: a manifest or the floor is damaged, or the floor names no checkpoint.
            InvariantBroken: the manifests contradict each other.
            Unavailable: no answer came, or the floor moved faster than this reader reads.
        """
        run = self._entries.follow(view.number)
        return extend(NOTHING if run.restarted else view, run.entries)

    @property
    def _entries(self) -> NumberedObjects[Manifest]:
        return NumberedObjects(self.objects, ManifestPayload(self.tenant, self.task_id))
