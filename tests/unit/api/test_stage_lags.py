"""How far each stage has come with a tenant, and the hour of it that is kept."""

from __future__ import annotations

from tistream.model.ids import TenantKey
from tistream.model.ts import from_physical_ms
from tistream.wire.dispatcher import StoreStatus
from tistream.wire.meta import StoreRoute, TaskRoute, TenantRoute
from tistream.wire.sorter import Chain, TaskStatus
from tistream_api.status.lag_history import LagHistory
from tistream_api.status.stage_lags import STAGES, UNKNOWN, stage_lags

NOW_MS = 1_700_000_000_000
ACME, OTHER = TenantKey("7", "acme"), TenantKey("7", "other")


def ts(ms_ago: int) -> int:
    return from_physical_ms(NOW_MS - ms_ago)


def route(tasks: int = 2, stores: int = 2) -> TenantRoute:
    spans = [
        TaskRoute(task_id=one, start_key="", end_key="", task_epoch=1, sorter_node="s", sorter_url="u")
        for one in range(1, tasks + 1)
    ]
    named = [StoreRoute(store_id=one, dispatcher_node="d") for one in range(1, stores + 1)]
    return TenantRoute(cluster_id="7", tenant_id="acme", snapshot_ts=1, tasks=spans, stores=named)


def store(store_id: int, ms_ago: int) -> StoreStatus:
    return StoreStatus(cluster_id="7", tenant_id="acme", store_id=store_id, chains=[], last_file_ts=ts(ms_ago))


def task(task_id: int, progress_ms_ago: int, **received_ms_ago: int) -> TaskStatus:
    """s1=500: of store 1 its sorter has the file of 500 ms ago."""
    received = {int(name[1:]): [Chain(first_ts=1, at_ts=ts(ago))] for name, ago in received_ms_ago.items()}
    return TaskStatus(
        cluster_id="7",
        tenant_id="acme",
        task_id=task_id,
        task_epoch=1,
        start_key="",
        end_key="",
        manifest=1,
        checkpoint=0,
        flushed_ts=ts(progress_ms_ago),
        progress_ts=ts(progress_ms_ago),
        received=received,
        durable={},
        pending_rows=0,
        pending_bytes=0,
        counters={},
    )


def lags(stores: list[StoreStatus], tasks: list[TaskStatus], schema_ts: int = 0, served_ts: int = 0) -> dict[str, int]:
    found = stage_lags(NOW_MS, route(), stores, {one.task_id: one for one in tasks}, schema_ts, served_ts)
    return dict(zip(STAGES, found, strict=True))


TWO_STORES = [store(1, 300), store(2, 900)]
TWO_TASKS = [task(1, 2_000, s1=1_200, s2=900), task(2, 1_500, s1=300, s2=1_000)]


def test_each_stage_is_as_far_as_the_slowest_that_has_a_part_in_it() -> None:
    assert lags(TWO_STORES, TWO_TASKS, ts(2_100), ts(2_400)) == {
        "push": 900,
        "dispatch": 1_200,
        "sort": 2_000,
        "schema": 2_100,
        "serve": 2_400,
    }


def test_a_store_that_nobody_tells_of_leaves_push_and_dispatch_unknown() -> None:
    found = lags(TWO_STORES[:1], TWO_TASKS, ts(2_100), ts(2_400))
    assert [stage for stage, lag in found.items() if lag == UNKNOWN] == ["push", "dispatch"]


def test_a_task_that_nobody_tells_of_leaves_dispatch_and_sort_unknown() -> None:
    found = lags(TWO_STORES, TWO_TASKS[:1], ts(2_100), ts(2_400))
    assert [stage for stage, lag in found.items() if lag == UNKNOWN] == ["dispatch", "sort"]


def test_a_task_that_has_nothing_of_a_store_yet_leaves_dispatch_unknown() -> None:
    assert lags(TWO_STORES, [TWO_TASKS[0], task(2, 1_500, s1=300)])["dispatch"] == UNKNOWN


def test_before_anything_was_read_nothing_is_known_and_nothing_is_ahead_of_the_clock() -> None:
    assert set(lags([], []).values()) == {UNKNOWN}
    assert lags([store(1, -700), store(2, -50)], TWO_TASKS)["push"] == 0


def test_the_newest_samples_are_kept_oldest_first() -> None:
    history = LagHistory(3)
    for number in range(5):
        history.add(1_000 * number, {ACME: [number, number, UNKNOWN, number, 10 * number]})
    told = history.of(ACME, 0).model_dump()
    assert told["at_ms"] == ["2000", "3000", "4000"]
    assert told["stages"]["push"] == [0.002, 0.003, 0.004]
    assert told["stages"]["sort"] == [None, None, None]
    assert told["stages"]["serve"] == [0.02, 0.03, 0.04]
    assert history.of(ACME, 3_000).model_dump()["at_ms"] == ["3000", "4000"]


def test_a_tenants_samples_begin_with_it_and_end_with_it() -> None:
    history = LagHistory(10)
    history.add(1_000, {ACME: [1] * 5})
    history.add(2_000, {ACME: [1] * 5, OTHER: [7] * 5})
    assert history.of(OTHER, 0).model_dump()["at_ms"] == ["2000"]
    history.add(3_000, {OTHER: [7] * 5})
    assert history.of(ACME, 0).model_dump() == {"at_ms": [], "stages": {stage: [] for stage in STAGES}}
    assert history.of(OTHER, 0).model_dump()["stages"]["serve"] == [0.007, 0.007]


def test_a_lag_of_months_is_told_as_it_is() -> None:
    history = LagHistory(2)
    history.add(1_000, {ACME: [100 * 86_400_000] * 5})
    assert history.of(ACME, 0).model_dump()["stages"]["serve"] == [8_640_000]
