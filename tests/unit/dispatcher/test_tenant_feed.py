"""One step of a tenant's feed: what is there goes to its task, and one store's trouble stays its own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from support.tiny_tenant import TinyTenant, watermark
from tistream.clock import ManualClock
from tistream.errors import InvalidRequest, TiStreamError, Unavailable
from tistream.model.span import KeySpan
from tistream.storage.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectInfo
from tistream.wire import file_batch
from tistream.wire.client import HttpClient
from tistream.wire.meta import TaskRoute, TenantRoute
from tistream.wire.sorter import Chain, FilesReceipt, TaskList, TaskStatus
from tistream.wire.sorter_client import SorterClient
from tistream_dispatcher.delivery import Resync
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.pacing import PollSettings
from tistream_dispatcher.router import Router, TaskSpan
from tistream_dispatcher.tenant_feed import TenantFeed
from tistream_dispatcher.window import Limits

TINY = TinyTenant()


class Group:
    """A row group's key bounds."""

    def __init__(self, key_min: bytes, key_max: bytes) -> None:
        self.index, self.key_min, self.key_max = 0, key_min, key_max


class TroubledStore(MemoryObjectStore):
    """Raises `error` wherever a key of store 2 is asked for."""

    error: TiStreamError | None = None

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        if self.error is not None and "/store-2/" in key:
            raise self.error
        return super().get_tail(key, length)

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        if self.error is not None and "/store-2/" in prefix:
            raise self.error
        return super().list_after(prefix, after, delimiter)


class Sorter:
    """The far end of the wire: one task that takes whatever it is sent."""

    def __init__(self) -> None:
        self.received: dict[int, list[Chain]] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/files":
            for ref in file_batch.decode(request.content).files:
                self.received[ref.store_id] = [Chain(first_ts=ref.chain_ts, at_ts=ref.ts)]
            receipt = FilesReceipt(received={1: self.received})
            return httpx.Response(200, content=receipt.model_dump_json().encode())
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
            durable={},
            pending_rows=0,
            pending_bytes=0,
            counters={},
        )
        return httpx.Response(200, content=TaskList(node_id="s", tasks=[status]).model_dump_json().encode())


@pytest.mark.parametrize("error", [Unavailable("slow down"), InvalidRequest("a link leads out of the store")])
def test_trouble_with_one_store_leaves_the_others_alone(error: TiStreamError) -> None:
    objects, sorter, clock = TroubledStore(), Sorter(), ManualClock(1_000)
    feed = TenantFeed(
        TINY.tenant,
        objects,
        SorterClient(HttpClient(transport=httpx.MockTransport(sorter))),
        clock,
        DispatcherMetrics(CollectorRegistry()),
        Limits(99, 1 << 20, 99, 1 << 20),
        PollSettings(100, 1_000, 1_000, 60_000, 600_000),
        Resync(1_000, 60_000),
    )
    task = TaskRoute(
        task_id=1, start_key="", end_key="", task_epoch=1, sorter_node="sorter-1", sorter_url="http://sorter-1"
    )
    feed.set_route(1, TenantRoute(cluster_id="7", tenant_id="tiny", snapshot_ts=100, tasks=[task], problem=None))
    for store in (1, 2, 3):
        file = TINY.file(store, 200, 0, [], watermark(6, 5, 150, base_ts=100))
        objects.put(file.key, file.data)
    objects.error = error
    for _ in range(4):
        feed.step()
        clock.advance(1_000)
    assert sorted(sorter.received) == [1, 3]
    _, holds = feed.status()
    assert [(hold.stage, hold.store_id, hold.reason) for hold in holds] == [("dispatch", "2", str(error))]
    objects.error = None
    for _ in range(4):
        feed.step()
        clock.advance(1_000)
    assert sorted(sorter.received) == [1, 2, 3]
    assert feed.status()[1] == ()


def test_a_row_group_that_ends_at_a_tasks_very_first_key_goes_to_it_too() -> None:
    router = Router([TaskSpan(1, KeySpan(b"", b"m")), TaskSpan(2, KeySpan(b"m", b""))])
    assert router.row_groups([Group(b"a", b"m")]) == {1: (0,), 2: (0,)}
    assert router.row_groups([Group(b"a", b"l\xff")]) == {1: (0,)}
    assert router.row_groups([Group(b"m", b"m")]) == {2: (0,)}
