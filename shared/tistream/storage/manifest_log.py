"""The commit protocol of a task's manifests (design.md 4): claim, commit, floor. It needs nothing but the object store
to keep an old holder of the task from writing.

The manifests are a numbered log (numbered_log.py). The log decides which writer wrote a number, settles unknown answers
and raises the floor. This module adds the fencing: a holder first commits an empty claim with its epoch, and a holder
that sees a higher epoch stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from tistream import concurrency
from tistream.errors import CommitConflict, Fenced, InvariantBroken, NotFoundYet, Unavailable
from tistream.format import manifest as manifest_format
from tistream.format.manifest import KIND_CLAIM, KIND_SEAL, Manifest
from tistream.format.task_view import NOTHING, TaskView, extend
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.storage.manifest_follow import ManifestPayload, TaskObjects
from tistream.storage.numbered_log import NumberedLog, NumberedObjects, Retries
from tistream.storage.object_store import ObjectStore

# Pauses between attempts of one call. They are short, because the caller has other tasks, must report the hold of this
# task, and will call again.
BACKOFF_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5)
ATTEMPTS = 6
CLAIM_RACES = 1000


class Sealed(Fenced):
    """Raised if the task has ended: its last manifest is a seal. `children`: the tasks that replace it."""

    code = "sealed"

    def __init__(self, what: str, manifest: Manifest, held_epoch: int) -> None:
        super().__init__(f"{what} is sealed", held_epoch=held_epoch, current_epoch=manifest.task_epoch)
        self.children = manifest.children


class ManifestLog:
    """One holder's access to the manifests of one task. A holder is the process that may write them. Not
    thread-safe."""

    def __init__(
        self,
        objects: ObjectStore,
        tenant: TenantKey,
        task_id: int,
        span: KeySpan,
        sleep: Callable[[float], None] = concurrency.sleep,
    ) -> None:
        payload, retries = ManifestPayload(tenant, task_id), Retries(ATTEMPTS, BACKOFF_SECONDS)
        self._what = payload.what
        self._task = TaskObjects(objects, tenant, task_id)
        self._log = NumberedLog(NumberedObjects(objects, payload), sleep, puts=retries, floors=retries)
        self._tenant, self._task_id, self._span = tenant, task_id, span
        self._view = NOTHING
        self._epoch: int | None = None  # the epoch of this holder, once it has claimed the task

    @property
    def view(self) -> TaskView:
        """The state of the task as of the last manifest that was read or written by this object."""
        return self._view

    @property
    def next_number(self) -> int:
        """The number that the next committed manifest must have."""
        return self._view.number + 1

    def recover(self) -> TaskView:
        """Read the task's manifests: the floor, its checkpoint, and every manifest after it. An earlier claim of this
        object ends: `commit` needs a new `claim`. Raises InvariantBroken if the manifests are those of another span,
        and the errors of TaskObjects.follow."""
        self._epoch = None
        self._log.forget_doubt()
        self._view = self._task.follow()
        if self._view.state is not None and self._view.state.span != self._span:
            raise InvariantBroken(1, f"{self._what} covers {self._view.state.span}, not {self._span}")
        return self._view

    def follow(self) -> TaskView:
        """Read the manifests that were committed since the last call, without a claim. The next holder of a task uses
        this to stay up to date before it takes over. Call it only while this object has no claim. Raises the errors of
        `recover`."""
        assert self._epoch is None, "follows what it writes itself"
        self._view = self._task.follow(self._view) if self._view.number else self.recover()
        return self._view

    def claim(self, epoch: int, nonce: str, now_ms: int) -> TaskView:
        """Commit an empty manifest with `epoch` at the next free number. If another manifest has the number, read it
        and try the next.

        Returns:
            The view to work from: everything committed up to the claim.

        Raises:
            Fenced: an epoch at or above `epoch` has claimed before.
            Sealed: the task has ended.
            CommitStateUnknown, Unavailable: claim again with the same epoch and nonce, or give up.
            CorruptObject, InvariantBroken: the errors of `recover`.
        """
        if self._view.number == 0 or self._epoch is not None:
            self.recover()
        for _ in range(CLAIM_RACES):
            if self._claimed_already(epoch, nonce):
                break  # an earlier attempt whose answer was lost
            self._refuse_if_over(epoch)
            claim = self._claim_manifest(epoch, nonce, now_ms)
            try:
                self._log.put(claim.number, manifest_format.encode(claim))
            except CommitConflict:
                self._view = self._task.follow(self._view)
                continue
            # Garbage collection had deleted its number long before, so the put proves nothing.
            if self._task.floor() > claim.number:
                self._view = self._task.follow()
                continue
            self._view = extend(self._view, [claim])
            break
        else:
            raise Unavailable(f"{self._what}: lost {CLAIM_RACES} races for a claim")
        self._epoch = epoch
        return self._view

    def commit(self, manifest: Manifest) -> TaskView:
        """Commit `manifest` at the next number. `claim` must have succeeded before.

        Raises:
            Fenced: a newer epoch has claimed the task. Nothing more will be committed here. If an answer was missing,
                now or earlier, or if garbage collection has passed the manifest's number, it is unknown whether this
                manifest was committed before that claim: only the task's manifests show it.
            CommitConflict: another writer has the number without a newer epoch: `recover` and claim again.
            CommitStateUnknown: the commit may have happened, or it did not and the reason could not be read. Commit the
                very same manifest again, or stop for good.
            Unavailable: nothing happened; commit again.
            InvariantBroken: garbage collection had deleted the number before.
        """
        assert (manifest.number, manifest.task_epoch) == (self.next_number, self._held), "not the next manifest"
        assert (manifest.tenant, manifest.task_id) == (self._tenant, self._task_id), "another task's manifest"
        assert manifest.span == self._span, "another span"
        body = manifest_format.encode(manifest)
        view = extend(self._view, [manifest])  # raises for a manifest that readers would refuse, before it is written
        try:
            self._log.commit(manifest.number, body, lost=self._refuse_if_fenced, passed=self._refuse_below_floor)
        except CommitConflict:
            self._epoch = None
            raise
        self._view = view
        return view

    def raise_floor(self, checkpoint: int) -> int:
        """Set the floor to manifest `checkpoint`. Objects that only earlier manifests need may be deleted once this
        returns.

        Returns:
            The floor, which never decreases: possibly a higher one than requested.

        Raises:
            InvariantBroken: the manifest is not a checkpoint.
            CommitConflict, CommitStateUnknown, Unavailable: try again later.
            NotFoundYet, CorruptObject: the manifest does not exist, or it or the floor is damaged.
        """
        if self._task.manifest(checkpoint).live_segments is None:
            raise InvariantBroken(
                12, f"{self._what}: manifest {checkpoint} is not a checkpoint and cannot be the floor"
            )
        return self._log.raise_floor(checkpoint)

    def _claim_manifest(self, epoch: int, nonce: str, now_ms: int) -> Manifest:
        flushed_ts = self._view.flushed_ts
        return Manifest(
            tenant=self._tenant,
            task_id=self._task_id,
            number=self.next_number,
            task_epoch=epoch,
            nonce=nonce,
            kind=KIND_CLAIM,
            span=self._span,
            low_ts=flushed_ts,
            flushed_ts=flushed_ts,
            checkpoint=self._view.last.checkpoint if self._view.last else 0,
            written_ms=now_ms,
        )

    def _claimed_already(self, epoch: int, nonce: str) -> bool:
        last = self._view.last
        return last is not None and (last.kind, last.task_epoch, last.nonce) == (KIND_CLAIM, epoch, nonce)

    def _refuse_if_over(self, epoch: int) -> None:
        last = self._view.last
        if last is not None and last.kind == KIND_SEAL:
            raise Sealed(self._what, last, epoch)
        if self._view.epoch >= epoch:
            raise Fenced(self._what, held_epoch=epoch, current_epoch=self._view.epoch)

    def _refuse_if_fenced(self, number: int) -> None:
        """Raise Fenced if another manifest has `number`, and its epoch is newer.

        If garbage collection has deleted that manifest, later manifests show which epoch wrote it.
        """
        held = self._held
        try:
            current = self._task.manifest(number).task_epoch
        except NotFoundYet:
            current = held
        if current <= held:
            current = self._task.follow().epoch
        if current > held:
            self._epoch = None
            raise Fenced(self._what, held_epoch=held, current_epoch=current)

    def _refuse_below_floor(self, number: int, floor: int) -> NoReturn:
        """Raise Fenced or InvariantBroken after a put below the floor. Such an object counts for nothing, because other
        holders have continued from the floor."""
        held = self._held
        # Without an answer the claim stays valid, and the same manifest is put again.
        current = self._task.follow().epoch
        self._epoch = None
        if current > held:
            raise Fenced(self._what, held_epoch=held, current_epoch=current)
        raise InvariantBroken(11, f"{self._what}: manifest {number} was put below the floor {floor}")

    @property
    def _held(self) -> int:
        assert self._epoch is not None, "commit before claim"
        return self._epoch
