"""A platform of many nodes on a virtual clock: one real meta server on SQLite, and sorters that do as they are told."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.route_mark import NOTHING_SEEN, RouteMark
from tistream.wire.clients.route_merge import merged
from tistream.wire.meta import Heartbeat, RouteTable, TaskReport, TaskRoute
from tistream_meta.database.repository import Repository
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.liveness import Timings
from tistream_meta.decide.options import Options
from tistream_meta.metrics import MetaMetrics
from tistream_meta.owner.reports import ReportedTask
from tistream_meta.owner.scheduler import TASK_LOAD
from tistream_meta.owner.server import MetaServer

TASKS_A_TENANT = 100
STEP_MS = 250
PREPARE_MS, TAKE_OVER_MS, CLAIM_MS = 1_000, 200, 1_000
TIMINGS = Timings(suspect_ms=4_000, lost_ms=10_000)


@dataclass
class SimulatedSorter:
    """What a sorter tells of itself, and when it has done what the routes say."""

    name: str
    start: Start
    beat_ms: int
    routes: RouteTable | None = None
    wanted: dict[int, int] = field(default_factory=dict)  # task -> epoch
    ready_ms: dict[tuple[int, int], int] = field(default_factory=dict)  # (task, epoch; 0: prepared) -> when
    sequence: int = 0

    @property
    def mark(self) -> RouteMark:
        return NOTHING_SEEN if self.routes is None else RouteMark(self.routes.owner_rev, self.routes.version)

    def follow(self, told: RouteTable, now_ms: int) -> None:
        self.routes = table = merged(self.routes, told)
        prepared = {task_id for task_id, epoch in self.ready_ms if not epoch}
        ready: dict[tuple[int, int], int] = {}
        self.wanted = {}
        for tenant in table.tenants:
            for task in tenant.tasks:
                if task.sorter_node == self.name:
                    key = (task.task_id, task.task_epoch)
                    takes = TAKE_OVER_MS if task.task_id in prepared else CLAIM_MS
                    ready[key] = self.ready_ms.get(key, now_ms + takes)
                    self.wanted[task.task_id] = task.task_epoch
                elif task.next_node == self.name:
                    key = (task.task_id, 0)
                    ready[key] = self.ready_ms.get(key, now_ms + PREPARE_MS)
        self.ready_ms = ready

    def report(self, now_ms: int, load: dict[int, float]) -> bytes:
        """A heartbeat as it is sent."""
        self.sequence += 1
        reports = [
            TaskReport(task_id=task, task_epoch=epoch, prepared=not epoch, load=load[task] if epoch else 0.0)
            for (task, epoch), ready_ms in self.ready_ms.items()
            if ready_ms <= now_ms
        ]
        beat = Heartbeat(
            instance=self.start.instance,
            start_epoch=self.start.start_epoch,
            owner_rev=max(0, self.mark.owner_rev),
            route_version=self.mark.version,
            sequence=self.sequence,
            tasks=reports,
        )
        return beat.model_dump_json().encode()


class ManyNodes:
    """`cost` sums the processor seconds of the meta server by what it did: heartbeats, scheduling, routes."""

    def __init__(self, folder: Path, nodes: int, tasks: int) -> None:
        folder.mkdir()
        self.clock = ManualClock(1_000_000)
        objects = MemoryObjectStore()
        options = Options(
            own_url="http://meta",
            ranges_per_tenant=TASKS_A_TENANT,
            lease_ms=9_000,
            timings=TIMINGS,
            snapshot_retry_max_ms=100,
            announcements_max=1_000,
        )
        self.server = MetaServer(
            Repository.open(f"sqlite:///{folder}/meta.db", "meta-1"),
            objects,
            self.clock,
            MetaMetrics(CollectorRegistry()),
            options,
            new_client=_nobody,
        )
        self.cost: dict[str, float] = defaultdict(float)
        self.told_bytes = 0
        self.load: dict[int, float] = {}
        self._rng = random.Random(1)
        self.sorters: dict[str, SimulatedSorter] = {}
        self._joined = 0
        self.server.hold_lease()
        for _ in range(nodes):
            self.join()
        for number in range(tasks // TASKS_A_TENANT):
            key = TenantKey("c1", f"t{number}")
            objects.put(layout.schema_snap(key), b'{"version":1,"snapshot_ts":100,"databases":[]}')
            self.server.tenant_rules.create(key)
        self.server.activate_tenants()
        self.load = {task.task_id: self._rng.lognormvariate(10, 1) for task, _, _ in self.server.owned().tasks()}

    def join(self) -> None:
        """One more sorter."""
        self._joined += 1
        name = f"sorter-{self._joined}"
        start = Start("a", self.server.owned().new_start(name))
        self.server.owned().register(name, "sorter", f"http://{name}", start)
        self.sorters[name] = SimulatedSorter(name, start, self._now() + self._rng.randrange(1_000))

    def leave(self, count: int) -> None:
        """So many fall silent."""
        for name in self._rng.sample(sorted(self.sorters), count):
            del self.sorters[name]

    def step(self) -> None:
        """A quarter of a second."""
        self.clock.advance(STEP_MS)
        now_ms = self._now()
        if now_ms // STEP_MS % 6 == 0:
            self.server.hold_lease()
        self._timed("scheduling", self.server.look_after_nodes)
        for sorter in self.sorters.values():
            self._follow(sorter, now_ms)
            if sorter.beat_ms <= now_ms:
                body = sorter.report(now_ms, self.load)
                sorter.beat_ms = now_ms + self._timed("heartbeats", lambda s=sorter, b=body: self._heartbeat(s, b))

    def _heartbeat(self, sorter: SimulatedSorter, body: bytes) -> int:
        beat = Heartbeat.model_validate_json(body)
        holdings = [
            ReportedTask(task_id=one.task_id, task_epoch=one.task_epoch, prepared=one.prepared, load=one.load)
            for one in beat.tasks
        ]
        seen = RouteMark(beat.owner_rev, beat.route_version)
        return self.server.owned().heartbeat(sorter.name, sorter.start, seen, beat.sequence, holdings)[2]

    def _follow(self, sorter: SimulatedSorter, now_ms: int) -> None:
        newest = self.server.routes().current()
        assert newest is not None
        if newest.version == sorter.mark.version:
            return
        told = self._timed("routes", lambda: self._told(sorter))
        sorter.follow(RouteTable.model_validate_json(told), now_ms)

    def _told(self, sorter: SimulatedSorter) -> bytes:
        table = self.server.routes().wait(sorter.mark, 0, sorter.name)
        assert table is not None
        body = table.model_dump_json().encode()
        self.told_bytes += len(body)
        return body

    def _timed(self, what: str, call):  # type: ignore[no-untyped-def]
        began = time.process_time()
        try:
            return call()
        finally:
            self.cost[what] += time.process_time() - began

    def _now(self) -> int:
        return self.clock.monotonic_ms()

    # -- what is looked for --------------------------------------------------------------------------------------

    def unheld(self) -> int:
        """Tasks that no living sorter holds under the newest epoch."""
        return sum(
            (sorter := self.sorters.get(task.sorter_node or "")) is None
            or sorter.ready_ms.get((task.task_id, task.task_epoch), 1 << 62) > self._now()
            for task in self._tasks()
        )

    def unevenness(self) -> float:
        """How many times the mean the highest load of a sorter is, or the mean the lowest: the larger of the two."""
        loads = dict.fromkeys(self.sorters, 0.0)
        for task in self._tasks():
            if task.sorter_node in loads:
                loads[task.sorter_node] += TASK_LOAD + self.load[task.task_id]
        mean = sum(loads.values()) / len(loads)
        return max(max(loads.values()) / mean, mean / max(1e-9, min(loads.values())))

    def moving(self) -> bool:
        """Whether any task is on its way."""
        return any(task.next_node is not None for task in self._tasks())

    def _tasks(self) -> Iterator[TaskRoute]:
        table = self.server.routes().current()
        assert table is not None
        return (task for tenant in table.tenants for task in tenant.tasks)


def _nobody(url: str) -> MetaClient:
    raise AssertionError(f"there is no other meta server: {url}")
