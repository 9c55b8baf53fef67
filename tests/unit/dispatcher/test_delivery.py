"""What a sorter is believed: what it holds under the epoch that the routes name, and nothing that an older one says."""

from __future__ import annotations

import httpx

from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.wire.client import HttpClient
from tistream.wire.sorter import Chain, TaskList, TaskStatus
from tistream.wire.sorter_client import SorterClient
from tistream_dispatcher.delivery import Delivery
from tistream_dispatcher.receivers import Receivers
from tistream_dispatcher.window import Limits, Window

TENANT = TenantKey("7", "acme")
URL = "http://sorter-1"


def status(epoch: int) -> TaskStatus:
    return TaskStatus(
        cluster_id="7",
        tenant_id="acme",
        task_id=1,
        task_epoch=epoch,
        start_key="",
        end_key="",
        manifest=5,
        checkpoint=0,
        flushed_ts=900,
        progress_ts=900,
        received={1: [Chain(first_ts=10, at_ts=800)]},
        durable={1: [Chain(first_ts=10, at_ts=800)]},
        pending_rows=0,
        pending_bytes=0,
        counters={},
        holds=[],
        stopped=None,
    )


def test_what_an_earlier_holder_has_received_is_not_what_the_task_has() -> None:
    """The sorter started again and has not claimed anew: what it had queued is lost, and must be sent again."""
    answers = iter([status(3), status(4)])

    def sorter(_: httpx.Request) -> httpx.Response:
        body = TaskList(node_id="sorter-1", tasks=[next(answers)])
        return httpx.Response(200, content=body.model_dump_json().encode())

    clock, receivers = ManualClock(1_000), Receivers()
    window = Window(Limits(99, 1 << 20, 99, 1 << 20))
    sorters = SorterClient(HttpClient(transport=httpx.MockTransport(sorter)))
    delivery = Delivery(TENANT, sorters, receivers, window, clock, resync_ms=1_000)
    delivery.set_tasks(1, {1: (URL, 4)})
    delivery.sync()
    assert receivers.received == {}
    assert receivers.flushed_ts() == 0
    clock.advance(1_000)
    delivery.sync()
    assert receivers.at(1, 1, 10) == 800
    assert receivers.flushed_ts() == 900
