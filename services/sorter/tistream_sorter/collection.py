"""Which objects nobody needs any more (docs/adr/0009), and since when. Pure, but for its lock; times are monotonic ms.

Objects are a task's own: what it shares with the heirs of a sealed task is told by `unnamed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tistream.concurrency import new_lock
from tistream.format.manifest import Manifest, PendingPart
from tistream.format.segment import SegmentRef
from tistream.storage import layout
from tistream_sorter.task_state import TaskState


@dataclass(frozen=True, slots=True)
class CollectRules:
    """See SorterSettings.collect."""

    grace_ms: int = 600_000
    every_ms: int = 60_000


COLLECT_DEFAULT = CollectRules()


class Garbage:
    """Keys that no manifest names any more, each with the time at which that was seen. Written by the tick thread, and
    by the one that deletes."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._since_ms: dict[str, int] = {}  # in the order of time

    def note(self, keys: Iterable[str], now_ms: int) -> bool:
        """These are needed no more. What is known keeps its time; whether any was not."""
        with self._lock:
            known = len(self._since_ms)
            for key in keys:
                self._since_ms.setdefault(key, now_ms)
            return len(self._since_ms) > known

    def due(self, now_ms: int, grace_ms: int, count_max: int) -> list[str]:
        """Those that may be deleted now, the oldest first."""
        with self._lock:
            ready = (key for key, since_ms in self._since_ms.items() if now_ms - since_ms >= grace_ms)
            return [key for key, _ in zip(ready, range(count_max), strict=False)]

    def deleted(self, keys: Iterable[str]) -> None:
        """They are gone."""
        with self._lock:
            for key in keys:
                self._since_ms.pop(key, None)


def dropped(before: TaskState, manifest: Manifest, after: TaskState) -> set[str]:
    """What the manifest that leads from `before` to `after` ceases to name, of the task's own objects."""
    named = {part.key for part in before.pending} - {part.key for part in after.pending}
    if manifest.live_segments is not None:
        named |= {segment.key for segment in before.live_segments}
        named |= {segment.key for segment in manifest.segments}
        named -= {segment.key for segment in after.live_segments}
    else:
        named -= {segment.key for segment in manifest.segments}
    own = layout.task_prefix(after.identity.tenant, after.identity.task_id)
    return {key for key in named if key.startswith(own)}


def manifests_below(state: TaskState, low: int, high: int) -> list[str]:
    """The keys of the manifests `low <= number < high`."""
    tenant, task_id = state.identity.tenant, state.identity.task_id
    return [layout.manifest(tenant, task_id, number) for number in range(low, high)]


def left_behind(keys: Iterable[str], state: TaskState) -> list[str]:
    """Of all objects below a task's prefix those that epochs before `state`'s have left, and that it does not name:
    nobody can commit under those epochs any more. Its own epoch's may be about to be named."""
    named = names(state.pending, state.live_segments)
    return [
        key
        for key in keys
        if key not in named and (epoch := layout.epoch_of(key)) is not None and epoch < state.identity.task_epoch
    ]


def unnamed(
    keys: Iterable[str], carrying_on: Iterable[tuple[Sequence[PendingPart], Sequence[SegmentRef]]]
) -> list[str]:
    """Of a sealed task's objects those that none of the tasks that carry on names. None of them ever will: a task
    inherits from seals alone."""
    named = {key for pending, live in carrying_on for key in names(pending, live)}
    return [key for key in keys if key not in named]


def names(pending: Iterable[PendingPart], live: Iterable[SegmentRef]) -> set[str]:
    """The objects that a state rests on."""
    return {part.key for part in pending} | {segment.key for segment in live}
