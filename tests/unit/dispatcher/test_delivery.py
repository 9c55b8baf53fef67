"""What a sorter is believed: what it holds under the epoch that the routes name, and nothing that an older one says."""

from __future__ import annotations

from itertools import pairwise

import httpx

from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.sorter import Chain, TaskList, TaskStatus
from tistream_dispatcher.delivery.delivery import Delivery, ResyncPauses
from tistream_dispatcher.delivery.receivers import Receivers
from tistream_dispatcher.delivery.window import FileWindow, WindowLimits

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
    window = FileWindow(WindowLimits(99, 1 << 20, 99, 1 << 20))
    sorters = SorterClient(HttpClient(transport=httpx.MockTransport(sorter)))
    delivery = Delivery(TENANT, sorters, receivers, window, clock, ResyncPauses(1_000, 8_000))
    delivery.set_tasks(1, {1: (URL, 4)})
    delivery.sync()
    assert receivers.received == {}
    assert receivers.flushed_ts() == 0
    clock.advance(1_000)
    delivery.sync()
    assert receivers.at(1, 1, 10) == 800
    assert receivers.flushed_ts() == 900


def test_what_is_in_manifests_is_asked_about_ever_less_until_something_is_sent() -> None:
    asked: list[int] = []
    answers = [status(4)]

    def sorter(_: httpx.Request) -> httpx.Response:
        asked.append(clock.monotonic_ms())
        body = TaskList(node_id="sorter-1", tasks=[answers[-1]])
        return httpx.Response(200, content=body.model_dump_json().encode())

    clock, receivers = ManualClock(1_000), Receivers()
    window = FileWindow(WindowLimits(99, 1 << 20, 99, 1 << 20))
    sorters = SorterClient(HttpClient(transport=httpx.MockTransport(sorter)))
    delivery = Delivery(TENANT, sorters, receivers, window, clock, ResyncPauses(1_000, 8_000))
    delivery.set_tasks(1, {1: (URL, 4)})

    def pauses(seconds: int) -> list[int]:
        asked.clear()
        for _ in range(seconds * 10):
            delivery.sync()
            clock.advance(100)
        return [after - before for before, after in pairwise(asked)]

    assert pauses(40) == [1_000, 2_000, 4_000, 8_000, 8_000, 8_000, 8_000]
    answers.append(status(4).model_copy(update={"received": {1: [Chain(first_ts=10, at_ts=850)]}}))
    pauses(9)
    assert set(pauses(5)) == {1_000}  # a manifest is still to come: what it received may be lost again
    twice = {1: [Chain(first_ts=10, at_ts=800), Chain(first_ts=950, at_ts=960)]}
    answers.append(status(4).model_copy(update={"received": twice, "durable": twice}))
    assert set(pauses(5)) == {1_000}  # the older chain is to be closed once all of its time is flushed


def test_what_all_tasks_have_made_durable_is_known_when_each_has_told_it_under_its_epoch() -> None:
    receivers = Receivers()
    of = {
        task: status(epoch).model_copy(update={"task_id": task, "flushed_ts": ts, "pointed": {}})
        for task, epoch, ts in ((1, 4, 900), (2, 7, 300))
    }
    receivers.set_status(of[1], 4)
    assert receivers.flushed_by_all([1, 2]) is None
    receivers.set_status(of[2], 8)
    assert receivers.flushed_by_all([1, 2]) is None, "of another epoch"
    receivers.set_status(of[2], 7)
    assert receivers.flushed_by_all([1, 2]) == 300
    assert receivers.flushed_by_all([1]) == 900
    receivers.forget(2)
    assert receivers.flushed_by_all([1, 2]) is None
    assert receivers.flushed_by_all([]) is None
