"""The tick: computes the next manifest of a task from its last one and new files (design.md 4). Pure.

    apply_files(state, files) -> the state with the files' watermarks applied
    plan(state, applied, ...) -> TickPlan: the window, and the shards to run
    conclude(plan, shard results) -> (the manifest to commit, the state after the commit)

If the files have no entries and nothing can be flushed, no job is needed. Then the progress is kept in memory, and
written with the next manifest. After a crash the files are read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tistream import arrow_ipc
from tistream.errors import InvariantBroken
from tistream.format.manifest import READY, SEALED, UNMATCHED, Manifest, PendingPart
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS, Window
from tistream.trace import Mark
from tistream.wire.file_batch import FileRef
from tistream_sorter.jobs.pruning import ReadRules
from tistream_sorter.jobs.shard import Shard, ShardFile, ShardResult
from tistream_sorter.match.contracts import SCANS_SCHEMA
from tistream_sorter.match.kernel import MatchRules
from tistream_sorter.state.intake import uncounted
from tistream_sorter.state.positions import follows, moved, outlived
from tistream_sorter.state.task_state import TaskState, begun_history
from tistream_sorter.task.build_manifest import manifest_of
from tistream_sorter.task.promotion import promoted
from tistream_sorter.upkeep.shards import CutRules, cut, cut_at, touched, touching
from tistream_sorter.watermark.slice_work import CHANGES_AT_ONCE, HISTORY_AT_ONCE, WatermarkLimitExceeded

# With fewer slices than this, and fewer changes of them, each shard gets the whole history.
CLIP_SLICES = 4_096
CLIP_CHANGES = 65_536
ROWS_A_STEP = 1_024  # watermark rows that are applied as arrays in one step


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A change file as one task sees it. watermarks: its watermark rows, clipped to the task's span. mark: the trace
    context of its arrival."""

    ref: FileRef
    watermarks: pa.Table
    mark: Mark | None = None


def without_content(file: TaskFile) -> TaskFile:
    """The file without entries and watermarks, so that only the position in its chain advances when the task processes
    it."""
    return TaskFile(replace(file.ref, row_groups={}), file.watermarks.slice(0, 0), file.mark)


@dataclass(frozen=True, slots=True)
class TickPlan:
    """A tick to run as a job. after: the state after its manifest, but without the results of the job. files: each with
    its `seq` (position in the tick). work: estimated bytes to process (shards.ShardCut)."""

    after: TaskState
    window: Window
    nonce: str
    shards: tuple[Shard, ...]
    files: tuple[tuple[int, TaskFile], ...]
    work: int = 0


class FileRefused(Exception):
    """A file cannot be applied to the present state of the task, for example because its watermark rows exceed a
    limit."""

    def __init__(self, ref: FileRef, reason: str) -> None:
        super().__init__(f"{ref.key}: {reason}")
        self.ref = ref
        self.reason = reason


Applied = tuple[TaskState, tuple[tuple[int, TaskFile], ...]]


class FileApplication:
    """Applies files to a state in several calls, because the watermarks of one file may need seconds. Once rows that
    are applied one by one have changed slices more than CHANGES_AT_ONCE times, the remaining files are not applied."""

    def __init__(self, state: TaskState, files: Sequence[TaskFile]) -> None:
        self._going = _taking(state, files)

    def resume(self, steps: int | None = None) -> Applied | None:
        """Continue for about `steps` steps; None: to the end. Returns the result of `apply_files`, or None if the work
        is not finished. Raises FileRefused."""
        while True:
            try:
                done = next(self._going)
            except StopIteration as ended:
                applied: Applied = ended.value
                return applied
            if steps is not None and (steps := steps - done) <= 0:
                return None


def apply_files(state: TaskState, files: Sequence[TaskFile]) -> Applied:
    """Apply the watermarks of files to a state, in order. Returns (the new state, the applied files with their `seq`,
    which is the position in the tick). Raises FileRefused."""
    applied = FileApplication(state, files).resume()
    assert applied is not None
    return applied


def _taking(state: TaskState, files: Sequence[TaskFile]) -> Generator[int, None, Applied]:
    slices, history = state.slices.copy(), state.history.copy()
    positions, scans, seq = state.positions, list(state.scans), state.next_seq
    applied: list[tuple[int, TaskFile]] = []
    changes = 0
    for file in files:
        # The file's chain may have been dropped since the file was queued. Then it has no position, but its content is
        # applied.
        gone = not follows(positions, file.ref)
        if gone and not outlived(positions, state.flushed_ts, file.ref):
            raise AssertionError(f"{file.ref.key} does not follow {positions.get(file.ref.store_id)}")
        try:
            yield from slices.applying(file.watermarks, file.ref.store_id, file.ref.ts, seq, history)
        except WatermarkLimitExceeded as error:
            raise FileRefused(file.ref, str(error)) from error
        yield 1 + file.watermarks.num_rows // ROWS_A_STEP
        found = _scans(file.watermarks, seq)
        if found.num_rows:
            scans.append(found)
        positions = positions if gone else moved(positions, file.ref)
        applied.append((seq, file))
        seq += 1
        if (changes := changes + slices.changes) > CHANGES_AT_ONCE or history.count > HISTORY_AT_ONCE:
            break
    if slices.watermark() < state.slices.watermark():
        raise InvariantBroken(3, f"watermark of task {state.identity.task_id} would decrease")
    after = replace(
        state,
        slices=slices,
        history=history,
        positions=positions,
        scans=tuple(scans),
        next_seq=seq,
        unwritten=state.unwritten + len(applied),
        uncounted_bytes=state.uncounted_bytes + sum(uncounted(state, file.ref) for _, file in applied),
    )
    return after, tuple(applied)


def _scans(rows: pa.Table, seq: int) -> pa.Table:
    if rows["base_ts"].null_count == rows.num_rows:
        return SCANS_SCHEMA.empty_table()
    found = rows.filter(pc.is_valid(rows["base_ts"]))
    columns = [
        pa.array([seq] * found.num_rows, pa.int32()),
        found["start_key"],
        found["end_key"],
        found["region_version"],
        pc.subtract(found["first_index"], 1),
    ]
    return pa.Table.from_arrays(columns, schema=SCANS_SCHEMA)


def after_files_without_job(state: TaskState) -> TaskState:
    """The state after files that need no job. If no lock is pending, the earlier history of the slices is dropped,
    because no later decision needs it."""
    if any(part.kind == UNMATCHED for part in state.pending):
        return state
    return replace(state, history=begun_history(state.slices), scans=())


def needs_job(state: TaskState, files: Sequence[TaskFile], *, sweep: bool) -> bool:
    """Whether the tick needs a job: entries arrived, or rows can be flushed, or (with `sweep`) unmatched entries may be
    dead locks."""
    if any(file.ref.row_groups.get(state.identity.task_id) for file in files):
        return True
    high = state.progress_ts
    if any(part.commit_ts_min <= high for part in state.pending):
        return True
    return sweep and any(part.kind == UNMATCHED for part in state.pending)


def plan(
    state: TaskState,
    applied: Applied,
    nonce: str,
    rules: CutRules,
    swept: frozenset[str] = frozenset(),
    bounds: Sequence[bytes] = (),
) -> TickPlan:
    """Plan one tick.

    Args:
        applied: the result of apply_files() for `state`.
        nonce: unique to this attempt.
        swept: keys of the large pending parts to examine for dead locks.
        bounds: keys at which shards are cut: no shard has keys on both sides of one.
    """
    after, files = applied
    identity = state.identity
    window = Window(state.flushed_ts, after.progress_ts)
    served_ts = max(state.served_ts, state.reported_ts)
    found = tuple(_shard_file(seq, file, identity.task_id) for seq, file in files)
    sources = tuple(file for file in found if file.wanted)
    scans = arrow_ipc.to_bytes(pa.concat_tables([SCANS_SCHEMA.empty_table(), *after.scans]))
    scanned = after.history.scanned()
    pieces = cut(identity.span, sources, state.pending, ReadRules(window.high, rules.rows_small, scanned, swept), rules)
    few = len(after.slices) < CLIP_SLICES and after.history.count < CLIP_CHANGES
    whole = arrow_ipc.to_bytes(after.history.table()) if few else None
    shards = []
    for number, span in enumerate(cut_at(pieces.spans, bounds)):
        mine, unmatched = touching(sources, span), _of_kind(state.pending, UNMATCHED, span)
        history = arrow_ipc.to_bytes(after.history.table(touched(span, mine, unmatched))) if whole is None else whole
        shard = Shard(
            tenant=identity.tenant,
            task_id=identity.task_id,
            task_epoch=identity.task_epoch,
            nonce=nonce,
            number=number,
            span=span,
            rules=MatchRules(
                window, after.begins_ts, served_ts, identity.keep_index_keys, identity.raw, rows_small=rules.rows_small
            ),
            files=mine,
            unmatched=unmatched,
            ready=_of_kind(state.pending, READY, span),
            history=history,
            scans=scans,
            sealed=_of_kind(state.pending, SEALED, span),
            swept=swept,
            scanned=scanned,
            store=rules.store,
        )
        shards.append(shard)
    return TickPlan(after, window, nonce, tuple(shards), files, pieces.work)


def _shard_file(seq: int, file: TaskFile, task_id: int) -> ShardFile:
    ref = file.ref
    return ShardFile(seq, ref.key, ref.size, ref.footer_start, ref.groups, ref.row_groups.get(task_id, ()))


def _of_kind(parts: Sequence[PendingPart], kind: str, span: KeySpan) -> tuple[PendingPart, ...]:
    clipped = ((part, part.span.clip(span)) for part in parts if part.kind == kind)
    return tuple(
        part if piece == part.span else replace(part, span=piece) for part, piece in clipped if piece is not None
    )


def lookup_needed(done: TickPlan, results: Sequence[ShardResult]) -> TickPlan | None:
    """Plan the tick again, with the segments in which repeated rows must be looked up; None if no shard found repeats
    at or below the window. Also None if a shard failed, because its repeats are not known."""
    if any(result.failed or result.bad_files or result.broken for result in results):
        return None
    windows = {result.number: result.lookup_window for result in results if result.lookup_window}
    if not windows:
        return None
    live = done.after.live_segments
    shards = []
    for shard in done.shards:
        low, high = windows.get(shard.number) or (MAX_TS, 0)
        where = tuple(s for s in live if s.commit_ts_min <= high and s.commit_ts_max >= low)
        shards.append(replace(shard, lookup=where))
    return replace(done, shards=tuple(shards))


def conclude(done: TickPlan, results: Sequence[ShardResult], now_ms: int) -> tuple[Manifest, TaskState]:
    """Build the manifest that commits the results of a tick's shards. Returns it, and the state after its commit.
    Raises InvariantBroken if a shard found a violation; nothing may be committed then."""
    after = done.after
    for result in results:
        if result.broken:
            raise InvariantBroken(*result.broken)
    for result in results:
        assert not result.bad_files
        assert not result.failed
        assert result.lookup_window is None
    assert len(results) == len(done.shards)
    counters = Counter(after.counters)
    for result in results:
        counters.update(result.counters)
    pending = _carried(after.pending, done.shards, results) + tuple(p for r in results for p in r.pending)
    reached, pending = promoted(pending, done.window.high)
    counters.update(committed_rows=sum(segment.rows for segment in reached))
    segments = tuple(segment for result in results for segment in result.segments) + reached
    written = replace(
        after,
        flushed_ts=done.window.high,
        pending=pending,
        live_segments=after.live_segments + segments,
        counters=dict(sorted(counters.items())),
    )
    return manifest_of(written, done.window.low, segments, done.nonce, now_ms)


def _carried(
    parts: Sequence[PendingPart], shards: Sequence[Shard], results: Sequence[ShardResult]
) -> tuple[PendingPart, ...]:
    """The pending parts that stay. Each is kept for the spans of the shards that did not replace it."""
    consumed = {result.number: result.consumed for result in results}
    out: list[PendingPart] = []
    for part in parts:
        # Compare pieces and not only keys: several pieces of one part may be pending, and a shard may have got two of
        # them.
        given = [(shard, part.span.clip(shard.span)) for shard in shards]
        pieces = [(shard, piece) for shard, piece in given if piece is not None]
        left = [piece for shard, piece in pieces if (part.key, piece.start) not in consumed[shard.number]]
        out += [part] if len(left) == len(pieces) else [replace(part, span=piece) for piece in left]
    return tuple(out)
