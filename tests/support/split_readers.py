"""The readers of a tenant whose tasks are split and merged: the schema registry's follower and the API's view and
pulls, each with routes that lag behind, and all that they ask over HTTP."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
from prometheus_client import CollectorRegistry

from support.simulated import Run
from support.split_world import SplitWorld
from tistream import concurrency
from tistream.clock import ManualClock
from tistream.follow.tenant_view import TenantView
from tistream.pool.footers import FooterCache
from tistream.read.cursor import Scope
from tistream.read.group_cache import GroupCache
from tistream.read.scan import Budget
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.schema_client import SchemaClient, SchemaReplica
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.meta import TenantRoute
from tistream.wire.sorter import TaskList
from tistream_api.admission.memory_budget import MemoryBudget
from tistream_api.admission.tenant_limits import TenantLimits
from tistream_api.admission.token_bucket import EnforcedLimits
from tistream_api.metrics import ApiMetrics
from tistream_api.pull.decode_slots import DecodeSlots
from tistream_api.pull.start import Pulls
from tistream_api.request.params import PullParams
from tistream_schema.durable_log import DurableLog
from tistream_schema.follower import SchemaFollower
from tistream_schema.keeping import LogKeepingRules
from tistream_schema.tenant_schema import TenantSchema

Event = dict[str, Any]


class Readers:
    """One tenant's registry and API server, and a consumer that pulls from the beginning, page by page. An answer that
    is under way stays so while tasks are sealed."""

    def __init__(self, world: SplitWorld, upstream: Run, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self._routes = [world.route()]
        self._seen = {"schema": 0, "api": 0}  # how new a route each has
        world.objects.put(upstream.schema_snap.key, upstream.schema_snap.data)
        tenant = upstream.tenant
        self.schema = TenantSchema(tenant)
        durable = DurableLog(world.objects, tenant, "aa", lambda _seconds: None)
        keeping = LogKeepingRules(quiet_segments=100)
        self._follower = SchemaFollower(world.objects, self.schema, durable, FooterCache(), keeping, lambda: 0)
        http = HttpClient(transport=httpx.MockTransport(self._answer))
        metrics = ApiMetrics(CollectorRegistry())
        clock = ManualClock(world.clock.now_ms())
        self.view = TenantView(
            self._routes[0],
            world.objects,
            GroupCache(world.objects, 1 << 24),
            SorterClient(http),
            SchemaReplica(SchemaClient(http, lambda: "http://schema"), tenant),
            clock,
            concurrency.new_event(),
            metrics.undecodable,
        )
        limits = TenantLimits(clock, lambda _: EnforcedLimits(), 8)
        self._pulls = Pulls(
            clock, Budget(), threading.Semaphore(1), limits, metrics, DecodeSlots(8, clock), MemoryBudget(0, clock)
        )
        self._scope = Scope(tenant)
        self._start_ts = upstream.snapshot_ts
        self._cursor: str | None = None
        self._page: Iterator[Any] | None = None
        self._text = b""
        self.events: list[Event] = []
        self.resolved_ts = 0
        self.reading_across = 0  # answers under way while tasks were sealed

    def step(self, *, newest: bool = False) -> None:
        """Everybody looks once, in some order, with a route as new as it happens to be."""
        if self._world.route() != self._routes[-1]:
            self._routes.append(self._world.route())
        for act in self._rng.sample([self._follow, self._refresh, self._read], 3):
            act(newest=newest)

    def _route(self, who: str, *, newest: bool) -> TenantRoute:
        last = len(self._routes) - 1
        self._seen[who] = last if newest else self._rng.randint(self._seen[who], last)
        return self._routes[self._seen[who]]

    def _follow(self, *, newest: bool) -> None:
        told = {task.task_id: task.status(0, 0) for task in self._world.node.tasks()}
        before = self.schema.resolved_ts or 0
        self._follower.step(self._route("schema", newest=newest), told)
        assert (self.schema.resolved_ts or 0) >= before
        assert self.schema.holds == []

    def _refresh(self, *, newest: bool) -> None:
        before = self.view.resolved_ts(), self.view.flushed_ts()
        self.view.replace_route(self._route("api", newest=newest))
        self.view.refresh()
        assert self.view.resolved_ts() >= before[0]
        assert self.view.flushed_ts() >= before[1]

    def _read(self, *, newest: bool) -> None:
        """A few pieces of a page, or all that is left of it."""
        if not self.view.resolved_ts():
            return
        if self._page is None:
            start_ts = None if self._cursor else self._start_ts
            limit = self._rng.choice([3, 40, 10_000])
            asked = PullParams(start_ts, self._cursor, None, limit, 0, False)
            self._page = iter(self._pulls.answer(self.view, self._scope, asked, lambda: True))
            self._sealed = len(self._world.sealed)
        for _ in range(1 << 30 if newest else self._rng.choice([1, 2, 100])):
            piece = next(self._page, None)
            if piece is None:
                self._page = None
                self.reading_across += len(self._world.sealed) > self._sealed
                break
            self._take(bytes(piece))

    def _take(self, piece: bytes) -> None:
        *lines, self._text = (self._text + piece).split(b"\n")
        for line in lines:
            event = orjson.loads(line)
            if event["type"] in ("row", "ddl"):
                self.events.append(event)
            else:
                self._cursor = event["cursor"]
                if event["type"] == "resolved":
                    assert int(event["resolved_ts"]) >= self.resolved_ts
                    self.resolved_ts = int(event["resolved_ts"])

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "schema":
            query = {name: int(value) for name, value in request.url.params.items()}
            if self.schema.resolved_ts is None:
                return httpx.Response(503)
            read = self.schema.read_log(query["after"], 0, 0, stopping=lambda: True, now_ms=lambda: 0)
            head = {
                name: getattr(read, name) for name in ("log_id", "snapshot_ts", "resolved_ts", "next_after", "more")
            }
            body = orjson.dumps(head)[:-1] + b',"records":[' + b",".join(read.lines) + b"]}"
            return httpx.Response(200, content=body)
        tasks = [task.status(0, 0) for task in self._world.node.tasks()]
        return httpx.Response(200, content=TaskList(node_id="sorter", tasks=tasks).model_dump_json().encode())
