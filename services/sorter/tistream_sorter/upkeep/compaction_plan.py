"""Plans compaction: selects the small segments to merge, and updates the task's list of segments (docs/adr/0009). Pure.

Only neighbours in the list are merged, so that a segment covers a narrow range of commit_ts. Only segments whose keys
have the task's own prefix are merged, because other child tasks may share the inherited ones.

A *full* merge combines `fan_in_full` or more neighbours that have `small_bytes` together; each byte is rewritten once.
The output may shrink to a third, so a segment of `small_bytes`/4 or more is never compacted again. A tenant with little
traffic would wait long for a full merge while its list of segments grows. Therefore `fan_in` neighbours of a tier or of
lower tiers are merged earlier, the lowest tiers first, if that at least doubles the largest of them. Tier t holds
segments of `fan_in`^t to `fan_in`^(t+1) KiB.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tistream.format.segment import SegmentRef
from tistream.storage import layout
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.state.task_state import TaskIdentity, TaskState

TIER_BYTES = 1 << 10
PAUSE_MS, PAUSE_MAX_MS = 5_000, 600_000  # after a job that failed


@dataclass(frozen=True, slots=True)
class CompactRules:
    """The limits of compaction; see SorterSettings.compact. `rows_max` and `unpacked_max` limit the memory of one job
    to that of a shard of a tick, because both run side by side."""

    fan_in: int = 128
    fan_in_full: int = 16
    small_bytes: int = 8 << 20
    bytes_max: int = 64 << 20
    rows_max: int = 1 << 20
    unpacked_max: int = 128 << 20


COMPACT_DEFAULT = CompactRules()


def rewrite(
    identity: TaskIdentity, live: Sequence[SegmentRef], skip: frozenset[str], nonce: str, rules: CompactRules
) -> Rewrite | None:
    """The next merge of a task's segments; None if no merge is due. Segments whose keys are in `skip` are not
    merged."""
    own = layout.task_prefix(identity.tenant, identity.task_id)
    tiers = [_tier(segment, own, skip, rules) for segment in live]
    found = _full(live, tiers, rules) or _many(live, tiers, rules)
    if not found:
        return None
    key = layout.segment(identity.tenant, identity.task_id, identity.task_epoch, nonce, 0)
    return Rewrite(identity.tenant, identity.task_id, found, key, rules.unpacked_max)


@dataclass(slots=True)
class TaskBackoff:
    """Exponential backoff for tasks whose background jobs failed. Times are monotonic ms."""

    _until: dict[int, tuple[int, int]] = field(default_factory=dict)  # by task: end and length of the pause

    def over(self, task_id: int, now_ms: int) -> bool:
        """Whether the task is not paused, so that a job may run."""
        return task_id not in self._until or now_ms >= self._until[task_id][0]

    def failed(self, task_id: int, now_ms: int) -> None:
        """Record a failure: the task's pause begins. It is PAUSE_MS at first, then twice as long as the previous one,
        at most PAUSE_MAX_MS. `now_ms`: monotonic."""
        pause_ms = min(2 * self._until[task_id][1], PAUSE_MAX_MS) if task_id in self._until else PAUSE_MS
        self._until[task_id] = now_ms + pause_ms, pause_ms

    def worked(self, task_id: int) -> None:
        """Record a success: the next failure begins with the shortest pause."""
        self._until.pop(task_id, None)

    def keep_only(self, task_ids: Container[int]) -> None:
        """Forget the pauses of all other tasks."""
        self._until = {task_id: known for task_id, known in self._until.items() if task_id in task_ids}


def replaced(state: TaskState, done: Rewritten) -> TaskState | None:
    """The state with the merged segment in place of its inputs; None if the inputs are no longer neighbours in the
    list."""
    assert done.output is not None
    keys = [segment.key for segment in state.live_segments]
    try:
        at = keys.index(done.inputs[0])
    except ValueError:
        return None
    end = at + len(done.inputs)
    if tuple(keys[at:end]) != done.inputs:
        return None
    live = (*state.live_segments[:at], done.output, *state.live_segments[end:])
    return replace(state, live_segments=live, restate=True)


def _full(live: Sequence[SegmentRef], tiers: Sequence[int | None], rules: CompactRules) -> tuple[SegmentRef, ...]:
    """Neighbours that together reach `small_bytes` or the limits of a job; empty if there are no such neighbours."""
    for begin, end in _runs(tiers, _tiers(rules)):
        first, last = _fitting(live, begin, end, rules.fan_in_full, rules)
        if last > first and (last < end or sum(one.size for one in live[first:last]) >= rules.small_bytes):
            return tuple(live[first:last])
    return ()


def _many(live: Sequence[SegmentRef], tiers: Sequence[int | None], rules: CompactRules) -> tuple[SegmentRef, ...]:
    """At least `fan_in` neighbours of low tiers; empty if there are no such neighbours."""
    for tier in range(_tiers(rules)):
        for begin, end in _runs(tiers, tier):
            first, last = _fitting(live, begin, end, rules.fan_in, rules)
            sizes = [one.size for one in live[first:last]]
            if sizes and sum(sizes) >= 2 * max(sizes):
                return tuple(live[first:last])
    return ()


def _tier(segment: SegmentRef, own: str, skip: frozenset[str], rules: CompactRules) -> int | None:
    """The tier of a segment, by its size; None if it must not be compacted. `own`: the prefix of the task's own
    objects."""
    if segment.size >= rules.small_bytes // 4 or segment.key in skip or not segment.key.startswith(own):
        return None
    tier, size = 0, segment.size // TIER_BYTES
    while size >= rules.fan_in:
        tier, size = tier + 1, size // rules.fan_in
    return tier


def _tiers(rules: CompactRules) -> int:
    count, size = 1, rules.small_bytes // TIER_BYTES
    while size >= rules.fan_in:
        count, size = count + 1, size // rules.fan_in
    return count


def _runs(tiers: Sequence[int | None], highest: int) -> Iterator[tuple[int, int]]:
    """The sequences of neighbours of tier `highest` or lower that cannot be extended, each as a half-open range [begin,
    end) of positions."""
    begin = 0
    for at, tier in enumerate([*tiers, None]):
        if tier is None or tier > highest:
            if at > begin:
                yield begin, at
            begin = at + 1


def _fitting(live: Sequence[SegmentRef], begin: int, end: int, count: int, rules: CompactRules) -> tuple[int, int]:
    """Find the first sequence of at least `count` neighbours within the limits of one job, and extend it as far as the
    limits allow. Returns it as a half-open range [begin, end) of positions, which is empty if there is no such
    sequence. If fewer than `count` segments fill a job by themselves, they are skipped."""
    while end - begin >= count:
        size = rows = 0
        at = begin
        while at < end:
            size, rows = size + live[at].size, rows + live[at].rows
            if size > rules.bytes_max or rows > rules.rows_max:
                break
            at += 1
        if at - begin >= count:
            return begin, at
        begin += 1
    return end, end
