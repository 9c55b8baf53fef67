"""The sorter that receives a tenant's feed, and the feed of one store."""

from __future__ import annotations

import httpx
from prometheus_client import CollectorRegistry

from support.tiny_tenant import TinyTenant
from tistream.clock import ManualClock
from tistream.storage.object_store import ObjectStore
from tistream.wire import file_batch
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.meta import TaskRoute, TenantRoute
from tistream.wire.sorter import Chain, FilesReceipt, TaskList, TaskStatus
from tistream_dispatcher.delivery.delivery import ResyncPauses
from tistream_dispatcher.delivery.window import WindowLimits
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.stores.pacing import PollSettings
from tistream_dispatcher.stores.read_ahead import ByteBudget
from tistream_dispatcher.stores.store_feed import StoreFeed
from tistream_dispatcher.tenant.share import Share
from tistream_dispatcher.tenant.tenant_feed import TenantFeed


class Sorter:
    """A sorter with one task that accepts whatever it is sent, unless it is busy."""

    def __init__(self, *, busy: bool = False, durable: bool = False) -> None:
        self.busy = busy
        self.durable = durable  # whether what was received is in a manifest at once
        self.received: dict[int, list[Chain]] = {}
        self.taken: list[tuple[int, int]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/files":
            if self.busy:
                return httpx.Response(503, json={"error": "busy", "detail": "no room"})
            for ref in file_batch.decode(request.content).files:
                self.received[ref.store_id] = [Chain(first_ts=ref.chain_ts, at_ts=ref.ts)]
                self.taken.append((ref.store_id, ref.ts))
            return httpx.Response(200, content=FilesReceipt(received={1: self.received}).model_dump_json().encode())
        status = TaskStatus(
            cluster_id="7",
            tenant_id="tiny",
            task_id=1,
            task_epoch=1,
            start_key="",
            end_key="",
            manifest=1,
            checkpoint=0,
            flushed_ts=100,
            progress_ts=100,
            received=self.received,
            durable=self.received if self.durable else {},
            pending_rows=0,
            pending_bytes=0,
            counters={},
        )
        return httpx.Response(200, content=TaskList(node_id="s", tasks=[status]).model_dump_json().encode())


def new_feed(objects: ObjectStore, sorter: Sorter, clock: ManualClock, *room: ByteBudget) -> TenantFeed:
    """Of one tenant with one task, which `sorter` has; `room` as TenantFeed has it."""
    feed = TenantFeed(
        TinyTenant.tenant,
        objects,
        SorterClient(HttpClient(transport=httpx.MockTransport(sorter))),
        clock,
        DispatcherMetrics(CollectorRegistry()),
        WindowLimits(99, 1 << 20, 99, 1 << 20),
        PollSettings(100, 1_000, 1_000, 60_000, 600_000),
        ResyncPauses(1_000, 60_000),
        lambda: None,
        None,
        *room,
    )
    task = TaskRoute(task_id=1, start_key="", end_key="", task_epoch=1, sorter_node="s", sorter_url="http://s")
    route = TenantRoute(cluster_id="7", tenant_id="tiny", snapshot_ts=100, tasks=[task], problem=None)
    feed.set_route(1, route, Share.of(route, "dispatcher"))
    return feed


def handed_on(store: StoreFeed) -> list[int]:
    """Take all files that the feed hands on; returns their ts."""
    out = []
    while (found := store.next_file()) is not None:
        store.advance(found[0])
        out.append(found[0].file.ts)
    return out
