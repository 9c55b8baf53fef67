from tistream.model.span import KeySpan
from tistream.schema.tidb.meta_change import DDL_JOB_SPAN
from tistream.wire.meta import TaskRoute, TenantRoute
from tistream_schema.expected_tasks import TaskPromise, promises, schema_tasks, uncovered_span


def route(*cuts: bytes, skip: int | None = None) -> TenantRoute:
    bounds = [b"", *cuts, b""]
    tasks = [
        TaskRoute(
            task_id=at + 1,
            start_key=bounds[at].hex(),
            end_key=bounds[at + 1].hex(),
            task_epoch=3,
            sorter_node="s",
            sorter_url="http://s",
        )
        for at in range(len(bounds) - 1)
        if at != skip
    ]
    return TenantRoute(cluster_id="7", tenant_id="acme", snapshot_ts=5, tasks=tasks)


def test_one_task_has_it_all() -> None:
    tasks = schema_tasks(route())
    assert [task.task_id for task in tasks] == [1]
    assert uncovered_span(tasks) is None


def test_only_tasks_that_overlap_the_schema_are_waited_for() -> None:
    user_table = b"t" + (100 + 2**63).to_bytes(8, "big")
    cuts = (b"m\x50", b"n", user_table, DDL_JOB_SPAN.start + b"\x01", DDL_JOB_SPAN.end)
    tasks = schema_tasks(route(*cuts))
    assert [task.task_id for task in tasks] == [1, 2, 4, 5]
    assert uncovered_span(tasks) is None


def test_a_missing_task_is_a_gap() -> None:
    assert uncovered_span([]) == KeySpan(b"m", b"n")
    assert uncovered_span(schema_tasks(route(b"m\x50", b"t", skip=1))) == KeySpan(b"m\x50", b"n")
    assert uncovered_span(schema_tasks(route(b"m\x50", b"t", skip=2))) == DDL_JOB_SPAN


def test_an_older_holder_is_not_listened_to() -> None:
    tasks = schema_tasks(route())
    fields = {
        **{"cluster_id": "7", "tenant_id": "acme", "start_key": "", "end_key": "", "checkpoint": 0, "flushed_ts": 5},
        **{"received": {}, "durable": {}, "pending_rows": 0, "pending_bytes": 0, "counters": {}},
    }
    from tistream.wire.sorter import TaskStatus

    def status(epoch: int) -> dict[int, TaskStatus]:
        return {1: TaskStatus(task_id=1, task_epoch=epoch, manifest=9, progress_ts=50, **fields)}

    assert promises(tasks, status(2)) == {}
    assert promises(tasks, status(3)) == {1: TaskPromise(9, 50)}
    assert promises(tasks, {}) == {}
