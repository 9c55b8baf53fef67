"""A meta database that was restored has forgotten that a tenant started: its schema, and its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support import golden
from support.audit_world import World
from support.meta_database import database_url
from tistream.clock import ManualClock
from tistream.errors import AlreadyDiffers, InvariantBroken
from tistream.format import floor
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.schema import log_format
from tistream.schema.log_format import BaseHead, LogObject
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.manifest_log import ManifestLog
from tistream_meta.database.repository import Repository
from tistream_meta.decide.model import Child, Task
from tistream_meta.tenants.pool_frontier import NO_TASKS, Frontier, PoolTask, frontier
from tistream_meta.tenants.snapshot import SnapshotFacts, parse
from tistream_meta.tenants.tenant_start import TenantStarts

SET = golden.load("everything")
LOW, HIGH = KeySpan(b"", b"m"), KeySpan(b"m", b"")
Found = dict[TenantKey, tuple[SnapshotFacts, Frontier]]


class Counting(MemoryObjectStore):
    lists = 0

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> object:  # type: ignore[override]
        self.lists += 1
        return super().list_after(prefix, after, delimiter)


def looked(objects: MemoryObjectStore) -> tuple[Found, dict[TenantKey, str]]:
    found: Found = {}
    missing: dict[TenantKey, str] = {}
    starts = TenantStarts(objects, ManualClock(1_000), 2_000)
    starts.look([SET.tenant], lambda key, facts, tasks: found.update({key: (facts, tasks)}), missing.__setitem__)
    return found, missing


def log_object(number: int, base: BaseHead | None = None) -> LogObject:
    snapshot = parse_snapshot(SET.schema_snap.key, iter([SET.schema_snap.data]))
    low_ts, high_ts = snapshot.snapshot_ts - 1, snapshot.snapshot_ts
    return LogObject(SET.tenant, number, low_ts, high_ts, "n", snapshot.records, base)


def begun(objects: MemoryObjectStore, *claims: tuple[int, KeySpan, int]) -> None:
    """The schema log, and what sorters leave that claim tasks: (task_id, span, epoch)."""
    objects.put(layout.schema_log(SET.tenant, 1), log_format.encode(log_object(1)))
    for task_id, span, epoch in claims:
        ManifestLog(objects, SET.tenant, task_id, span).claim(epoch, f"n{task_id}", 1)


def test_it_begins_where_it_began() -> None:
    objects = MemoryObjectStore()
    begun(objects)
    found, missing = looked(objects)
    facts = parse(SET.schema_snap.key, SET.schema_snap.data)
    assert missing == {}
    assert found[SET.tenant][0].snapshot_ts == facts.snapshot_ts
    assert set(found[SET.tenant][0].physical_ids) <= set(facts.physical_ids)
    assert len(found[SET.tenant][0].physical_ids) > 40


def test_so_it_does_where_the_log_was_restated() -> None:
    objects = MemoryObjectStore()
    base = BaseHead(SET.snapshot_ts + 5, 3, 9, "n", SET.snapshot_ts)
    objects.put(layout.schema_log(SET.tenant, 7), log_format.encode(log_object(7, base)))
    objects.put(layout.schema_floor(SET.tenant), floor.encode(7))
    found, _ = looked(objects)
    assert found[SET.tenant][0].snapshot_ts == SET.snapshot_ts


def test_without_either_it_waits_and_a_damaged_log_is_named() -> None:
    objects = MemoryObjectStore()
    assert looked(objects) == ({}, {SET.tenant: f"schema_snap has not come: {SET.schema_snap.key}"})
    objects.put(layout.schema_log(SET.tenant, 1), log_format.encode(log_object(1))[:-1])
    _, missing = looked(objects)
    assert "fails its CRC-32" in missing[SET.tenant]


@pytest.mark.parametrize("snap", [False, True], ids=["without schema_snap", "beside its schema_snap"])
def test_its_tasks_continue_under_the_epochs_that_have_claimed_them(snap: bool) -> None:
    objects = MemoryObjectStore()
    if snap:  # the registry has it in its log, and has not deleted it yet
        objects.put(SET.schema_snap.key, SET.schema_snap.data)
    begun(objects, (3, LOW, 7), (4, HIGH, 9))
    objects.put(f"{layout.task_prefix(SET.tenant, 5)}segment/0000000001-ab-0001.parquet", b"no manifest names it")
    objects.put(layout.task_prefix(SET.tenant, 6).replace("task-6", "task-06") + "manifest/1", b"strange")
    found, missing = looked(objects)
    assert missing == {}
    assert found[SET.tenant][1] == Frontier((task(3, LOW, 7), task(4, HIGH, 9)), (), 4)


def test_a_new_tenant_costs_no_search() -> None:
    objects = Counting()
    objects.put(SET.schema_snap.key, SET.schema_snap.data)
    found, _ = looked(objects)
    assert (found[SET.tenant][1], objects.lists) == (NO_TASKS, 0)


def test_a_tenant_whose_manifests_cannot_be_read_waits_and_names_them() -> None:
    objects = MemoryObjectStore()
    begun(objects, (3, WHOLE, 7))
    objects.put(layout.manifest(SET.tenant, 3, 1), b"damaged")
    _, missing = looked(objects)
    assert layout.manifest(SET.tenant, 3, 1) in missing[SET.tenant]


# -- which tasks hold which keys --------------------------------------------------------------------------------------


def task(task_id: int, span: KeySpan, epoch: int = 0, parents: Sequence[int] = ()) -> Task:
    return Task(task_id, SET.tenant, span, None, epoch, parents=tuple(parents))


HALVES = (Child(2, LOW), Child(3, HIGH))
ONE = (Child(9, WHOLE),)


@pytest.mark.parametrize(
    ("found", "tasks"),
    [
        pytest.param(
            [PoolTask(1, WHOLE, 4, True, HALVES)],
            [task(2, LOW, 0, [1]), task(3, HIGH, 0, [1])],
            id="children that no sorter has claimed",
        ),
        pytest.param(
            [PoolTask(1, WHOLE, 4, True, HALVES), PoolTask(2, LOW, 2, False), PoolTask(3, HIGH, 1, True)],
            [task(2, LOW, 2, [1]), task(3, HIGH, 1)],
            id="only a child without a state needs its parents",
        ),
        pytest.param(
            [PoolTask(2, LOW, 4, True, ONE), PoolTask(3, HIGH, 5, True)],
            [task(2, LOW, 4), task(3, HIGH, 5)],
            id="of a merge only one half is sealed",
        ),
        pytest.param(
            [PoolTask(2, LOW, 4, True, ONE), PoolTask(3, HIGH, 5, True, ONE)],
            [task(9, WHOLE, 0, [2, 3])],
            id="both halves are sealed",
        ),
        pytest.param(
            [
                PoolTask(1, WHOLE, 4, True, HALVES),
                PoolTask(2, LOW, 4, True, ONE),
                PoolTask(3, HIGH, 5, True, ONE),
                PoolTask(9, WHOLE, 1, True),
            ],
            [task(9, WHOLE, 1)],
            id="split and merged",
        ),
    ],
)
def test_tasks_are_found_across_seals(found: list[PoolTask], tasks: list[Task]) -> None:
    made = frontier(SET.tenant, found)
    assert (list(made.tasks), made.gaps) == (tasks, ())
    assert made.last_id == max([*(one.task_id for one in found), *(c.task_id for one in found for c in one.children)])


@pytest.mark.parametrize(
    ("spans", "gaps"),
    [
        ([], [WHOLE]),
        ([KeySpan(b"c", b"f")], [KeySpan(b"", b"c"), KeySpan(b"f", b"")]),
        ([KeySpan(b"", b"c"), KeySpan(b"f", b"")], [KeySpan(b"c", b"f")]),
        ([KeySpan(b"", b"c")], [KeySpan(b"c", b"")]),
    ],
)
def test_keys_for_which_no_task_had_a_manifest_get_new_tasks(spans: list[KeySpan], gaps: list[KeySpan]) -> None:
    made = frontier(SET.tenant, [PoolTask(at, span, 1, False) for at, span in enumerate(spans, 1)])
    assert list(made.gaps) == gaps
    cuts = [KeySpan(b"", b"d"), KeySpan(b"d", b"e"), KeySpan(b"e", b"")]
    first = made.first_spans(cuts)
    assert frontier(SET.tenant, [PoolTask(at, one, 1, False) for at, one in enumerate([*spans, *first], 1)]).gaps == ()
    assert all(any(cut.clip(one) == one for cut in cuts) for one in first)


@pytest.mark.parametrize("span", [WHOLE, LOW, KeySpan(b"a", b"b"), KeySpan(b"k", b"n")])
def test_a_tenant_that_was_begun_twice_is_refused_by_the_names_of_both_tasks(span: KeySpan) -> None:
    with pytest.raises(InvariantBroken, match=r"tasks \d and \d both have manifests .* Restore a newer backup"):
        frontier(SET.tenant, [PoolTask(1, LOW, 3, True), PoolTask(2, HIGH, 3, True), PoolTask(7, span, 1, True)])


# -- in the database --------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    found = Repository.open(database_url(tmp_path), "meta-1")
    found.prepare()
    found.take_ownership(60_000, "http://meta")
    found.create_tenant(SET.tenant)
    return found


def test_the_rows_are_those_tasks_and_new_ids_are_above_all_that_were_used(repository: Repository) -> None:
    change = repository.activate(SET.tenant, 42, [HIGH], [task(7, LOW, 5, [2, 3])], last_id=12)
    assert change is not None
    assert [one.snapshot_ts for one in change.tenants] == [42]
    assert repository.plan().tasks == change.tasks == (task(7, LOW, 5, [2, 3]), task(13, HIGH))


def test_an_id_that_another_tenant_has_by_now_is_refused_and_nothing_is_written(repository: Repository) -> None:
    other = TenantKey("7", "other")
    repository.create_tenant(other)
    repository.activate(other, 42, [WHOLE])
    before = repository.plan()
    with pytest.raises(AlreadyDiffers, match=r"task 1 .* to 7/other .* restore the backup again"):
        repository.activate(SET.tenant, 42, [], [task(1, WHOLE, 5)], last_id=1)
    assert repository.plan() == before


# -- by the owner -----------------------------------------------------------------------------------------------------


def started(meta: World) -> dict[str, Any]:
    """The tenant's route, once the owner has looked for its start."""
    meta.server.tenant_rules.create(SET.tenant)
    meta.server.activate_tenants()
    [route] = [one for one in meta.ask("GET", "/upcall/v1/routes")["tenants"] if one["tenant_id"] == "acme"]
    return route


def test_a_tenant_that_is_registered_again_is_routed_to_its_tasks(tmp_path: Path) -> None:
    meta = World(tmp_path)
    begun(meta.objects, (3, LOW, 7), (4, HIGH, 9))
    route = started(meta)
    assert route["snapshot_ts"] == SET.snapshot_ts
    assert [(one["task_id"], one["task_epoch"]) for one in route["tasks"]] == [(3, 7), (4, 9)]
    assert meta.repository.new_task_ids(1) == 5


def test_one_whose_tasks_have_the_ids_of_others_waits_and_names_the_way_out(tmp_path: Path) -> None:
    meta = World(tmp_path)
    meta.tenant("other")
    begun(meta.objects, (1, WHOLE, 7))
    route = started(meta)
    assert (route["snapshot_ts"], route["tasks"]) == (None, [])
    assert "restore the backup again, and create this tenant before any other" in route["problem"]
