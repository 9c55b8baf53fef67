"""The state machine of one task: it decides the task's next step, and applies commits to the task's state. No I/O.

`Task.turn` is the only way to get a TaskMachine, and gives it to one caller at a time, for one turn. So this module
needs no lock. The input of other threads comes from the mailbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tistream.format.manifest import Manifest
from tistream.wire.file_batch import FileRef
from tistream_sorter.jobs.shard import ShardResult
from tistream_sorter.state.task_state import Retention, TaskState
from tistream_sorter.task.build_manifest import manifest_of
from tistream_sorter.task.inbox import groups_of
from tistream_sorter.task.mailbox import Mailbox
from tistream_sorter.task.seal_orders import FittingOrder, OtherParents, must_read, next_step, other_parents
from tistream_sorter.task.tick import (
    Applied,
    FileApplication,
    FileRefused,
    TaskFile,
    TickPlan,
    after_files_without_job,
    apply_files,
    needs_job,
    plan,
)
from tistream_sorter.upkeep.base_plan import with_bases
from tistream_sorter.upkeep.compaction_plan import COMPACT_DEFAULT, CompactRules, replaced
from tistream_sorter.upkeep.gc_plan import COLLECT_DEFAULT, CollectRules
from tistream_sorter.upkeep.index_plan import IndexRules
from tistream_sorter.upkeep.load import LoadMeter
from tistream_sorter.upkeep.retention import ReadableTs
from tistream_sorter.upkeep.shards import CutRules
from tistream_sorter.upkeep.sweep import Sweeps
from tistream_sorter.upkeep.version_index import merged
from tistream_sorter.watermark.slice_work import HISTORY_AT_ONCE

APPLY_STEPS = 4_096  # steps (changes of slices) of one task before the other tasks get their turn: about 50 ms


@dataclass(frozen=True, slots=True)
class TickLimits:
    """Limits of one tick of one task; see SorterSettings.tick."""

    bytes_max: int
    idle_manifest_ms: int
    inbox_files_max: int
    cut: CutRules
    large_work: int = 256 << 20  # a tick with more work (shards.ShardCut) runs as a job of its own
    collect: CollectRules = COLLECT_DEFAULT
    compact: CompactRules | None = COMPACT_DEFAULT  # None: no compaction
    index: IndexRules | None = None  # None: no version index
    backfills: bool = False  # whether retention waits until it is known which backfills are open
    apply_steps: int = APPLY_STEPS


class TaskMachine:
    """The state of a task, and the decisions about its next step.

    Other threads read `state`, `durable`, `stopped`, `trouble`, `unfinished` and `load`, each of which is replaced as a
    whole. state: includes files that are only in memory. durable: the state that the newest manifest contains. stopped:
    why the task has stopped for good. trouble: why the last tick failed; it is retried.
    """

    def __init__(self, state: TaskState, limits: TickLimits, mail: Mailbox) -> None:
        self.state = state
        self.durable = state
        self.stopped: str | None = None
        self.trouble: str | None = None
        self.load = LoadMeter(state.identity.span)
        self._limits = limits
        self._mail = mail
        # The state of the merge according to its other parents, as read for the next tick.
        self._others: OtherParents | None = None
        self._idle_at_ms: int | None = None  # when to write progress without changes; None: at once
        self._sweeps = Sweeps()
        self._sweeping: frozenset[str] = frozenset()  # large pending parts that the current tick scans for dead locks
        self._readable = ReadableTs(limits.collect.grace_ms)
        self._application: FileApplication | None = None  # in progress; `state` does not change until it has ended

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do: no file is queued, a manifest covers all files that were processed, and no
        pending row can be flushed."""
        return not self._mail.has_files() and not self.state.unwritten and not self.state.unflushed

    @property
    def rests(self) -> bool:
        """Whether a later turn has nothing to do either, until the mailbox gets something. Retention may still be
        applied to the state, which only the next manifest shows."""
        state = self.state
        if self._application is not None or self.stopped is not None:
            return False
        ordered = state.merge is not None or state.stop_at is not None or self._mail.order() is not None
        return self.is_idle and not (ordered or state.inherited or state.restate)

    @property
    def unfinished(self) -> bool:
        """Whether files are partly applied, and the next call of `due` must continue."""
        return self._application is not None

    @property
    def parents_to_read(self) -> list[int]:
        """The other parents of a merge, if the next step needs their logs; otherwise empty."""
        state = self.state
        if self.stopped is not None or self._application is not None:
            return []
        if not must_read(state, self._mail.order()):
            return []
        return other_parents(state)

    def set_other_parents(self, others: OtherParents | None) -> None:
        """Store what the logs of the other parents say about the merge; None if they could not be read."""
        self._others = others

    def settle(self, now_ms: int) -> list[str]:
        """Apply the notes of other threads to the state. Returns the keys of objects that no manifest will name, so
        they are garbage. Does nothing while files are partly applied. `now_ms`: monotonic."""
        if self._application is not None:
            return []
        notes = self._mail.notes()
        readable_ts = self._readable.through(min(self.durable.flushed_ts, notes.flushed_by_all), now_ms)
        read_ts = notes.read_ts if notes.keep_ms is None else min(notes.read_ts, readable_ts)
        read_ts = min(read_ts, notes.backfilled_ts)
        state, rule = self.state, Retention(notes.keep_ms, read_ts, self._limits.index is not None)
        if state.retention != rule:
            state = replace(state, retention=rule)
        if not notes.nothing_left_of.isdisjoint(state.heritage):
            state = replace(state, heritage=tuple(one for one in state.heritage if one not in notes.nothing_left_of))
        vain = notes.wasted
        for one in notes.rewritten:
            assert one.output is not None
            after = replaced(state, one)
            if after is None:  # retention has dropped some of the inputs in the meantime
                vain.append(one.output.key)
            else:
                state = after
        for merge in notes.merged:
            found = merged(state, merge.unit, merge.written)
            if found is None:
                vain += [run.key for run in merge.written]
            else:
                state = found
        self.state, useless = with_bases(state, notes.based)
        return [*vain, *useless]

    def due(self, now_ms: int, wall_ms: int, nonce: str) -> TickPlan | tuple[Manifest, TaskState] | None:
        """Decide the next step: a tick to run as a job, a manifest that only records progress, or None. `now_ms`:
        monotonic; `wall_ms`: wall clock.

        This applies files to the state. Files without entries that flush nothing need no job and no manifest. If the
        work is `unfinished`, the next call continues it.
        """
        order = self._mail.order()
        if (
            self.stopped is None
            and self._application is None
            and (ordered := self._ordered_step(order, nonce, wall_ms)) is not None
        ):
            return ordered
        if self.stopped is not None or self.is_idle:
            return None
        full = self.state.history.count > HISTORY_AT_ONCE  # only a manifest begins it anew while locks are pending
        idle = full or self._idle_at_ms is None or now_ms >= self._idle_at_ms
        if (found := self._apply_files(now_ms, idle=idle)) is None:
            return None
        files, applied = found
        if needs_job(applied[0], files, sweep=idle):
            history = applied[0].history
            self._sweeping = self._sweeps.due(self.state.pending, history, self._limits.cut.rows_small, now_ms)
            bounds = () if order is None else order.bounds
            return plan(self.state, applied, nonce, self._limits.cut, self._sweeping, bounds)
        self.state = after_files_without_job(applied[0])
        self._mail.remove(files)
        if not idle:
            return None
        raised = replace(self.state, flushed_ts=self.state.progress_ts)
        return manifest_of(raised, self.state.flushed_ts, (), nonce, wall_ms)

    def _apply_files(self, now_ms: int, *, idle: bool) -> tuple[Sequence[TaskFile], Applied] | None:
        """Apply the files of the inbox to a copy of the state, in at most `apply_steps` steps; the next call continues
        from there. `idle`: a manifest that only reports progress is due, so continue without files too. Returns (the
        files, the result of apply_files). None if there is nothing to do, if the work is not finished, or if a file was
        refused; then that file and the later ones of its chain are dropped from the inbox."""
        if (application := self._application) is None:
            files = self._mail.peek(self._limits.bytes_max, self.state.identity.task_id)
            if not files and not idle and not self.state.unflushed:
                return None
            application = FileApplication(self.state, files)
        self._application = None
        try:
            applied = application.resume(self._limits.apply_steps)
        except FileRefused as refused:
            self._mail.forget(self.state.positions, [(refused.ref, refused.reason)], now_ms)
            return None
        if applied is None:
            self._application = application
            return None
        return [file for _, file in applied[1]], applied

    def _ordered_step(
        self, order: FittingOrder | None, nonce: str, wall_ms: int
    ) -> TickPlan | tuple[Manifest, TaskState] | None:
        """The step that must come before any file: the first manifest of a child task, or the step of the owner's
        order. None if there is no such step."""
        state = self.state
        if state.inherited:
            return manifest_of(state, state.flushed_ts, (), nonce, wall_ms)
        step, self._others = next_step(state, order, self._others), None
        if step is None and state.restate and self.is_idle:
            return manifest_of(state, state.flushed_ts, (), nonce, wall_ms)
        if step is None:
            return None
        self._sweeping = frozenset()
        bound = replace(state, stop_at=step.stop_at, merge=step.merge)
        # A manifest drops the history of the slices, so pending locks must be judged by the history first. After a stop
        # was withdrawn, rows may also be pending below the watermark. One tick does both, independent of the bounds of
        # parts.
        unheard, unflushed = state.unwritten > 0, bound.progress_ts > state.flushed_ts
        if (unheard or unflushed) and needs_job(bound, (), sweep=unheard):
            return plan(
                bound, apply_files(bound, ()), nonce, self._limits.cut, bounds=() if order is None else order.bounds
            )
        raised = replace(bound, flushed_ts=bound.progress_ts)
        return manifest_of(raised, state.flushed_ts, (), nonce, wall_ms, step.children)

    def queued(self, count: int) -> list[TaskFile]:
        """The first `count` files of the inbox, which the current tick has read."""
        return self._mail.queued(count)

    def committed(self, after: TaskState, files: int, now_ms: int) -> None:
        """Record that a manifest was committed which covers the first `files` files of the inbox. `now_ms`:
        monotonic."""
        self._sweeps.swept(self._sweeping, now_ms)
        self._sweeping = frozenset()
        self._idle_at_ms = now_ms + self._limits.idle_manifest_ms
        self.trouble = None
        applied, task_id = self._mail.queued(files), after.identity.task_id
        self.load.add((group for file in applied for group in groups_of(file, task_id)), now_ms)
        self._mail.remove(applied)
        self.durable = after
        self.state = after
        self._mail.committed(after)

    def refused(self, done: TickPlan, results: Sequence[ShardResult], now_ms: int) -> None:
        """Drop the damaged files that shards have found, and the later files of their chains. The dispatcher sends them
        again. `now_ms`: monotonic."""
        reasons = {seq: reason for result in results for seq, reason in result.bad_files.items()}
        bad: list[tuple[FileRef, str]] = [(file.ref, reasons[seq]) for seq, file in done.files if seq in reasons]
        self._mail.forget(self.state.positions, bad, now_ms)
