"""Finds the objects of a task that are garbage (docs/adr/0009). Pure. All functions but `unnamed` concern objects that
only the task itself uses. `unnamed` concerns the objects that the children of a sealed task share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tistream.format.manifest import Manifest, PendingPart
from tistream.format.run import Index, runs_of
from tistream.format.segment import SegmentRef
from tistream.storage import layout
from tistream_sorter.state.task_state import TaskState


@dataclass(frozen=True, slots=True)
class CollectRules:
    """The limits of garbage collection. grace_ms: how long an object is kept after the last manifest that names it.
    every_ms: the pause between two runs."""

    grace_ms: int = 600_000
    every_ms: int = 60_000


COLLECT_DEFAULT = CollectRules()


def dropped(before: TaskState, manifest: Manifest, after: TaskState) -> set[str]:
    """The task's own objects that the state `before` names and the state `after` does not. `manifest` was committed
    between the two."""
    named = {part.key for part in before.pending} - {part.key for part in after.pending}
    named |= {run.key for run in runs_of(before.index)} - {run.key for run in runs_of(after.index)}
    if manifest.live_segments is not None:
        named |= {segment.key for segment in before.live_segments}
        named |= {segment.key for segment in manifest.segments}
        named -= {segment.key for segment in after.live_segments}
    else:
        named -= {segment.key for segment in manifest.segments}
    own = layout.task_prefix(after.identity.tenant, after.identity.task_id)
    return {key for key in named if key.startswith(own)}


def manifests_below(state: TaskState, low: int, high: int) -> list[str]:
    """The keys of the manifests with numbers in [low, high)."""
    tenant, task_id = state.identity.tenant, state.identity.task_id
    return [layout.manifest(tenant, task_id, number) for number in range(low, high)]


def left_behind(keys: Iterable[str], state: TaskState) -> list[str]:
    """Select those object keys of a task that an earlier epoch wrote and `state` does not name. Earlier epochs are
    fenced and cannot commit them. Objects of the state's own epoch are left out, because a manifest may be about to
    name them."""
    named = object_keys(state.pending, state.live_segments, state.index)
    return [
        key
        for key in keys
        if key not in named and (epoch := layout.epoch_of(key)) is not None and epoch < state.identity.task_epoch
    ]


def unnamed(
    keys: Iterable[str], carrying_on: Iterable[tuple[Sequence[PendingPart], Sequence[SegmentRef], Index]]
) -> list[str]:
    """Select those object keys of a sealed task that can be deleted, because no child's state names them. A child
    inherits objects only when it begins, so no child will name them later. carrying_on: the states of the children."""
    named = {key for one in carrying_on for key in object_keys(*one)}
    return [key for key in keys if key not in named]


def object_keys(pending: Iterable[PendingPart], live: Iterable[SegmentRef], index: Index) -> set[str]:
    """The keys of all objects that a state names."""
    return {part.key for part in pending} | {segment.key for segment in live} | {run.key for run in runs_of(index)}
