"""The pipeline from files to pool in one thread and without Spark: any arrival order, any cut, any tick, any crash.

The sorter's own tick, kernel, manifests and segments do the work, on an in-memory object store; dispatcher and
transport are replaced by the most naive thing that keeps to their contract. One seed replays everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from support.golden import Delivery, GoldenSet
from support.oracle import COLUMNS
from support.pending_rules import any_rules
from tistream.format import manifest as manifests
from tistream.format.manifest import UNMATCHED, Manifest
from tistream.format.task_view import TaskView
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.rows import read_rows
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_watermarks
from tistream.wire.file_batch import WATERMARKS, FileRef, RowGroupRef
from tistream_dispatcher.delivery.router import Router, TaskSpan
from tistream_sorter.jobs.shard_io import process_guarded
from tistream_sorter.state.positions import moved
from tistream_sorter.state.task_state import TaskIdentity, TaskState, first_state, recovered_state
from tistream_sorter.task.build_manifest import manifest_of
from tistream_sorter.task.tick import TaskFile, apply_files, conclude, lookup_needed, needs_job, plan
from tistream_sorter.upkeep.shards import CutRules


@dataclass
class SimulatedTask:
    """One task: its state, what was sent to it and not taken, its committed manifests."""

    identity: TaskIdentity
    state: TaskState
    queue: list[TaskFile] = field(default_factory=list)
    committed: list[Manifest] = field(default_factory=list)


def many_shards(rng: random.Random) -> CutRules:
    """The rules of one tick, at random: tens of shards, and values that point."""
    return any_rules(rng, rng.randint(1, 3), 1 << 12)


class Simulation:
    """One tenant's pipeline. `spans` cut the key space into tasks, `rules` each tick into shards."""

    def __init__(
        self,
        loaded: GoldenSet,
        spans: Sequence[KeySpan],
        seed: int,
        rules: Callable[[random.Random], CutRules] = many_shards,
    ) -> None:
        self.rng = random.Random(seed)
        self._rules = rules
        self.objects = MemoryObjectStore()
        self.loaded = loaded
        self._arrived: dict[int, dict[int, Source]] = {}  # store -> prev_ts -> file
        self._chain_begin = {store: loaded.chain(store)[0].store_and_ts[1] for store in loaded.stores}
        self._router = Router([TaskSpan(number, span) for number, span in enumerate(spans, start=1)])
        self.tasks = [self._task(number, span) for number, span in enumerate(spans, start=1)]

    def _task(self, number: int, span: KeySpan) -> SimulatedTask:
        identity = TaskIdentity(self.loaded.tenant, number, span, self.loaded.snapshot_ts, task_epoch=1)
        return SimulatedTask(identity, first_state(identity, number=1))

    def begin_chain(self, store_id: int, first_ts: int) -> None:
        """A store that the set does not have begins to push."""
        self._chain_begin[store_id] = first_ts

    # --- arrival ---------------------------------------------------------------------------------------------------

    def arrive(self, delivery: Delivery) -> None:
        """A file is there; every task gets what follows its chain now."""
        self.objects.put(delivery.key, delivery.data)
        source = self._open(delivery)
        self._arrived.setdefault(source.ref.store_id, {})[source.ref.prev_ts] = source
        for task in self.tasks:
            self._send(task)

    def _open(self, delivery: Delivery) -> Source:
        file = open_change_file(self.objects, delivery.key)
        tenant = self.loaded.tenant
        store_id, ts = delivery.store_and_ts
        groups = tuple(
            RowGroupRef(g.index, g.offset, g.length, g.rows, g.crc32, g.key_min, g.key_max, g.unpacked)
            for g in file.change_groups
        )
        ref = FileRef(
            cluster_id=tenant.cluster_id,
            tenant_id=tenant.tenant_id,
            store_id=store_id,
            ts=ts,
            prev_ts=file.prev_ts,
            chain_ts=self._chain_begin[store_id],
            key=delivery.key,
            size=file.size,
            footer_start=file.footer_start,
            arrived_ms=0,
            groups=groups,
            row_groups=self._router.row_groups(file.change_groups),
        )
        rows = self._router.watermarks(read_watermarks(self.objects, file))
        return Source(ref, rows.add_column(0, WATERMARKS.field("file"), pa.array([0] * rows.num_rows, pa.int32())))

    def _send(self, task: SimulatedTask) -> None:
        positions = task.state.positions
        for queued in task.queue:
            positions = moved(positions, queued.ref)
        for store_id, by_prev in self._arrived.items():
            at = next((chain.at_ts for chain in positions.get(store_id, ())), 0)
            while at in by_prev:
                task.queue.append(by_prev[at].for_task(task.identity))
                at = by_prev[at].ref.ts

    # --- ticks -----------------------------------------------------------------------------------------------------

    def run(self, arrivals: Sequence[Delivery], tick_share: float = 0.2, crash_share: float = 0.02) -> None:
        """Everything arrives; ticks and crashes of single tasks come in between at random; then all is taken."""
        for delivery in arrivals:
            self.arrive(delivery)
            for task in self.tasks:
                if self.rng.random() < crash_share:
                    self.crash(task)
                if self.rng.random() < tick_share:
                    self.tick(task, self.rng.randint(1, 5))
        for task in self.tasks:
            while task.queue or not self.tick(task, 0, sweep=True):
                self.tick(task, self.rng.randint(1, 40))

    def crash(self, task: SimulatedTask) -> None:
        """Forget everything that no manifest holds."""
        task.queue = []
        if task.committed:
            last = task.committed[-1]
            live = tuple(segment for manifest in task.committed for segment in manifest.segments)
            view = TaskView(last.number, last.task_epoch, last.flushed_ts, last, last, live)
            task.state = recovered_state(task.identity, view)
        else:
            task.state = first_state(task.identity, number=1)
        self._send(task)

    def tick(self, task: SimulatedTask, files: int, *, sweep: bool = False) -> bool:
        """One tick of one task, with at most so many files; `sweep`: every part is looked through for dead locks.
        False: it crashed."""
        batch = task.queue[:files]
        taken = apply_files(task.state, batch)
        nonce = f"{self.rng.getrandbits(64):016x}"
        if not needs_job(taken[0], batch, sweep=sweep):
            task.state = taken[0]
            del task.queue[: len(batch)]
            return True
        swept = frozenset(part.key for part in task.state.pending if sweep and part.kind == UNMATCHED)
        planned = plan(task.state, taken, nonce, self._rules(self.rng), swept)
        results = [process_guarded(self.objects, shard) for shard in planned.shards]
        again = lookup_needed(planned, results)
        if again is not None:
            planned = again
            results = [process_guarded(self.objects, shard) for shard in planned.shards]
        assert not any(result.bad_files or result.failed for result in results), results
        manifest, state = conclude(planned, results, now_ms=0)
        if self.rng.random() < 0.05:
            self.crash(task)  # after the job, before the manifest: what was written is garbage
            return False
        self._commit(task, manifest, state)
        del task.queue[: len(batch)]
        return True

    def _commit(self, task: SimulatedTask, manifest: Manifest, state: TaskState) -> None:
        key = layout.manifest(task.identity.tenant, task.identity.task_id, manifest.number)
        self.objects.put_new(key, manifests.encode(manifest))
        previous = task.committed[-1] if task.committed else None
        assert manifest.low_ts <= manifest.flushed_ts
        assert previous is None or manifest.low_ts == previous.flushed_ts
        task.committed.append(manifests.decode(key, self.objects.get(key)))
        task.state = state

    def note_progress(self, task: SimulatedTask) -> None:
        """The manifest that an idle task writes now and then."""
        manifest, state = manifest_of(task.state, task.state.flushed_ts, (), "00", 0)
        self._commit(task, manifest, state)

    # --- what came out ---------------------------------------------------------------------------------------------

    @property
    def progress_ts(self) -> int:
        """What the tenant's resolved_ts would be."""
        return min(task.state.progress_ts for task in self.tasks)

    def pool(self) -> pl.DataFrame:
        """The committed rows of all tasks, as the oracle has them."""
        frames = [pl.DataFrame(schema=COLUMNS)]
        for task in self.tasks:
            for manifest in task.committed:
                for segment in manifest.segments:
                    window = Window(manifest.low_ts, manifest.flushed_ts)
                    rows = read_rows(self.objects, segment, window, None)
                    assert rows.num_rows == segment.rows, "a segment holds rows outside of its manifest's window"
                    frame = pl.from_arrow(rows)
                    assert isinstance(frame, pl.DataFrame)
                    frames.append(frame.select(list(COLUMNS)))
        return pl.concat(frames).sort("commit_ts", "start_ts", "key")

    def pending_rows(self) -> int:
        """Entries that are still waiting."""
        return sum(part.rows for task in self.tasks for part in task.state.pending)


@dataclass(frozen=True, slots=True)
class Source:
    """A file, opened and routed once."""

    ref: FileRef
    watermarks: pa.Table

    def for_task(self, identity: TaskIdentity) -> TaskFile:
        """What the task receives of it."""
        return TaskFile(self.ref, self.watermarks.filter(pc.equal(self.watermarks["task_id"], identity.task_id)))
