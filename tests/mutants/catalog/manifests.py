"""Manifests and objects: who may commit, what an unknown answer was, what a manifest may name, what may be deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant

FENCED = "test_an_old_holder_is_fenced_however_long_it_was_paused"
CONTRADICTION = "test_manifests_that_contradict_each_other_stop_their_readers"


@mutant("tistream:ManifestLog.claim", invariants=(11, 22), catchers=(FENCED,))
def work_without_a_claim(original: Function) -> Function:
    """A new holder writes no claim: the old one's next commit succeeds."""

    def broken(self: Any, epoch: int, nonce: str, now_ms: int) -> Any:
        view = self.recover()
        self._epoch = epoch
        return view

    return broken


@mutant("tistream:ManifestLog._refuse_if_over", invariants=(11,), catchers=("test_a_claim_needs_a_higher_epoch",))
def claim_against_the_same_epoch(original: Function) -> Function:
    """Two processes may claim with one epoch."""
    return lambda self, epoch: original(self, epoch + 1)


@mutant("tistream:NumberedLog.put", invariants=(7, 11), catchers=(FENCED,))
def foreign_manifest_taken_for_the_own(original: Function) -> Function:
    """Whoever finds the number taken believes that it was its own put."""

    def broken(self: Any, number: int, body: bytes) -> None:
        from tistream.errors import CommitConflict

        try:
            original(self, number, body)
        except CommitConflict:
            return

    return broken


@mutant("tistream:NumberedLog.put", invariants=(7, 10, 11), catchers=(FENCED,))
def manifest_overwritten(original: Function) -> Function:
    """The put of a manifest is not conditional."""

    def broken(self: Any, number: int, body: bytes) -> None:
        self._objects.put(self._payload.key(number), body)

    return broken


@mutant(
    "tistream:NumberedLog.put",
    invariants=(7, 11),
    catchers=("test_a_lost_answer_whose_number_went_to_a_newer_epoch_is_fenced",),
)
def unknown_answer_is_failure(original: Function) -> Function:
    """A put whose answer was lost is believed not to have happened: another manifest may follow."""
    return lambda self, number, body: _put_once(self, number, body, believed=False)


def _put_once(self: Any, number: int, body: bytes, *, believed: bool) -> None:
    from tistream.errors import CommitStateUnknown, Unavailable

    key = self._payload.key(number)
    try:
        self._objects.put_new(key, body)
    except CommitStateUnknown as error:
        if not believed:
            raise Unavailable(f"cannot write {key}") from error


@mutant("tistream:NumberedLog._raise_floor_once", invariants=(3, 12), catchers=("test_the_floor_only_rises",))
def floor_goes_down(original: Function) -> Function:
    """The floor is lowered by whoever comes late."""

    def broken(self: Any, checkpoint: int) -> int:
        from tistream.format import floor

        original(self, checkpoint)
        self._objects.put(self._payload.floor_key, floor.encode(checkpoint))
        return checkpoint

    return broken


@mutant("tistream:task_view.extend", invariants=(3,), catchers=(CONTRADICTION,))
def flushed_goes_down(original: Function) -> Function:
    """Readers take a manifest whose flushed_ts is lower than the last one's."""
    return lambda view, manifests: _tolerated(original, view, list(manifests), 3)


@mutant("tistream:task_view.extend", invariants=(11, 15), catchers=(CONTRADICTION,))
def older_epoch_read(original: Function) -> Function:
    """Readers take a manifest of an older epoch after a newer one's."""
    return lambda view, manifests: _tolerated(original, view, list(manifests), 11)


def _tolerated(original: Function, view: Any, manifests: list[Any], invariant: int) -> Any:
    """The view after the manifests, those too that contradict what came before in respect of that invariant."""
    from tistream.errors import InvariantBroken

    for manifest in manifests:
        try:
            view = original(view, [manifest])
        except InvariantBroken as error:
            if error.number != invariant:
                raise
            view = replace(view, number=manifest.number, epoch=manifest.task_epoch, last=manifest)
    return view


@mutant(
    "tistream_sorter:left_behind",
    invariants=(10, 12),
    catchers=("test_what_an_earlier_epoch_has_left_goes_and_nothing_of_this_one",),
)
def own_epoch_swept(original: Function) -> Function:
    """Objects of the holder's own epoch that no manifest names yet are deleted."""

    def broken(keys: Any, state: Any) -> Any:
        identity = replace(state.identity, task_epoch=state.identity.task_epoch + 1)
        return original(keys, replace(state, identity=identity))

    return broken


@mutant(
    "tistream_sorter:unnamed",
    invariants=(10, 12),
    catchers=("test_what_heirs_share_stays_until_none_of_them_names_it",),
)
def one_heir_speaks_for_all(original: Function) -> Function:
    """What one child does not name of a sealed task is deleted, though another names it."""
    return lambda keys, carrying_on: original(keys, list(carrying_on)[:1])


@mutant(
    "tistream_sorter:ShardOutput._put_segment",
    invariants=(10,),
    catchers=("test_a_segment_or_part_that_could_not_be_put_is_not_named",),
)
def segment_named_before_it_is_written(original: Function) -> Function:
    """A manifest names a segment whose put failed."""

    def broken(self: Any, ordered: Any) -> Any:
        target = self.target
        self.target = _Forgiving(target)
        try:
            return original(self, ordered)
        finally:
            self.target = target

    return broken


class _Forgiving:
    """Where objects are put, and nobody hears of it if one could not be."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def put(self, key: str, body: Any) -> None:
        from tistream.errors import TiStreamError

        try:
            self._target.put(key, body)
        except TiStreamError:
            return
