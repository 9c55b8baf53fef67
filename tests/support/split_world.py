"""Tasks that are split and merged while files arrive: real sorter nodes, the least that a meta server and a dispatcher
must do for them, and readers with routes as old as they like.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client import CollectorRegistry

from support.golden import Delivery
from support.oracle import COLUMNS
from support.sorter_world import InlineRunner, Origin
from tistream.clock import ManualClock
from tistream.format.segment import SegmentRef
from tistream.model.span import WHOLE, KeySpan
from tistream.model.ts import Window
from tistream.pool.lineage import Lineage, SharedSegments, reached
from tistream.pool.rows import read_rows
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_watermarks
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream.wire.file_batch import WATERMARKS, FileRef, RowGroupRef
from tistream.wire.meta import ChildTask, RouteTable, SealOrder, TaskReport, TaskRoute, TenantRoute
from tistream_dispatcher.delivery.router import Router, TaskSpan
from tistream_meta.tenants.pool_frontier import frontier
from tistream_meta.tenants.pool_search import pool_tasks
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.assignment import TaskRules, retentions, seal_orders, wanted_tasks
from tistream_sorter.node.node import SorterNode
from tistream_sorter.node.tick_jobs import Runner
from tistream_sorter.task.mailbox import FlushedByAllNote
from tistream_sorter.task.task import Task
from tistream_sorter.task.task_machine import TickLimits
from tistream_sorter.task.tick import TaskFile
from tistream_sorter.upkeep.compaction_plan import CompactRules
from tistream_sorter.upkeep.gc_plan import COLLECT_DEFAULT, CollectRules
from tistream_sorter.upkeep.index_plan import IndexRules
from tistream_sorter.upkeep.shards import CutRules

RULES = TaskRules(keep_index_keys=False, checkpoint_every=5)
NODE = "sorter"


@dataclass
class Row:
    """A task as the meta server's database has it."""

    task_id: int
    span: KeySpan
    epoch: int = 1
    parents: tuple[int, ...] = ()
    order: SealOrder | None = None

    def route(self) -> TaskRoute:
        return TaskRoute(
            task_id=self.task_id,
            start_key=self.span.start.hex(),
            end_key=self.span.end.hex(),
            task_epoch=self.epoch,
            sorter_node=NODE,
            sorter_url="http://sorter",
            sorter_start_epoch=1,
            parents=list(self.parents),
            seal=self.order,
        )


@dataclass
class Merge:
    """Neighbours that are to become one."""

    parents: list[int]
    child: ChildTask
    stop_at: int
    final: bool = False


def child_task(task_id: int, span: KeySpan) -> ChildTask:
    return ChildTask(task_id=task_id, start_key=span.start.hex(), end_key=span.end.hex())


def span_of(child: ChildTask) -> KeySpan:
    return KeySpan(bytes.fromhex(child.start_key), bytes.fromhex(child.end_key))


@dataclass(frozen=True)
class Arrived:
    """A file as every task may be sent it."""

    ref: FileRef
    groups: Sequence[object]
    watermarks: pa.Table


class SplitWorld:
    """One tenant, at first one task of all keys. `node` is the process that holds its tasks; those before it, which do
    not know that they were replaced, are `late`."""

    def __init__(
        self,
        origin: Origin,
        *,
        cut: CutRules | None = None,
        objects: ObjectStore | None = None,
        collect: CollectRules = COLLECT_DEFAULT,
        compact: CompactRules | None = None,
        index: IndexRules | None = None,
        checkpoint_every: int = RULES.checkpoint_every,
        idle_manifest_ms: int = 10_000,
        new_runner: Callable[[ObjectStore], Runner] = InlineRunner,
    ) -> None:
        self.origin = origin
        self.objects = objects or MemoryObjectStore()
        self.clock = ManualClock(origin.snapshot_ts >> 18)
        self.limits = TickLimits(
            1 << 30,
            idle_manifest_ms,
            10_000,
            cut or CutRules(1, 1 << 30),
            collect=collect,
            compact=compact or CompactRules(),
            index=index,
        )
        self.keep_ms: int | None = None
        self._new_runner = new_runner
        self._rules = replace(RULES, checkpoint_every=checkpoint_every)
        self.rows = {1: Row(1, WHOLE)}
        self.merges: list[Merge] = []
        self.late: list[SorterNode] = []
        self.withheld: set[tuple[int, int]] = set()  # (task, store): nothing is sent to it of that
        self.sealed: list[int] = []  # tasks, as the meta server heard of it
        self._ids = 1
        self._nonces = random.Random(7)
        self._chains: dict[tuple[int, int], int] = {}  # (store, ts) -> first file of its chain
        self._arrived: dict[tuple[int, int], dict[int, Arrived]] = {}  # (store, chain) -> by prev_ts
        self.node = self._new_node()
        self.assign()

    def _new_node(self) -> SorterNode:
        return SorterNode(
            MeasuredObjectStore(self.objects),
            self._new_runner(self.objects),
            self.limits,
            self.clock,
            lambda: f"{self._nonces.getrandbits(64):016x}",
            SorterMetrics(CollectorRegistry()),
        )

    # -- the sorter ---------------------------------------------------------------------------------------------------

    def crash(self, *, late: bool = False) -> None:
        """A new process, and new epochs; the one before is dead, or has not noticed."""
        if late:
            self.late.append(self.node)
        for row in self.rows.values():
            row.epoch += 1
        self.node = self._new_node()
        self.assign()
        self.send()

    def assign(self) -> bool:
        """Tell the sorter the newest route table."""
        table = self.table()
        return self.node.assign(
            wanted_tasks(table, NODE, 1, self._rules), seal_orders(table, NODE, 1, self._rules), retentions(table)
        )

    def tick(self) -> None:
        """Ticks until nothing is left to do, and everything is sent and told that may be."""
        for _ in range(100):
            self.send()
            moved = self.node.tick()
            if not (self.meta() or moved):
                return
        raise AssertionError("the node does not come to rest")

    def task(self, task_id: int) -> Task:
        found = self.node.find(task_id)
        assert found is not None
        return found

    def stopped(self) -> list[str]:
        return [task.stopped for task in self.node.tasks() if task.stopped]

    def progress_ts(self) -> int:
        """Of all tasks; of one that is sealed, and waits for others to come as far, where it ended."""
        found = []
        for task_id in self.rows:
            task = self.node.find(task_id)
            view = TaskObjects(self.objects, self.origin.tenant, task_id).follow()
            assert (task is None) == view.sealed
            found.append(view.flushed_ts if task is None else task.state.progress_ts)
        return min(found)

    # -- the dispatcher -----------------------------------------------------------------------------------------------

    def push(self, delivery: Delivery) -> None:
        """A file arrives, and every task is sent what it lacks."""
        self.objects.put(delivery.key, delivery.data)
        opened = open_change_file(self.objects, delivery.key)
        store, ts = opened.store_id, opened.ts
        chain = self._chains[store, ts] = self._chains[store, opened.prev_ts] if opened.prev_ts else ts
        groups = tuple(
            RowGroupRef(g.index, g.offset, g.length, g.rows, g.crc32, g.key_min, g.key_max, g.unpacked)
            for g in opened.change_groups
        )
        ref = FileRef(
            cluster_id=self.origin.tenant.cluster_id,
            tenant_id=self.origin.tenant.tenant_id,
            store_id=store,
            ts=ts,
            prev_ts=opened.prev_ts,
            chain_ts=chain,
            key=delivery.key,
            size=opened.size,
            footer_start=opened.footer_start,
            arrived_ms=0,
            groups=groups,
            row_groups={},
        )
        found = Arrived(ref, opened.change_groups, read_watermarks(self.objects, opened))
        self._arrived.setdefault((store, chain), {})[opened.prev_ts] = found
        self.send()

    def send(self) -> None:
        """Send every task what follows in its chains, and what all of them have made durable."""
        held = [self.node.find(task_id) for task_id in self.rows]
        known = [task.durable.flushed_ts for task in held if task is not None]
        router = Router([TaskSpan(row.task_id, row.span) for row in self._ordered()])
        for task in self.node.tasks():
            if task.task_id not in self.rows:
                continue
            if len(known) == len(held):
                task.leave(FlushedByAllNote(min(known)))
            received = task.received()
            files = []
            for (store, chain), by_prev in self._arrived.items():
                if (task.task_id, store) in self.withheld:
                    continue
                at = next((one.at_ts for one in received.get(store, ()) if one.first_ts == chain), 0)
                while at in by_prev:
                    files.append(by_prev[at])
                    at = by_prev[at].ref.ts
            files.sort(key=lambda file: file.ref.ts)
            assert task.offer([_for_task(file, router, task.task_id) for file in files], self.clock.monotonic_ms())

    # -- the meta server ----------------------------------------------------------------------------------------------

    def _ordered(self) -> list[Row]:
        return sorted(self.rows.values(), key=lambda row: row.span.start)

    def route(self) -> TenantRoute:
        """As it is told now."""
        tenant = self.origin.tenant
        return TenantRoute(
            cluster_id=tenant.cluster_id,
            tenant_id=tenant.tenant_id,
            snapshot_ts=self.origin.snapshot_ts,
            tasks=[row.route() for row in self._ordered()],
            retention_ms=self.keep_ms,
        )

    def table(self) -> RouteTable:
        return RouteTable(version=1, tenants=[self.route()])

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids

    def split(self, task_id: int, *keys: bytes) -> None:
        """Order a task to be cut at keys strictly inside it."""
        span = self.rows[task_id].span
        edges = [span.start, *sorted(keys), span.end]
        children = [child_task(self._new_id(), KeySpan(*pair)) for pair in itertools.pairwise(edges)]
        self.rows[task_id].order = SealOrder(children=children)
        self.assign()

    def merge(self, *task_ids: int, ahead: int = 0) -> None:
        """Order neighbours to become one, at a ts so far ahead of what they have told."""
        spans = [self.rows[one].span for one in task_ids]
        child = child_task(self._new_id(), KeySpan(spans[0].start, spans[-1].end))
        self.merges.append(Merge(list(task_ids), child, self._told(task_ids) + ahead))
        self._order_merges()
        self.assign()

    def withdraw(self, task_id: int) -> None:
        """Take back what was ordered of a task, and, of a merge, of the others too."""
        self.rows[task_id].order = None
        for merge in [merge for merge in self.merges if task_id in merge.parents]:
            assert not merge.final
            self.merges.remove(merge)
            for parent in merge.parents:
                self.rows[parent].order = None
        self.assign()

    def forget(self) -> None:
        """The database is restored to before all that is ordered now."""
        self.merges.clear()
        for row in self.rows.values():
            row.order = None
        self.assign()

    def give_back(self) -> None:
        """The database is restored to before the tenant's start: its tasks are those that its manifests tell of."""
        tenant = self.origin.tenant
        found = frontier(tenant, pool_tasks(self.objects, tenant))
        self.merges.clear()
        self._ids = max(self._ids, found.last_id)
        self.rows = {
            task.task_id: Row(task.task_id, task.span, task.task_epoch + 1, task.parents) for task in found.tasks
        }
        for span in found.first_spans([WHOLE]):
            task_id = self._new_id()
            self.rows[task_id] = Row(task_id, span)
        self.assign()

    def busy(self) -> set[int]:
        """Tasks of which something is ordered."""
        return {row.task_id for row in self.rows.values() if row.order is not None}

    def _told(self, task_ids: Iterable[int]) -> int:
        reports = self._reports()
        return max([self.origin.snapshot_ts, *(reports[one].progress_ts for one in task_ids if one in reports)])

    def _reports(self) -> dict[int, TaskReport]:
        told = [one for one in self.node.reports() if not one.prepared]
        return {one.task_id: one for one in told if self.rows.get(one.task_id, Row(0, WHOLE)).epoch == one.task_epoch}

    def _order_merges(self) -> None:
        for merge in self.merges:
            order = SealOrder(
                children=[merge.child],
                stop_at=merge.stop_at,
                final=merge.final,
                parents=sorted(merge.parents, key=lambda one: self.rows[one].span.start),
            )
            for parent in merge.parents:
                self.rows[parent].order = order

    def meta(self) -> bool:
        """Hear the sorter's reports, and tell what follows from them; whether anything does."""
        reports = self._reports()
        before = self.route()
        for merge in list(self.merges):
            told = [reports.get(parent) for parent in merge.parents]
            if any(one is not None and one.sealed and one.sealed != [merge.child] for one in told):
                self.merges.remove(merge)  # an order before this one had been followed already
                for parent in merge.parents:
                    self.rows[parent].order = None
            elif all(one is not None and one.sealed for one in told):
                self._replace(merge.parents, [merge.child])
                self.merges.remove(merge)
            elif not merge.final and all(one is not None and one.stop_at == merge.stop_at for one in told):
                merge.final = True
            elif not merge.final and any(one is not None and one.progress_ts > merge.stop_at for one in told):
                merge.stop_at = self._told(merge.parents) + 1
        merging = {parent for merge in self.merges for parent in merge.parents}
        for task_id, report in reports.items():
            if not report.sealed or task_id in merging or task_id not in self.rows:
                continue
            if _around(report.sealed) == self.rows[task_id].span:
                self._replace([task_id], report.sealed)
            else:  # of a merge that was forgotten: its neighbours are given that order again, and no way back
                self._order_again(report.sealed[0], reports)
                merging |= set(self.merges[-1].parents)
        self._order_merges()
        if self.route() != before:
            self.assign()
            return True
        return False

    def _order_again(self, child: ChildTask, reports: dict[int, TaskReport]) -> None:
        parents = [row.task_id for row in self._ordered() if row.span.overlaps(span_of(child))]
        stops = {report.stop_at for parent in parents if (report := reports.get(parent)) and not report.sealed}
        assert None not in stops, "a neighbour has gone on"
        self.merges = [merge for merge in self.merges if not set(merge.parents) & set(parents)]
        self.merges.append(Merge(parents, child, max(stops, default=0) or 1, final=True))

    def _replace(self, parents: Sequence[int], children: Sequence[ChildTask]) -> None:
        self.sealed += parents
        for parent in parents:
            del self.rows[parent]
        for child in children:
            self.rows[child.task_id] = Row(child.task_id, span_of(child), parents=tuple(parents))


def _around(children: Sequence[ChildTask]) -> KeySpan:
    spans = sorted((span_of(child) for child in children), key=lambda span: span.start)
    return KeySpan(spans[0].start, spans[-1].end)


def _for_task(file: Arrived, router: Router, task_id: int) -> TaskFile:
    rows = router.watermarks(file.watermarks)
    rows = rows.add_column(0, WATERMARKS.field("file"), pa.array([0] * rows.num_rows, pa.int32()))
    wanted = router.row_groups(file.groups).get(task_id, ())  # type: ignore[arg-type]
    fields = {name: getattr(file.ref, name) for name in file.ref.__slots__}
    ref = FileRef(**{**fields, "row_groups": {task_id: wanted}})
    return TaskFile(ref, rows.filter(pc.equal(rows["task_id"], task_id)))


@dataclass(frozen=True)
class Routed:
    task_id: int
    span: KeySpan
    parents: Sequence[int]


@dataclass
class PoolReader:
    """Follows the pool by a route that it may keep for long, and by what the sorter tells."""

    world: SplitWorld
    route: TenantRoute
    resolved_ts: int = 0
    flushed_ts: int = 0
    crossed: int = 0  # seals that its route did not know of
    _lineage: Lineage = field(init=False)
    _segments: SharedSegments = field(init=False)
    _read: dict[str, pl.DataFrame] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lineage = Lineage(self.world.objects, self.world.origin.tenant)
        self._segments = SharedSegments()

    def refresh(self) -> None:
        """What the sorter tells first, then the manifests; these must not go back."""
        tasks = {task.task_id: task for task in self.world.node.tasks()}
        told = {task_id: task.status(0, 0) for task_id, task in tasks.items()}
        covers = []
        for task in self.route.tasks:
            span = KeySpan(bytes.fromhex(task.start_key), bytes.fromhex(task.end_key))
            status = told.get(task.task_id)
            covers += self._lineage.covers(
                Routed(task.task_id, span, task.parents), None if status is None else status.manifest
            )
        self._lineage.forget_others()
        routed = {task.task_id for task in self.route.tasks}
        self.crossed += sum(cover.log.task_id not in routed for cover in covers)
        edges = [(cover.span.start, cover.span.end) for cover in sorted(covers, key=lambda cover: cover.span.start)]
        assert edges[0][0] == edges[-1][1] == b""
        assert all(left[1] == right[0] for left, right in itertools.pairwise(edges)), "each key once"
        found = reached(covers, {task_id: told[task_id] for task_id in routed if task_id in told})
        self.resolved_ts = max(self.resolved_ts, found)  # what was told stays true, also after a crash
        flushed_ts = reached(covers, {})
        assert flushed_ts >= self.flushed_ts
        self.flushed_ts = flushed_ts
        self._segments.update(cover.log for cover in covers)

    def rows(self) -> pl.DataFrame:
        """All rows up to resolved_ts, in (commit_ts, start_ts, key) order."""
        frames = [self._rows_of(segment) for segment in self._segments.segments]
        every = pl.concat([pl.DataFrame(schema=COLUMNS), *frames])
        return every.filter(pl.col("commit_ts") <= self.resolved_ts).sort("commit_ts", "start_ts", "key")

    def _rows_of(self, segment: SegmentRef) -> pl.DataFrame:
        if segment.key not in self._read:
            frame = pl.from_arrow(read_rows(self.world.objects, segment, Window(0, 2**62)))
            assert isinstance(frame, pl.DataFrame)
            self._read[segment.key] = frame.select(list(COLUMNS))
        return self._read[segment.key]
