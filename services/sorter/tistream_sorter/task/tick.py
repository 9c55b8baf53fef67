"""The tick: a function of (last manifest, new references) to the next manifest (design.md 4). Pure.

    plan(state, files)  ->  Plan: the slices after those files, the window, the shards to run
    conclude(plan, shard results)  ->  Manifest to be committed
    settled(state, plan, manifest)  ->  the state after the commit

A plan whose files bring no entries and that has nothing to flush needs no job: its progress is kept in memory, and
written with the next manifest. Whatever a crash loses of it comes again from the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

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
from tistream_sorter.task.promotion import promoted
from tistream_sorter.task.restate import manifest_of
from tistream_sorter.upkeep.shards import CutRules, cut, cut_at, touched, touching
from tistream_sorter.watermark.slice_work import CHANGES_A_TAKE, TooMuch

CLIP_SLICES = 4_096  # of fewer, every shard gets the history of all
ROWS_A_STEP = 1_024  # taken as arrays


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One file as this task sees it: its reference and its clipped watermark rows. `mark` is where the trace of its
    arrival was left."""

    ref: FileRef
    watermarks: pa.Table
    mark: Mark | None = None


def emptied(file: TaskFile) -> TaskFile:
    """The file's place in its chain, and nothing of what it holds."""
    return TaskFile(replace(file.ref, row_groups={}), file.watermarks.slice(0, 0), file.mark)


@dataclass(frozen=True, slots=True)
class Plan:
    """A tick to be run. `after` is the state once its manifest is committed, but for what the job will say.

    work: about how many bytes must be handled (shards.Cut).
    """

    after: TaskState
    window: Window
    nonce: str
    shards: tuple[Shard, ...]
    files: tuple[tuple[int, TaskFile], ...]
    work: int = 0


class FileRefused(Exception):
    """A file of which nothing can be taken, as this task stands."""

    def __init__(self, ref: FileRef, reason: str) -> None:
        super().__init__(f"{ref.key}: {reason}")
        self.ref = ref
        self.reason = reason


Taken = tuple[TaskState, tuple[tuple[int, TaskFile], ...]]


class Taking:
    """Files that are being taken, a part at a time: what one of them says may be work for seconds. If they say too much
    to be kept at once it is the first of them."""

    def __init__(self, state: TaskState, files: Sequence[TaskFile]) -> None:
        self._going = _taking(state, files)

    def go_on(self, steps: int | None = None) -> Taken | None:
        """What `take` answers; None if some `steps` were not enough. Raises FileRefused."""
        while True:
            try:
                done = next(self._going)
            except StopIteration as ended:
                taken: Taken = ended.value
                return taken
            if steps is not None and (steps := steps - done) <= 0:
                return None


def take(state: TaskState, files: Sequence[TaskFile]) -> Taken:
    """The state after the files' watermarks, in the order given; and the files with their place in the tick. Raises
    FileRefused."""
    taken = Taking(state, files).go_on()
    assert taken is not None
    return taken


def _taking(state: TaskState, files: Sequence[TaskFile]) -> Generator[int, None, Taken]:
    slices, history = state.slices.copy(), state.history.copy()
    positions, scans, seq = state.positions, list(state.scans), state.next_seq
    taken: list[tuple[int, TaskFile]] = []
    changes = 0
    for file in files:
        # A chain that was let go since the file came has no place any more; what it holds is taken all the same.
        gone = not follows(positions, file.ref)
        if gone and not outlived(positions, state.flushed_ts, file.ref):
            raise AssertionError(f"{file.ref.key} does not follow {positions.get(file.ref.store_id)}")
        try:
            yield from slices.applying(file.watermarks, file.ref.store_id, file.ref.ts, seq, history)
        except TooMuch as error:
            raise FileRefused(file.ref, str(error)) from error
        yield 1 + file.watermarks.num_rows // ROWS_A_STEP
        found = _scans(file.watermarks, seq)
        if found.num_rows:
            scans.append(found)
        positions = positions if gone else moved(positions, file.ref)
        taken.append((seq, file))
        seq += 1
        if (changes := changes + slices.changes) > CHANGES_A_TAKE:
            break
    if slices.watermark() < state.slices.watermark():
        raise InvariantBroken(3, f"watermark of task {state.identity.task_id} would go down")
    after = replace(
        state,
        slices=slices,
        history=history,
        positions=positions,
        scans=tuple(scans),
        next_seq=seq,
        unwritten=state.unwritten + len(taken),
        taken_bytes=state.taken_bytes + sum(uncounted(state, file.ref) for _, file in taken),
    )
    return after, tuple(taken)


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


def rested(state: TaskState) -> TaskState:
    """A state whose files brought no entries: while no lock waits for its end, what happened to the slices before the
    next file decides nothing any more."""
    if any(part.kind == UNMATCHED for part in state.pending):
        return state
    return replace(state, history=begun_history(state.slices), scans=())


def needs_job(state: TaskState, files: Sequence[TaskFile], *, sweep: bool) -> bool:
    """Whether entries came or rows can be flushed; `sweep` also looks for dead locks among the unmatched."""
    if any(file.ref.row_groups.get(state.identity.task_id) for file in files):
        return True
    high = state.progress_ts
    if any(part.commit_ts_min <= high for part in state.pending):
        return True
    return sweep and any(part.kind == UNMATCHED for part in state.pending)


def plan(
    state: TaskState,
    taken: Taken,
    nonce: str,
    rules: CutRules,
    swept: frozenset[str] = frozenset(),
    bounds: Sequence[bytes] = (),
) -> Plan:
    """The shards of one tick. `taken` is what take() answered for `state`; `nonce` is unique to this attempt; `swept`
    are the large pending parts to be looked through for dead locks; nothing is written across `bounds`."""
    after, files = taken
    identity = state.identity
    window = Window(state.flushed_ts, after.progress_ts)
    served_ts = max(state.served_ts, state.told_ts)
    found = tuple(_shard_file(seq, file, identity.task_id) for seq, file in files)
    sources = tuple(file for file in found if file.wanted)
    scans = _ipc(pa.concat_tables([SCANS_SCHEMA.empty_table(), *after.scans]))
    scanned = after.history.scanned()
    pieces = cut(identity.span, sources, state.pending, ReadRules(window.high, rules.rows_small, scanned, swept), rules)
    # Of few slices every shard gets the same: the history of all.
    whole = _ipc(after.history.table()) if len(after.slices) < CLIP_SLICES else None
    shards = []
    for number, span in enumerate(cut_at(pieces.spans, bounds)):
        mine, unmatched = touching(sources, span), _of_kind(state.pending, UNMATCHED, span)
        history = _ipc(after.history.table(touched(span, mine, unmatched))) if whole is None else whole
        shard = Shard(
            tenant=identity.tenant,
            task_id=identity.task_id,
            task_epoch=identity.task_epoch,
            nonce=nonce,
            number=number,
            span=span,
            rules=MatchRules(window, after.begins_ts, served_ts, identity.keep_index_keys, rows_small=rules.rows_small),
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
    return Plan(after, window, nonce, tuple(shards), files, pieces.work)


def _shard_file(seq: int, file: TaskFile, task_id: int) -> ShardFile:
    ref = file.ref
    return ShardFile(seq, ref.key, ref.size, ref.footer_start, ref.groups, ref.row_groups.get(task_id, ()))


def _of_kind(parts: Sequence[PendingPart], kind: str, span: KeySpan) -> tuple[PendingPart, ...]:
    clipped = ((part, part.span.clip(span)) for part in parts if part.kind == kind)
    return tuple(
        part if piece == part.span else replace(part, span=piece) for part, piece in clipped if piece is not None
    )


def lookup_needed(done: Plan, results: Sequence[ShardResult]) -> Plan | None:
    """The plan to run instead if repeats at or below the window must be looked up in the pool; else None.

    Every shard must have had its say: one that failed may have repeats too, which nobody would look for.
    """
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


def conclude(done: Plan, results: Sequence[ShardResult], now_ms: int) -> tuple[Manifest, TaskState]:
    """The manifest that makes the results true, and the state once it is committed.

    Raises:
        InvariantBroken: a shard found what must not be; nothing may be committed.
    """
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
    """What is left of the parts: each stays for the shards that did not consume it."""
    consumed = {result.number: result.consumed for result in results}
    out: list[PendingPart] = []
    for part in parts:
        # By piece, not by key: what is left of one part may be several pieces, and a shard may be given two of them.
        given = [(shard, part.span.clip(shard.span)) for shard in shards]
        pieces = [(shard, piece) for shard, piece in given if piece is not None]
        left = [piece for shard, piece in pieces if (part.key, piece.start) not in consumed[shard.number]]
        out += [part] if len(left) == len(pieces) else [replace(part, span=piece) for piece in left]
    return tuple(out)


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
