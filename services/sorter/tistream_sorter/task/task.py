"""One task in this process: its state, its inbox, and what it decides at each tick. Pure, but for its lock.

The tick thread owns `state`; routes only offer files and read. The lock covers the inbox, nothing that takes time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tistream.concurrency import new_lock
from tistream.errors import InvalidRequest
from tistream.format.manifest import Manifest
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS
from tistream.schema.meta_change import SCHEMA_SPANS
from tistream.wire.file_batch import FileRef
from tistream.wire.meta import SealOrder
from tistream.wire.sorter import Coverage, Hold, StoreNeed, TaskStatus
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
from tistream_sorter.upkeep.compaction_plan import COMPACT_DEFAULT, CompactRules, replaced
from tistream_sorter.upkeep.gc_plan import COLLECT_DEFAULT, CollectRules
from tistream_sorter.upkeep.load import LoadMeter
from tistream_sorter.upkeep.retention import Readable
from tistream_sorter.upkeep.shards import CutRules
from tistream_sorter.upkeep.sweep import Sweeps

TAKE_STEPS = 4_096  # of watermarks that overlap, before the other tasks have their turn: some 50 ms


@dataclass(frozen=True, slots=True)
class TickLimits:
    """What one tick of one task takes; see SorterSettings.tick."""

    bytes_max: int
    idle_manifest_ms: int
    inbox_files_max: int
    cut: CutRules
    large_work: int = 256 << 20  # a tick of more work (shards.Cut) runs beside the others
    collect: CollectRules = COLLECT_DEFAULT
    compact: CompactRules | None = COMPACT_DEFAULT  # None: segments stay as they are
    take_steps: int = TAKE_STEPS


class Task:
    """A task held under one epoch."""

    def __init__(self, state: TaskState, limits: TickLimits) -> None:
        self.state = state
        self.stopped: str | None = None
        self.trouble: str | None = None  # why the last tick failed; it is tried again
        self.load = LoadMeter(state.identity.span)
        self._order: Order | None = None
        self._told_order: SealOrder | None = None
        self._others: Others | None = None  # as read for the tick that comes
        self._idle_at_ms: int | None = None  # when progress without changes is written next; None = at once
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
        self._wasted: list[str] = []  # objects that were, or may have been, written in vain
        self._taking: Taking | None = None  # under way; the state stays as it is until that has ended
        self._sweeping: frozenset[str] = frozenset()  # large parts that the tick under way looks through
        self._lock = new_lock()

    @property
    def task_id(self) -> int:
        return self.state.identity.task_id

    @property
    def rests(self) -> bool:
        """Nothing has come, and all that came is in a manifest: a tick would find nothing to do."""
        return not self._inbox.files and not self.state.unwritten and not self.state.unflushed

    @property
    def unfinished(self) -> bool:
        """Whether `due` has more to do at once."""
        return self._taking is not None

    @property
    def stop_at(self) -> int | None:
        """As the newest manifest has it."""
        return self._durable.stop_at

    @property
    def to_settle(self) -> bool:
        """Whether segments were written as one of which no manifest tells yet."""
        with self._lock:
            return bool(self._rewritten) or self.state.restate

    @property
    def durable(self) -> TaskState:
        """As the newest manifest has it."""
        return self._durable

    # -- what is kept ---------------------------------------------------------------------------------------------

    def keep(self, keep_ms: int | None) -> None:
        """How long committed rows are kept from now on; None: for ever."""
        self._keep_ms = keep_ms

    def read_through(self, ts: int) -> None:
        """The schema registry has read the pool up to `ts`, for good: nothing above it may go before."""
        self._read_ts = ts

    def flushed_by_all(self, ts: int) -> None:
        """Every task of the tenant has what lies at or below `ts` in its manifests: so far readers may have come, and
        nothing above may go, since they stand still where one task does. The highest of what was told is true."""
        self._flushed_by_all = max(self._flushed_by_all, ts)

    @property
    def ancestors(self) -> list[int]:
        """Sealed tasks of which objects may still be there."""
        return [one for one in self._durable.heritage if one not in self._disinherited]

    def disinherit(self, task_id: int) -> None:
        """Nothing is left of a sealed task that this one carries on."""
        self._disinherited |= {task_id}

    def rewritten(self, done: Rewritten) -> None:
        """Small segments were written as one: the next manifest says so."""
        with self._lock:
            self._rewritten.append(done)

    def wasted(self, key: str) -> None:
        """An object that may have been written will never be named."""
        with self._lock:
            self._wasted.append(key)

    def settle(self, now_ms: int) -> list[str]:
        """Take over what other threads have said. The objects that have come to nothing. Monotonic time."""
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
        for one in done:
            assert one.output is not None
            after = replaced(state, one)
            if after is None:  # retention has taken some of them meanwhile
                vain.append(one.output.key)
            else:
                state = after
        self.state = state
        return vain

    # -- assignment -----------------------------------------------------------------------------------------------

    def order(self, order: SealOrder | None) -> str | None:
        """What the owner wants now (None: nothing). The first time, why it cannot be, if it cannot."""
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
        """Those with which the task is to be merged, if what their logs say decides what it does next."""
        state = self.state
        if self.stopped is not None or self._taking is not None:
            return []
        if not must_read(state, self._order):
            return []
        return other_parents(state)

    def heard(self, others: Others | None) -> None:
        """What their logs say now; None if that could not be read."""
        self._others = others

    # -- routes ---------------------------------------------------------------------------------------------------

    def offer(self, files: Sequence[TaskFile], now_ms: int) -> bool:
        """Queue what follows its chain. False if there is no room: nothing of it was queued. Monotonic time.

        Of a late file of a closed chain, as a dispatcher that does not know this yet may hand on, nothing is taken but
        its place, if it has one: it may be gone before a tick has read it.
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
        """The chains once every queued file is taken."""
        with self._lock:
            return self._inbox.positions

    def status(self, wall_ms: int, monotonic_ms: int) -> TaskStatus:
        """What the task tells about itself."""
        # First what is durable: what has been received besides must not be told as in no manifest's way.
        state, durable, trouble = self.state, self._durable, self.trouble
        with self._lock:
            received, holds = self._inbox.positions, self._damages.holds(monotonic_ms)
            holds += [no_room(ref, received) for ref in self._inbox.crowded()]
        if trouble is not None:  # what has come is not in the slices: that they are late says nothing of the upstream
            holds.append(Hold(stage="sort", reason=f"task {self.task_id}: {trouble}"))
        else:
            holds += slice_holds(state, wall_ms)
        return task_status(state, durable, received, holds, self.stopped)

    def coverage(self, span: KeySpan) -> Coverage:
        """The slices inside `span`, as the newest manifest has them.

        What has come since may be lost with this process, and with it the file that it came with, if its store's chain
        breaks: a scan that began above what is durable would never be connected.
        """
        return coverage(self._durable, span)

    def needs_of(self, store_id: int) -> StoreNeed:
        """What the task still needs of a store."""
        state, durable = self.state, self._durable
        return store_need(state, durable, self.received(), store_id)

    # -- the tick thread ------------------------------------------------------------------------------------------

    def due(self, now_ms: int, wall_ms: int, nonce: str) -> Plan | tuple[Manifest, TaskState] | None:
        """What to do now (monotonic): a tick to run, a manifest that only records progress, or nothing.

        Files without entries that flush nothing are taken into the state at once: they need neither. What is
        `unfinished` goes on the next time.
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
        """The files of this tick and what they make of the state. None if there is nothing to do, more than one tick's
        part, or if one of the files cannot be taken."""
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
        """What goes before any files: the first manifest of an heir, and what the owner has ordered."""
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
        # What happened to the slices is forgotten with a manifest: the locks that wait must have heard of it. And where
        # nothing binds any more, rows may wait below the watermark. One tick sees to both, whatever the bounds of what
        # is left of a part say.
        unheard, unflushed = state.unwritten > 0, bound.progress_ts > state.flushed_ts
        if (unheard or unflushed) and needs_job(bound, (), sweep=unheard):
            return plan(bound, take(bound, ()), nonce, self._limits.cut, bounds=() if order is None else order.bounds)
        raised = replace(bound, flushed_ts=bound.progress_ts)
        return manifest_of(raised, state.flushed_ts, (), nonce, wall_ms, step.children)

    def committed(self, after: TaskState, files: int, now_ms: int) -> None:
        """A manifest was committed that took the first `files` of the inbox. Monotonic time."""
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
        """Files turned out damaged: forget them and what follows them; they are sent again."""
        reasons = {seq: reason for result in results for seq, reason in result.bad_files.items()}
        self._forget([(file.ref, reasons[seq]) for seq, file in done.files if seq in reasons], now_ms)

    def _forget(self, bad: Sequence[tuple[FileRef, str]], now_ms: int) -> None:
        with self._lock:
            for ref, reason in bad:
                self._damages.note(ref, reason, now_ms)
            self._inbox.forget(self.state.positions, [ref.key for ref, _ in bad])
