"""One question to each sorter for the progress of all tenants."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client import CollectorRegistry

from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.sorter import ProgressPage, TaskList, TaskProgress, TaskStatus
from tistream_schema.expected_tasks import SchemaTask
from tistream_schema.metrics import SchemaMetrics
from tistream_schema.sorter_progress import WAIT_MS, SorterProgress
from tistream_sorter.node.progress import ProgressFeed
from tistream_sorter.state.task_state import TaskIdentity, first_state
from tistream_sorter.task.task import Task
from tistream_sorter.task.task_machine import TickLimits
from tistream_sorter.task.tick import CutRules

URL = "http://sorter-1"
LIMITS = TickLimits(1 << 20, 10_000, 99, CutRules(1, 1 << 20))


def tenant(number: int) -> TenantKey:
    return TenantKey("7", f"t{number}")


def task(number: int, epoch: int = 1) -> Task:
    return Task(first_state(TaskIdentity(tenant(number), number, WHOLE, 100, epoch), 1), LIMITS)


def moved(one: Task) -> None:
    """As a commit does: another state."""
    with one.turn() as turn:
        turn.state = first_state(one.state.identity, one.state.number + 1)


class Sorter:
    """A sorter's feed behind HTTP, and what it was asked."""

    def __init__(self, count: int) -> None:
        self.start(count)
        self.told: list[int] = []  # how many tasks each answer told of
        self.silent = False
        self.old = False  # of a version that has no progress to tell, but tasks

    def start(self, count: int, boot: str = "first") -> None:
        self.tasks = [task(number) for number in range(count)]
        self.feed = ProgressFeed(boot, lambda: self.tasks, ManualClock())

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.silent:
            raise httpx.ConnectError("nobody there")
        if self.old:
            return self.tasks_only(request)
        query = request.url.params
        assert int(query["wait_ms"]) == WAIT_MS
        page = self.feed.wait(query["boot"], int(query["after"]), 0)
        self.told.append(len(page.tasks))
        return httpx.Response(200, content=page.model_dump_json().encode())

    def tasks_only(self, request: httpx.Request) -> httpx.Response:
        if request.url.path != "/v1/tasks":
            return httpx.Response(404, json={"detail": "Not Found"})
        told = [status_of(one.state.identity, one.state.number) for one in self.tasks]
        return httpx.Response(200, content=TaskList(node_id="s", tasks=told).model_dump_json().encode())


def status_of(identity: TaskIdentity, number: int) -> TaskStatus:
    return TaskStatus(
        cluster_id=identity.tenant.cluster_id,
        tenant_id=identity.tenant.tenant_id,
        task_id=identity.task_id,
        task_epoch=identity.task_epoch,
        start_key="",
        end_key="",
        manifest=number,
        checkpoint=0,
        flushed_ts=100,
        progress_ts=100,
        received={},
        durable={},
        pending_rows=0,
        pending_bytes=0,
        counters={},
    )


@pytest.fixture
def sorter() -> Sorter:
    return Sorter(50)


@pytest.fixture
def progress(sorter: Sorter) -> SorterProgress:
    client = SorterClient(HttpClient(transport=httpx.MockTransport(sorter)))
    return SorterProgress(client, SchemaMetrics(CollectorRegistry()))


def manifests(progress: SorterProgress, *numbers: int) -> dict[int, int]:
    tasks = [SchemaTask(number, WHOLE, 1, URL) for number in numbers]
    return {task_id: told.manifest for task_id, told in progress.of(tasks).items()}


def test_only_what_moved_is_told_again(sorter: Sorter, progress: SorterProgress) -> None:
    assert progress.poll(URL) == {tenant(number) for number in range(50)}
    assert progress.poll(URL) == set()
    moved(sorter.tasks[7])
    assert progress.poll(URL) == {tenant(7)}
    assert sorter.told == [50, 0, 1]
    assert manifests(progress, 6, 7) == {6: 1, 7: 2}


def test_a_task_that_cannot_advance_wakes_no_tenant(sorter: Sorter, progress: SorterProgress) -> None:
    progress.poll(URL)
    sorter.tasks[7].fail("the key is disabled")
    assert progress.poll(URL) == set()
    assert sorter.told == [50, 1]
    moved(sorter.tasks[7])
    assert progress.poll(URL) == {tenant(7)}


def test_a_sorter_that_started_again_tells_everything(sorter: Sorter, progress: SorterProgress) -> None:
    progress.poll(URL)
    sorter.start(3, "second")
    moved(sorter.tasks[2])
    assert progress.poll(URL) == {tenant(0), tenant(1), tenant(2)}
    assert manifests(progress, 2, 40) == {2: 2}  # what it does not hold any more is not its to tell


def test_of_a_silent_sorter_nothing_is_told_until_it_answers(sorter: Sorter, progress: SorterProgress) -> None:
    progress.poll(URL)
    sorter.silent = True
    assert len(progress.poll(URL)) == 50  # each must look into its manifests now
    assert progress.poll(URL) == set()
    assert manifests(progress, 1) == {}
    sorter.silent = False
    assert len(progress.poll(URL)) == 50
    assert manifests(progress, 1) == {1: 1}


def test_a_sorter_of_an_older_version_is_asked_for_its_tasks(sorter: Sorter, progress: SorterProgress) -> None:
    sorter.old = True
    assert len(progress.poll(URL)) == 50
    assert progress.poll(URL) == set()
    moved(sorter.tasks[7])
    assert progress.poll(URL) == {tenant(7)}
    assert manifests(progress, 6, 7) == {6: 1, 7: 2}
    del sorter.tasks[6]
    progress.poll(URL)
    assert manifests(progress, 6, 7) == {7: 2}
    sorter.old = False  # upgraded
    assert len(progress.poll(URL)) == 49
    assert progress.poll(URL) == set()


def test_at_most_so_many_requests_wait_at_sorters() -> None:
    waits = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        waits.append(request.url.params.get("wait_ms", "0"))
        if len(waits) < 4:  # the next sorter is asked while this one waits
            assert progress.poll(f"http://sorter-{len(waits)}") == set()
        return httpx.Response(200, content=ProgressPage(boot="b", version=1, tasks=[]).model_dump_json().encode())

    client = SorterClient(HttpClient(transport=httpx.MockTransport(answer)))
    progress = SorterProgress(client, SchemaMetrics(CollectorRegistry()), waiting_max=2)
    progress.poll(URL)
    assert waits == [str(WAIT_MS), str(WAIT_MS), "0", "0"]
    progress.poll(URL)
    assert waits[4:] == [str(WAIT_MS)]


def test_two_readers_of_one_feed_do_not_take_each_others_news() -> None:
    sorter = Sorter(2)
    first = sorter.feed.wait("", 0, 0)
    moved(sorter.tasks[0])
    assert [told.task_id for told in sorter.feed.wait(first.boot, first.version, 0).tasks] == [0]
    assert [told.task_id for told in sorter.feed.wait(first.boot, first.version, 0).tasks] == [0]
    assert len(sorter.feed.wait("another process", first.version, 0).tasks) == 2


def test_a_page_says_what_a_promise_needs() -> None:
    (told,) = ProgressFeed("first", lambda: [task(0, epoch=5)], ManualClock()).wait("", 0, 0).tasks
    wanted = TaskProgress(
        cluster_id="7", tenant_id="t0", task_id=0, task_epoch=5, manifest=1, flushed_ts=100, progress_ts=100
    )
    assert told == wanted
    assert ProgressPage.model_validate_json(ProgressPage(boot="b", version=1, tasks=[told]).model_dump_json()).tasks
