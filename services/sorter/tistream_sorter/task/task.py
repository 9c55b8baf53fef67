"""One task in this process: its state, its inbox, and the decision what to do next. Pure, but for its lock.

Only the tick thread changes `state`; routes offer files and read. The lock protects the inbox, and is never held for
long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tistream.concurrency import new_lock
from tistream.errors import InvalidRequest
from tistream.format.manifest import Manifest
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS
from tistream.schema.tidb.meta_change import SCHEMA_SPANS
from tistream.wire.file_batch import FileRef
from tistream.wire.meta import SealOrder
from tistream.wire.sorter import Coverage, Hold, StoreNeed, TaskStatus
from tistream_sorter.jobs.base_unit import BaseMade
from tistream_sorter.jobs.rewrite import Rewritten
from tistream_sorter.jobs.shard import ShardResult
from tistream_sorter.state.damage import Damages
from tistream_sorter.state.positions import Positions, closed, outlived
from tistream_sorter.state.task_state import Retention, TaskState
from tistream_sorter.task.inbox import Inbox, groups_of
from tistream_sorter.task.restate import manifest_of
from tistream_sorter.task.seal_orders import Order, Others, may_stop, must_read, next_step, other_parents, read_order
from tistream_sorter.task.status import coverage, no_room, slice_holds, store_need, task_status
from tistream_sorter.task.tick import FileRefused, Plan, Taken, Taking, TaskFile, emptied, needs_job, plan, rested, take
from tistream_sorter.upkeep.base_plan import with_bases
from tistream_sorter.upkeep.compaction_plan import COMPACT_DEFAULT, CompactRules, replaced
from tistream_sorter.upkeep.gc_plan import COLLECT_DEFAULT, CollectRules
from tistream_sorter.upkeep.load import LoadMeter
from tistream_sorter.upkeep.retention import Readable
from tistream_sorter.upkeep.shards import CutRules
from tistream_sorter.upkeep.sweep import Sweeps

TAKE_STEPS = 4_096  # slice changes by one task before the other tasks have their turn: about 50 ms


@dataclass(frozen=True, slots=True)
class TickLimits:
    """Limits of one tick of one task; see SorterSettings.tick."""

    bytes_max: int
    idle_manifest_ms: int
    inbox_files_max: int
    cut: CutRules
    large_work: int = 256 << 20  # a tick with more work (shards.Cut) runs as a job of its own
    collect: CollectRules = COLLECT_DEFAULT
    compact: CompactRules | None = COMPACT_DEFAULT  # None: no compaction
    take_steps: int = TAKE_STEPS


class Task:
    """A task held under one epoch."""

    def __init__(self, state: TaskState, limits: TickLimits) -> None:
        self.state = state
        self.stopped: str | None = None
        self.trouble: str | None = None  # why the last tick failed; it is retried
        self.load = LoadMeter(state.identity.span)
        self._order: Order | None = None
        self._told_order: SealOrder | None = None
        self._others: Others | None = None  # the other parents of a merge, as read for the next tick
        self._idle_at_ms: int | None = None  # when to write progress without changes; None = at once
        self._limits = limits
        self._durable = state
        self._inbox = Inbox(state.positions)
        self._damages = Damages()
        self._sweeps = Sweeps()
        self._keep_ms: int | None = None
        self.read_by_registry = any(state.identity.span.overlaps(span) for span in SCHEMA_SPANS)
        self._read_ts = 0 if self.read_by_registry else MAX_TS
        self._readable = Readable(limits.collect.grace_ms)
        self._flushed_by_all = 0
        self._disinherited: frozenset[int] = frozenset()
        self._rewritten: list[Rewritten] = []
        self._based: list[BaseMade] = []
        self._wasted: list[str] = []  # keys of objects that may exist and that no manifest will name
        self._taking: Taking | None = None  # in progress; `state` does not change until it has ended
        self._sweeping: frozenset[str] = frozenset()  # large parts that the present tick scans for dead locks
        self._lock = new_lock()

    @property
    def task_id(self) -> int:
        return self.state.identity.task_id

    @property
    def rests(self) -> bool:
        """Whether a tick would do nothing: no file is queued, and a manifest has all that was taken."""
        return not self._inbox.files and not self.state.unwritten and not self.state.unflushed

    @property
    def unfinished(self) -> bool:
        """Whether the next call of `due` continues work that is in progress."""
        return self._taking is not None

    @property
    def stop_at(self) -> int | None:
        """The stop_at of the newest manifest."""
        return self._durable.stop_at

    @property
    def to_settle(self) -> bool:
        """Whether a compaction or a base is complete that no manifest contains yet."""
        with self._lock:
            return bool(self._rewritten) or bool(self._based) or self.state.restate

    @property
    def durable(self) -> TaskState:
        """The state that the newest manifest contains."""
        return self._durable

    # -- retention and garbage
    # ---------------------------------------------------------------------------------------------

    def keep(self, keep_ms: int | None) -> None:
        """Set how long committed rows are kept; None: for ever."""
        self._keep_ms = keep_ms

    def read_through(self, ts: int) -> None:
        """The schema registry has durably read the pool up to `ts`. Rows above it must be kept."""
        self._read_ts = ts

    def flushed_by_all(self, ts: int) -> None:
        """The manifests of all tasks of the tenant cover `ts`, so readers can have read up to it. Rows above it must be
        kept, because readers wait for the slowest task. The highest value counts."""
        self._flushed_by_all = max(self._flushed_by_all, ts)

    @property
    def ancestors(self) -> list[int]:
        """Sealed ancestors of which objects may still exist."""
        return [one for one in self._durable.heritage if one not in self._disinherited]

    def disinherit(self, task_id: int) -> None:
        """No object is left of a sealed ancestor: remove it from the heritage."""
        self._disinherited |= {task_id}

    def rewritten(self, done: Rewritten) -> None:
        """A compaction is complete: the next manifest replaces its inputs by its output."""
        with self._lock:
            self._rewritten.append(done)

    def based(self, made: BaseMade) -> None:
        """A base chunk was taken: the next manifest names the base and its run."""
        with self._lock:
            self._based.append(made)

    def wasted(self, key: str) -> None:
        """An object that may exist will never be named by a manifest."""
        with self._lock:
            self._wasted.append(key)

    def settle(self, now_ms: int) -> list[str]:
        """Apply the results of other threads to the state. Returns keys of objects that no manifest will name.
        Monotonic time."""
        if self._taking is not None:
            return []
        readable_ts = self._readable.through(min(self._durable.flushed_ts, self._flushed_by_all), now_ms)
        read_ts = self._read_ts if self._keep_ms is None else min(self._read_ts, readable_ts)
        state, rule = self.state, Retention(self._keep_ms, read_ts)
        if state.retention != rule:
            state = replace(state, retention=rule)
        if not self._disinherited.isdisjoint(state.heritage):
            state = replace(state, heritage=tuple(one for one in state.heritage if one not in self._disinherited))
        with self._lock:
            done, self._rewritten = self._rewritten, []
            vain, self._wasted = self._wasted, []
            bases, self._based = self._based, []
        for one in done:
            assert one.output is not None
            after = replaced(state, one)
            if after is None:  # retention has dropped some of the inputs meanwhile
                vain.append(one.output.key)
            else:
                state = after
        state, useless = with_bases(state, bases)
        self.state = state
        return [*vain, *useless]

    # -- assignment -----------------------------------------------------------------------------------------------

    def order(self, order: SealOrder | None) -> str | None:
        """Set the owner's present order (None: none). For a new order that cannot be obeyed, return the reason."""
        if order == self._told_order:
            return None
        self._told_order = order
        try:
            self._order = None if order is None else read_order(order, self.state.identity)
        except InvalidRequest as error:
            self._order = None
            return str(error)
        if self._order is not None and self._order.stop_at is not None and not may_stop(self.state, self._order):
            return f"stop_at {self._order.stop_at} lies below the progress {self.state.progress_ts}"
        return None

    @property
    def to_read(self) -> list[int]:
        """The other parents of a merge, if their logs must be read for the next step."""
        state = self.state
        if self.stopped is not None or self._taking is not None:
            return []
        if not must_read(state, self._order):
            return []
        return other_parents(state)

    def heard(self, others: Others | None) -> None:
        """Set the content of the other parents' logs; None if they could not be read."""
        self._others = others

    # -- routes ---------------------------------------------------------------------------------------------------

    def offer(self, files: Sequence[TaskFile], now_ms: int) -> bool:
        """Queue the files that follow their chains. Returns False if the inbox is full; then none is queued. Monotonic
        time.

        A dispatcher may not know yet that a chain is closed. Of a late file of a closed chain only the position is
        taken, because the file may be deleted before a tick reads it.
        """
        durable = self._durable
        with self._lock:
            if len(self._inbox.files) + len(files) > self._limits.inbox_files_max and self._inbox.files:
                return False
            for file in files:
                if outlived(durable.positions, durable.flushed_ts, file.ref):
                    continue
                if not self._damages.refuses(file.ref, now_ms):
                    late = closed(durable.positions, durable.flushed_ts, file.ref)
                    self._inbox.offer(emptied(file) if late else file)
            return True

    def received(self) -> Positions:
        """The positions after all queued files."""
        with self._lock:
            return self._inbox.positions

    def status(self, wall_ms: int, monotonic_ms: int) -> TaskStatus:
        """The status of the task."""
        # Read `durable` before the inbox, so that the received positions are never behind the durable ones.
        state, durable, trouble = self.state, self._durable, self.trouble
        with self._lock:
            received, holds = self._inbox.positions, self._damages.holds(monotonic_ms)
            holds += [no_room(ref, received) for ref in self._inbox.crowded()]
        if trouble is not None:  # the slices lack queued files, so a late slice does not mean a late upstream
            holds.append(Hold(stage="sort", reason=f"task {self.task_id}: {trouble}"))
        else:
            holds += slice_holds(state, wall_ms)
        return task_status(state, durable, received, holds, self.stopped)

    def coverage(self, span: KeySpan) -> Coverage:
        """The slices inside `span` according to the newest manifest.

        Later progress may be lost in a crash, together with its file if the store's chain breaks. A scan that began
        above the durable state would then never connect.
        """
        return coverage(self._durable, span)

    def needs_of(self, store_id: int) -> StoreNeed:
        """The reasons why the task still needs a store."""
        state, durable = self.state, self._durable
        return store_need(state, durable, self.received(), store_id)

    # -- the tick thread ------------------------------------------------------------------------------------------

    def due(self, now_ms: int, wall_ms: int, nonce: str) -> Plan | tuple[Manifest, TaskState] | None:
        """The next step: a tick to run, a manifest that only records progress, or nothing. `now_ms`: monotonic;
        `wall_ms`: wall clock.

        Files without entries that flush nothing are taken into the state without a job or a manifest. `unfinished` work
        continues at the next call.
        """
        if self.stopped is None and self._taking is None and (asked := self._asked(nonce, wall_ms)) is not None:
            return asked
        if self.stopped is not None or self.rests:
            return None
        idle = self._idle_at_ms is None or now_ms >= self._idle_at_ms
        if (found := self._taken(now_ms, idle=idle)) is None:
            return None
        files, taken = found
        if needs_job(taken[0], files, sweep=idle):
            history = taken[0].history
            self._sweeping = self._sweeps.due(self.state.pending, history, self._limits.cut.rows_small, now_ms)
            bounds = () if self._order is None else self._order.bounds
            return plan(self.state, taken, nonce, self._limits.cut, self._sweeping, bounds)
        self.state = rested(taken[0])
        self._took(files)
        if not idle:
            return None
        raised = replace(self.state, flushed_ts=self.state.progress_ts)
        return manifest_of(raised, self.state.flushed_ts, (), nonce, wall_ms)

    def _taken(self, now_ms: int, *, idle: bool) -> tuple[Sequence[TaskFile], Taken] | None:
        """The files of this tick and the state after them. None if there is nothing to do, if the work is not finished
        after `take_steps`, or if a file was refused."""
        if (taking := self._taking) is None:
            with self._lock:
                files = self._inbox.peek(self._limits.bytes_max, self.task_id)
            if not files and not idle and not self.state.unflushed:
                return None
            taking = Taking(self.state, files)
        self._taking = None
        try:
            taken = taking.go_on(self._limits.take_steps)
        except FileRefused as refused:
            self._forget([(refused.ref, refused.reason)], now_ms)
            return None
        if taken is None:
            self._taking = taking
            return None
        return [file for _, file in taken[1]], taken

    def _asked(self, nonce: str, wall_ms: int) -> Plan | tuple[Manifest, TaskState] | None:
        """The step that precedes any file: the first manifest of a child task, or the owner's order."""
        state, order = self.state, self._order
        if state.inherited:
            return manifest_of(state, state.flushed_ts, (), nonce, wall_ms)
        step, self._others = next_step(state, order, self._others), None
        if step is None and state.restate and self.rests:
            return manifest_of(state, state.flushed_ts, (), nonce, wall_ms)
        if step is None:
            return None
        self._sweeping = frozenset()
        bound = replace(state, stop_at=step.stop_at, merge=step.merge)
        # A manifest drops the history of the slices, so pending locks must be judged by it before. And after a stop was
        # withdrawn, rows may be pending below the watermark. One tick does both, independent of the bounds of parts.
        unheard, unflushed = state.unwritten > 0, bound.progress_ts > state.flushed_ts
        if (unheard or unflushed) and needs_job(bound, (), sweep=unheard):
            return plan(bound, take(bound, ()), nonce, self._limits.cut, bounds=() if order is None else order.bounds)
        raised = replace(bound, flushed_ts=bound.progress_ts)
        return manifest_of(raised, state.flushed_ts, (), nonce, wall_ms, step.children)

    def committed(self, after: TaskState, files: int, now_ms: int) -> None:
        """A manifest was committed that covers the first `files` files of the inbox. Monotonic time."""
        self._sweeps.swept(self._sweeping, now_ms)
        self._sweeping = frozenset()
        self._idle_at_ms = now_ms + self._limits.idle_manifest_ms
        self.trouble = None
        with self._lock:
            taken = self._inbox.files[:files]
        self.load.took((group for file in taken for group in groups_of(file, self.task_id)), now_ms)
        self._took(taken)
        self._durable = after
        self.state = after
        with self._lock:
            self._inbox.committed(after.positions, after.flushed_ts)

    def _took(self, files: Sequence[TaskFile]) -> None:
        with self._lock:
            self._inbox.taken(len(files))
            for file in files:
                self._damages.taken(file.ref)

    def queued(self, count: int) -> list[TaskFile]:
        """The first `count` files of the inbox."""
        with self._lock:
            return self._inbox.files[:count]

    def refused(self, done: Plan, results: Sequence[ShardResult], now_ms: int) -> None:
        """Shards found damaged files: drop them and the later files of their chains. The dispatcher sends them
        again."""
        reasons = {seq: reason for result in results for seq, reason in result.bad_files.items()}
        self._forget([(file.ref, reasons[seq]) for seq, file in done.files if seq in reasons], now_ms)

    def _forget(self, bad: Sequence[tuple[FileRef, str]], now_ms: int) -> None:
        with self._lock:
            for ref, reason in bad:
                self._damages.note(ref, reason, now_ms)
            self._inbox.forget(self.state.positions, [ref.key for ref, _ in bad])
