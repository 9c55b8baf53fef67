"""held_by: one cause out of what every service tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tistream.model.ts import from_physical_ms
from tistream.wire.bulk.territories import TerritoryInfo
from tistream.wire.dispatcher import StoreStatus
from tistream.wire.meta import TenantRoute
from tistream.wire.sorter import Chain, Hold, TaskStatus
from tistream_api.status.lateness import TenantReports, held_by
from tistream_api.status.placement_answer import placement

NOW_MS = 1_700_000_000_000


def ts(ms_ago: int) -> int:
    return from_physical_ms(NOW_MS - ms_ago)


def task(task_id: int = 1, progress_ms_ago: int = 1_000, received: int | None = None, **more: object) -> TaskStatus:
    at = ts(1_000) if received is None else received
    told = {
        "cluster_id": "7",
        "tenant_id": "acme",
        "task_id": task_id,
        "task_epoch": 1,
        "start_key": "",
        "end_key": "",
        "manifest": 1,
        "checkpoint": 0,
        "flushed_ts": ts(progress_ms_ago),
        "progress_ts": ts(progress_ms_ago),
        "received": {1: [Chain(first_ts=1, at_ts=at)]},
        "durable": {},
        "pending_rows": 0,
        "pending_bytes": 0,
        "counters": {},
        **more,
    }
    return TaskStatus.model_validate(told)


def store(ms_ago: int = 1_000, **more: object) -> StoreStatus:
    told = {"cluster_id": "7", "tenant_id": "acme", "store_id": 1, "chains": [], "last_file_ts": ts(ms_ago), **more}
    return StoreStatus.model_validate(told)


def picture(lag_ms: int, **more: object) -> TenantReports:
    fine = TenantReports(
        now_ms=NOW_MS,
        resolved_ts=ts(lag_ms),
        schema_ts=ts(lag_ms),
        task_ids=[1],
        statuses={1: task(progress_ms_ago=lag_ms)},
        stores=[store()],
    )
    return replace(fine, **more)  # type: ignore[arg-type]


GAP = Hold(stage="push", store_id="1", object="file-5", reason="file-5 has not come")
SILENT = Hold(stage="push", region_id="9", reason="nothing newer")
DAMAGE = Hold(stage="damaged", store_id="2", object="file-7", reason="fails its CRC")
SCHEMA = Hold(stage="schema", object="m", reason="a job row that cannot be read")


def test_nothing_holds_a_tenant_that_is_on_time() -> None:
    assert held_by(picture(1_000)) is None
    assert held_by(picture(4_900, holds=[SILENT])) is None


def test_a_gap_and_damage_are_told_at_once() -> None:
    assert held_by(picture(1_000, stores=[store(hold=GAP)])) == GAP
    assert held_by(picture(1_000, holds=[SILENT, DAMAGE])) == DAMAGE
    assert held_by(picture(1_000, statuses={1: task(holds=[DAMAGE, GAP])})) == DAMAGE
    assert held_by(picture(1_000, statuses={1: task(holds=[GAP])})) is None, "an everyday wait"
    assert held_by(picture(1_000, holds=[SILENT, SCHEMA])) == SCHEMA
    quarantined = held_by(picture(1_000, stores=[store(quarantined=True)]))
    assert quarantined is not None
    assert (quarantined.stage, quarantined.store_id) == ("damaged", "1")


def test_damage_explains_more_than_a_gap_and_a_gap_more_than_silence() -> None:
    statuses = {1: task(progress_ms_ago=9_000, holds=[SILENT])}
    assert held_by(picture(9_000, statuses=statuses)) == SILENT
    assert held_by(picture(9_000, statuses=statuses, stores=[store(hold=GAP)])) == GAP
    assert held_by(picture(9_000, statuses=statuses, stores=[store(hold=GAP)], holds=[DAMAGE, SCHEMA])) == DAMAGE


def test_a_sorter_that_cannot_write_explains_more_than_what_has_not_come() -> None:
    """A full disk is often the upstream's too, which then says nothing newer; and other tasks have nothing to write."""
    full = Hold(stage="sort", reason="task 1: cannot write x: [Errno 28] No space left on device")
    statuses = {1: task(progress_ms_ago=9_000, holds=[full]), 2: task(2, progress_ms_ago=9_000, holds=[SILENT])}
    late = picture(9_000, statuses=statuses, task_ids=[1, 2])
    assert held_by(late) == full
    assert held_by(replace(late, stores=[store(hold=GAP)])) == full
    assert held_by(replace(late, holds=[DAMAGE])) == DAMAGE


def test_a_store_that_nobody_reads_explains_more_than_that_nothing_newer_has_come() -> None:
    unread = Hold(stage="dispatch", store_id="3", reason="nobody reads the store")
    statuses = {1: task(progress_ms_ago=9_000, holds=[SILENT])}
    assert held_by(picture(9_000, statuses=statuses, holds=[unread])) == unread
    assert held_by(picture(9_000, statuses=statuses, holds=[unread], stores=[store(hold=GAP)])) == GAP
    assert held_by(picture(1_000, holds=[unread])) is None, "it has just been found"


@pytest.mark.parametrize(
    ("more", "stage"),
    [
        ({"route_problem": "schema_snap has not come: x"}, "push"),
        ({"route_problem": "schema_snap is damaged: x"}, "damaged"),
        ({"route_problem": "1 of 1 tasks have no sorter"}, "node"),
        ({"unreachable": [Hold(stage="dispatch", reason="no answer")]}, "dispatch"),
        ({"statuses": {}}, "node"),
        ({"task_ids": [], "statuses": {}, "snapshot_object": "schema_snap"}, "push"),
        ({"schema_ts": ts(20_000), "statuses": {1: task()}}, "schema"),
        ({"stores": []}, "push"),
        ({"stores": [store(7_000)]}, "push"),
        ({"stores": [store(), store(read=False, last_file_ts=0)]}, "dispatch"),
        ({"statuses": {1: task(progress_ms_ago=6_000, received=5)}}, "dispatch"),
        ({"statuses": {1: task(progress_ms_ago=6_000)}}, "sort"),
        ({"statuses": {1: task(progress_ms_ago=6_000, stopped="invariant 5")}}, "sort"),
        ({"holds": [SCHEMA]}, "schema"),
    ],
)
def test_a_late_tenant_always_has_a_cause(more: dict[str, object], stage: str) -> None:
    found = held_by(picture(6_000, **more))
    assert found is not None
    assert found.stage == stage
    assert found.reason


def test_lag_is_never_negative() -> None:
    assert picture(-10_000).lag_seconds == 0
    assert picture(2_500).lag_seconds == 2.5


def route(**more: object) -> TenantRoute:
    tasks = [
        {"task_id": 1, "start_key": "", "end_key": "74", "task_epoch": 3, "sorter_node": "sorter-1", "sorter_url": "u"},
        {"task_id": 2, "start_key": "74", "end_key": "", "task_epoch": 0, "sorter_node": None, "sorter_url": None},
    ]
    told = {"cluster_id": "7", "tenant_id": "acme", "snapshot_ts": 5, "tasks": tasks, **more}
    return TenantRoute.model_validate(told)


def test_placement_names_the_holder_of_everything_and_what_each_waits_for() -> None:
    stores = [{"store_id": 1, "dispatcher_node": "dispatcher-1"}, {"store_id": 2, "dispatcher_node": "dispatcher-2"}]
    unread = Hold(stage="dispatch", store_id="2", reason="nobody reads the store")
    found = placement(picture(1_000, holds=[unread]), route(stores=stores)).model_dump()
    assert [(one["task_id"], one["sorter"], one["waits"]) for one in found["tasks"]] == [
        ("1", "sorter-1", None),
        ("2", None, "no sorter has it: none is alive"),
    ]
    assert found["tasks"][0]["resolved_ts"] == str(ts(1_000))
    assert [(one["store_id"], one["dispatcher"], one["waits"]) for one in found["stores"]] == [
        ("1", "dispatcher-1", None),
        ("2", "dispatcher-2", "nobody reads the store"),
    ]


def test_placement_tells_why_a_task_waits() -> None:
    held = task(holds=[Hold(stage="push", reason="region 7 has reported nothing newer")])
    for statuses, reason in (
        ({}, "sorter-1 does not report it yet"),
        ({1: task(stopped="invariant 3")}, "stopped: invariant 3"),
        ({1: held}, "region 7 has reported nothing newer"),
    ):
        assert placement(picture(1_000, statuses=statuses), route()).tasks[0].waits == reason


def test_a_task_that_nobody_tells_of_is_named_with_its_sorter() -> None:
    late = picture(9_000, statuses={}, sorters={1: "sorter-2"})
    hold = held_by(late)
    assert hold is not None
    assert hold.reason == "no sorter reports task 1: sorter-2, which has it, does not"


def test_a_store_that_nobody_reads_comes_before_what_may_lie_in_it() -> None:
    """A range of a log that the files of one store wait for may be in those of the other."""
    gap = Hold(stage="push", store_id="1", region_id="9", object="file-5", reason="waits for the log before it")
    unread = Hold(stage="dispatch", store_id="2", reason="no dispatcher reads the store, because none takes stores")
    told = picture(60_000, statuses={1: task(progress_ms_ago=60_000, holds=[gap])}, holds=[unread])
    assert held_by(told) == unread
    damaged = Hold(stage="damaged", store_id="1", object="file-5", reason="not Parquet")
    assert held_by(replace(told, holds=[unread, damaged])) == damaged
    assert held_by(replace(told, holds=[])) == gap


def territory(node: str | None = "agent-1", **said: object) -> TerritoryInfo:
    told = {"state": "running", "reason": "region 9 on store 2 scans for 8 s", "lag_ms": 8_000, **said}
    return TerritoryInfo.model_validate(
        {
            **{"cluster_id": "7", "tenant_id": "acme", "territory": "1", "pd": "pd:1", "pd_cluster_id": "3"},
            **{"kind": "tidb", "keyspace": "", "start_key": "", "end_key": "", "epoch": 1},
            **{"node_id": node, "said": told if said.get("state", "") is not None else None},
        }
    )


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (territory(), "territory 1: agent-1: running: region 9 on store 2 scans for 8 s"),
        (territory(None, state=None), "territory 1: no agent holds it: is one alive? (`tistream agent list`)"),
        (territory(state=None), "territory 1: agent-1, which is to hold it, has reported nothing yet"),
        (territory(state="starting", reason="PD is away"), "territory 1: agent-1: starting: PD is away"),
    ],
)
def test_a_late_tenant_of_an_agent_names_the_territory_and_what_it_waits_for(found: TerritoryInfo, reason: str) -> None:
    for more in ({"stores": []}, {"stores": [store(7_000)]}):
        hold = held_by(picture(6_000, territories=[territory(lag_ms=900), found], **more))
        assert hold is not None
        assert (hold.stage, hold.store_id, hold.reason) == ("push", "1", reason)


def test_a_territory_that_waits_for_a_person_explains_more_than_that_nothing_newer_has_come() -> None:
    gone = territory(state="gc", reason="history is collected: backfill the territory")
    statuses = {1: task(progress_ms_ago=9_000, holds=[SILENT])}
    hold = held_by(picture(9_000, statuses=statuses, territories=[gone]))
    assert hold is not None
    assert hold.reason == "territory 1: agent-1: gc: history is collected: backfill the territory"
    assert held_by(picture(9_000, statuses=statuses, territories=[territory()])) == SILENT
