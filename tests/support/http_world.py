"""Meta server, dispatcher and sorter as in production, over real HTTP, in one process: only Spark is left out (the
shards run in the sorter's tick thread). Objects are in memory, or in a store of the test."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from support import plain_http
from support.ahead_clock import AheadClock
from support.meta_database import database_url
from support.platform import free_port
from support.sorter_world import InlineRunner
from support.waiting import PATIENCE_S, eventually
from tistream.clock import SystemClock
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.service.http.app import new_app
from tistream.service.ids import random_id
from tistream.service.worker import Loop
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.dispatcher import StoreList
from tistream.wire.meta import Notification
from tistream.wire.sorter import TaskList
from tistream_dispatcher.app import build_app as build_dispatcher
from tistream_dispatcher.settings import CollectSettings, DispatcherSettings
from tistream_meta.app import build_app as build_meta
from tistream_meta.owner.server import MetaServer
from tistream_meta.settings import MetaSettings
from tistream_sorter import routes as sorter_routes
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.assignment import TaskRules, coming_tasks, seal_orders, wanted_tasks
from tistream_sorter.node.base_converter import BaseConverter, ListedBackfill
from tistream_sorter.node.node import SorterNode
from tistream_sorter.node.progress import ProgressFeed
from tistream_sorter.task.task_machine import TickLimits
from tistream_sorter.upkeep.shards import CutRules

CLOCK = SystemClock()
LOST_MS = 100_000  # more than any thread stalls: it passes where a test says so (`World.long_silence`)
LEASE_MS = 60_000  # the same
ROUTES_WAIT_MS = 1_000
TICK_MS = 100  # files wake the loop
NO_BACKFILL_MS = 1_000  # pause between two looks for backfills while there are none
LONG_LEASE_MS = 600_000  # longer than the time that passes there


class Server:
    """One app on a port of its own; `stop` is abrupt enough for a crash, since nothing is flushed at the end."""

    def __init__(self, app: FastAPI, port: int = 0, send_buffer: int | None = None) -> None:
        """`send_buffer`: bytes of an answer that the kernel takes while its client reads nothing."""
        self.app = app
        # A connection that its client keeps is not closed by the server meanwhile, however long a test stands still.
        config = uvicorn.Config(
            app,
            host="127.0.0.1",
            port=port,
            log_config=None,
            timeout_graceful_shutdown=0,
            timeout_keep_alive=int(PATIENCE_S),
        )
        self._server = uvicorn.Server(config)
        listener = config.bind_socket()
        if send_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()
        eventually(lambda: self._server.started)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End it; its port is free again."""
        self.app.state.stopping.set()
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def never_superseded() -> None:
    """A stand-in for the end of a process, which would end the test here."""
    raise AssertionError("superseded by another process of the same name")


class SorterProcess:
    """A sorter without Spark: membership, assignment and ticks as its app has them."""

    def __init__(self, world: World, name: str, tick: bool = True) -> None:
        self._world, self._name = world, name
        limits = TickLimits(1 << 28, 1_000, 4_096, CutRules(1, 1 << 30))
        nonces = random.Random(name + str(time.monotonic_ns()))
        self.node = SorterNode(
            MeasuredObjectStore(world.objects),
            InlineRunner(world.objects),
            limits,
            CLOCK,
            lambda: f"{nonces.getrandbits(64):016x}",
            SorterMetrics(CollectorRegistry()),
        )
        self._version = -1
        self._meta = MetaClient(world.http, world.meta.url)
        app = new_app("sorter", ready=lambda: None, registry=CollectorRegistry())
        app.state.node, app.state.clock, app.state.node_id = self.node, CLOCK, name
        app.state.progress = feed = ProgressFeed(random_id(), self.node.tasks, CLOCK)
        self.node.on_tick = feed.look
        app.include_router(sorter_routes.router)
        self.server = Server(app)
        self._membership = Membership(
            self._meta,
            name,
            "sorter",
            self.server.url,
            instance=random_id(),
            end=never_superseded,
            tasks=self.node.reports,
        )
        self._bases = BaseConverter(
            MeasuredObjectStore(world.objects),
            InlineRunner(world.objects),
            CLOCK,
            lambda: f"{nonces.getrandbits(64):016x}",
            SorterMetrics(CollectorRegistry()),
        )
        bodies = {
            self._membership.beat: 20,
            self._assign: 20,
            **({self._tick: TICK_MS, self._convert_bases: 200} if tick else {}),
        }
        self._loops = [
            Loop(body.__name__, body, interval_ms=every_ms, backoff_max_ms=100).start()
            for body, every_ms in bodies.items()
        ]
        if tick:
            self.node.wake = next(loop for loop in self._loops if loop.name == self._tick.__name__).wake

    def _assign(self) -> None:
        registered = self._membership.registered
        if registered is None:
            return
        table = self._meta.routes(self._version, wait_ms=ROUTES_WAIT_MS)
        rules = TaskRules(keep_index_keys=False, checkpoint_every=64)
        me = self._name, registered.start_epoch
        complete = self.node.assign(wanted_tasks(table, *me, rules), seal_orders(table, *me, rules))
        self.node.prepare(coming_tasks(table, *me, rules))
        if complete:
            self._version = table.version

    def _tick(self) -> int | None:
        return 0 if self.node.tick() else None

    def _convert_bases(self) -> int | None:
        if not self.node.tasks():
            return None
        running = self._meta.running_backfills().backfills
        self._bases.set_backfills(
            ListedBackfill(TenantKey(row.cluster_id, row.tenant_id), row.backfill_id, old_values=not row.log_backup)
            for row in running
        )
        if not running:
            return NO_BACKFILL_MS
        return 0 if self._bases.convert([task for task in self.node.tasks() if task.stopped is None]) else None

    def joined(self) -> SorterProcess:
        """Wait until the meta server knows it."""
        eventually(lambda: self._membership.registered is not None)
        return self

    def take_nothing_more(self) -> None:
        """It is there, and follows no routes: what is to come to it does not."""
        self._end(self._assign)

    def convert_nothing(self) -> None:
        """Chunks of backfills stay what they are."""
        self._end(self._convert_bases)

    def _end(self, body: Callable[[], object]) -> None:
        for loop in self._loops:
            if loop.name == body.__name__:
                assert loop.stop(PATIENCE_S)

    def stop(self) -> None:
        """End the process; its memory is lost."""
        for loop in self._loops:
            assert loop.stop(PATIENCE_S)
        self.server.stop()


class World:
    """One tenant's pipeline up to the pool."""

    def __init__(
        self,
        directory: Path,
        ranges: int,
        lease_ms: int = LEASE_MS,
        lost_ms: int = LOST_MS,
        objects: ObjectStore | None = None,
    ) -> None:
        self.objects = MemoryObjectStore() if objects is None else objects
        self.http = HttpClient(deadline_s=PATIENCE_S)
        self.meta_clock = AheadClock()
        self._directory, self._ranges = directory, ranges
        self._lease_ms, self._lost_ms = lease_ms, lost_ms
        self.meta = self.start_meta()
        self.sorter = SorterProcess(self, "sorter-1")
        self.dispatchers: dict[str, Server] = {}
        self.start_dispatcher()
        self.client = MetaClient(self.http, self.meta.url)

    def start_meta(self, port: int = 0) -> Server:
        """On the same port after the first time, as its peers expect."""
        settings = MetaSettings(
            port=port,
            database_url=database_url(self._directory),
            ranges_per_tenant=self._ranges,
            check_ms=100,
            suspect_ms=self._lost_ms // 2,
            lost_ms=self._lost_ms,
            lease_ms=self._lease_ms,
            erase_quiet_ms=100,
        )
        server = Server(build_meta(settings, self.objects, self.meta_clock), port)
        eventually(lambda: plain_http.get(f"{server.url}/readyz").status_code == 200)
        return server

    def start_dispatcher(self, name: str = "dispatcher-1") -> None:
        port = free_port()
        settings = DispatcherSettings(
            node_id=name,
            port=port,
            meta_url=self.meta.url,
            poll_min_ms=20,
            poll_max_ms=100,
            discover_ms=50,
            resync_ms=100,
            collect=CollectSettings(keep_ms=0, every_ms=100),
        )
        self.dispatchers[name] = Server(build_dispatcher(settings, self.objects, CLOCK, end=never_superseded), port)

    def stop_dispatcher(self, name: str) -> None:
        self.dispatchers.pop(name).stop()

    def restart_dispatcher(self) -> None:
        self.stop_dispatcher("dispatcher-1")
        self.start_dispatcher()

    def restart_sorter(self) -> None:
        self.sorter.stop()
        self.sorter = SorterProcess(self, "sorter-1")

    def restart_meta(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        port = self.meta.port
        self.meta.stop()
        meanwhile()
        self.meta = self.start_meta(port)

    def long_silence(self) -> None:
        """So much time passes that dispatchers that were stopped are lost; everybody else is heard meanwhile. The lease
        must be longer than that."""
        assert self._lease_ms > 2 * self._lost_ms
        server: MetaServer = self.meta.app.state.server
        server.hold_lease()  # as its loop does now and then
        for _ in range(2):
            self.meta_clock.advance(self._lost_ms * 6 // 10)
            self.all_heard()
        there = {"sorter-1", *self.dispatchers}
        eventually(lambda: {node.node_id for node in self.client.nodes().nodes if node.state != "lost"} == there)

    def all_heard(self) -> None:
        """Wait until the sorter and the dispatchers have each been heard, from now on."""
        server: MetaServer = self.meta.app.state.server
        since_ms = self.meta_clock.monotonic_ms()
        names = ("sorter-1", *self.dispatchers)
        eventually(lambda: all(server.owned().heartbeats._heard_ms.get(name, 0) > since_ms for name in names))

    def notify(self, tenant: TenantKey, store_id: int, ts: int) -> None:
        """Announce a file; a lost announcement costs latency only."""
        with suppress(TiStreamError):
            self.client.notify(
                Notification(
                    cluster_id=tenant.cluster_id, tenant_id=tenant.tenant_id, store_id=str(store_id), ts=str(ts)
                )
            )

    def tasks(self) -> TaskList:
        return self.http.get(f"{self.sorter.server.url}/v1/tasks", TaskList)

    def stores(self, name: str = "") -> StoreList:
        """The store statuses of one dispatcher, or of all."""
        names = [name] if name else sorted(self.dispatchers)
        lists = [self.http.get(f"{self.dispatchers[one].url}/v1/stores", StoreList) for one in names]
        return StoreList(
            node_id=",".join(names),
            stores=[store for one in lists for store in one.stores],
            holds=[hold for one in lists for hold in one.holds],
        )

    def readers(self) -> dict[int, list[str]]:
        """For each store, the dispatchers that read it."""
        found: dict[int, list[str]] = {}
        for name in sorted(self.dispatchers):
            for store in self.stores(name).stores:
                found.setdefault(store.store_id, []).extend([name] if store.read else [])
        return found

    def progress_ts(self, tenant: TenantKey) -> int:
        """The lowest progress_ts of the tenant's tasks; 0 until all of them are held."""
        tasks = [task for task in self.tasks().tasks if task.tenant_id == tenant.tenant_id]
        assert [task.stopped for task in tasks if task.stopped] == []
        return min((task.progress_ts for task in tasks), default=0) if len(tasks) == self._ranges else 0

    def stop(self) -> None:
        for name in list(self.dispatchers):
            self.stop_dispatcher(name)
        self.meta.app.state.stopping.set()  # nobody's wait for routes holds the end up
        self.sorter.stop()
        self.meta.stop()
        self.http.close()


@contextmanager
def running(
    directory: Path,
    ranges: int = 1,
    lease_ms: int = LEASE_MS,
    lost_ms: int = LOST_MS,
    objects: ObjectStore | None = None,
) -> Iterator[World]:
    """A running World, which is stopped at the end of the `with` block."""
    world = World(directory, ranges, lease_ms, lost_ms, objects)
    try:
        yield world
    finally:
        world.stop()
