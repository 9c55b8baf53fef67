"""The log is restated, and what lies below the floor goes: crashes, rivals, sleepers, and months of DDL."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from support.committed_pool import CommittedTask
from support.faulty_store import Fault, FaultyObjectStore
from support.log_world import SNAPSHOT_TS, TENANT, Node, log_keys, meta_row, pool, routed, truncate, whole
from tistream.errors import CorruptObject, Unavailable
from tistream.format import floor as floor_format
from tistream.model.span import KeySpan
from tistream.schema.imports import ImportPeriod
from tistream.schema.records import RestoredTables
from tistream.schema.tidb import restored_mark
from tistream.schema.tidb.meta_key import encode_key
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_schema.durable_log import DurableLog
from tistream_schema.keeping import LogKeepingRules

HOUR_MS = 3_600_000
OFTEN = LogKeepingRules(base_objects=2, grace_ms=0)


def test_a_day_of_one_ddl_a_minute_leaves_a_bounded_number_of_objects() -> None:
    objects, clock = MemoryObjectStore(), [0]
    task = pool(objects)
    keeping = LogKeepingRules(base_objects=8)  # a base is made more often than the grace lasts
    node, most, retention = Node(objects, clock, keeping), 0, 60
    for minute in range(5, 24 * 60 + 1, 5):  # committed every five minutes
        clock[0] += 300_000
        ts = SNAPSHOT_TS + minute
        task.retained_ts = max(0, min(ts - retention, node.durable.high_ts))
        task.flush(ts, [row for one in range(ts - 4, ts + 1) for row in truncate(one)])
        assert node.step()
        most = max(most, len(log_keys(objects)))
    assert node.schema.holds == []
    # Since the newest base, before the one below it was let go of, and in the hour of grace.
    assert most <= 2 * keeping.base_objects + 60 // 5 + 2
    at_most = retention + 5 * keeping.base_objects + 10  # DDLs: a base is made each so many objects
    with node.schema.reading() as history:
        assert history.base_ts >= task.flushed_ts - at_most
        assert len(history._versions) <= at_most
    assert node.schema.sizes.records <= 3 * at_most + 5
    again = Node(objects, clock, keeping, "again")
    assert again.follower.load()
    assert again.durable.number - again.durable.floor <= keeping.base_objects + 1
    again.step()
    known = whole(task, objects)
    for low_ts in (task.retained_ts, task.flushed_ts - 1):
        assert again.answers(low_ts) == node.answers(low_ts) == known.answers(low_ts)


def test_a_restore_by_br_is_known_from_its_mark_and_after_the_log_was_restated() -> None:
    objects, clock = MemoryObjectStore(), [0]
    task, node = pool(objects), Node(objects, clock, OFTEN)
    key, value = restored_mark.encode(RestoredTables("R1_S1.meta", 12, 18, (99, 5_000)))
    task.flush(20, [{"table_id": 0, "commit_ts": 20, "start_ts": 19, "key": key, "op": 1, "value": value}])
    assert node.step()
    for ts in range(21, 31):
        clock[0] += HOUR_MS
        task.retained_ts = ts - 1
        task.flush(ts, [meta_row(ts, b"Diff:%d" % ts, value={})])
        assert node.step()
    assert node.durable.floor > 1
    again = Node(objects, clock, OFTEN, "again")
    assert again.follower.load()
    for one in (node, again):
        with one.schema.reading() as history:
            assert history.imports() == {99: ImportPeriod(12, 18)}, "of 5000 no row is known"


class Crash(BaseException):
    """The process is gone."""


class Dies(MemoryObjectStore):
    """The process that works on it dies at its n-th write, before or after that has happened."""

    def __init__(self) -> None:
        super().__init__()
        self.writes, self.at, self.before = 0, -1, True

    def die(self, at: int, *, before: bool) -> None:
        self.writes, self.at, self.before = 0, at, before

    def _written(self, *, before: bool) -> None:
        if before:
            self.writes += 1
        if self.writes == self.at and self.before == before:
            raise Crash

    def put_new(self, key: str, body: bytes) -> None:
        self._written(before=True)
        super().put_new(key, body)
        self._written(before=False)

    def put_if(self, key: str, body: bytes, version: str) -> None:
        self._written(before=True)
        super().put_if(key, body, version)
        self._written(before=False)

    def delete(self, key: str) -> None:
        self._written(before=True)
        super().delete(key)
        self._written(before=False)


def readable(objects: MemoryObjectStore) -> tuple[int, int]:
    """Whoever comes now can read the log, and what the floor names is there; the end of the log and its floor."""
    log = DurableLog(objects, TENANT, "reader", lambda _seconds: None)
    found = log.catch_up()
    assert [one.number for one in found] == list(range(max(1, log.floor), log.number + 1))
    return log.high_ts, log.floor


STEPS = 7


def test_a_crash_at_any_write_loses_nothing_and_leaves_a_log_that_can_be_read() -> None:
    crashes = 0
    for at in range(1, 200):
        died = [_dies_at(at, before=before) for before in (True, False)]
        crashes += sum(died)
        if not any(died):
            break
    else:
        pytest.fail("the story has no end")
    assert crashes > 2 * (STEPS + 4)  # each append, and floors, bases and deletions besides


def _dies_at(at: int, *, before: bool) -> bool:
    objects, clock = Dies(), [0]
    task = pool(objects)
    node = Node(objects, clock, OFTEN, "first")
    node.step()
    objects.die(-1, before=before)
    died, life, wrote = False, 0, 0
    for step in range(1, STEPS + 1):
        ts = SNAPSHOT_TS + step
        clock[0] += 1
        task.retained_ts = max(0, min(ts - 2, node.durable.high_ts))
        _flush(objects, task, ts)
        while True:
            if not died:
                objects.die(at - wrote, before=before)
            try:
                node.step()
            except Crash:
                died, life = True, life + 1
                objects.die(-1, before=before)
                readable(objects)
                node = Node(objects, clock, OFTEN, f"life {life}")
                continue
            wrote += objects.writes
            objects.die(-1, before=before)
            break
    for _ in range(2):
        node.step()
    high_ts, floor = readable(objects)
    assert high_ts == node.resolved_ts == task.flushed_ts
    assert node.schema.holds == []
    assert floor > 1
    assert len(log_keys(objects)) <= OFTEN.base_objects + 2
    fresh = Node(objects, clock, OFTEN, "fresh")
    fresh.step()
    known = whole(task, objects)
    assert fresh.answers(task.retained_ts) == node.answers(task.retained_ts) == known.answers(task.retained_ts)
    return died


def _flush(objects: Dies, task: CommittedTask, ts: int) -> None:
    """The sorter's writes are not what dies."""
    at, objects.at = objects.at, -1
    task.flush(ts, truncate(ts))
    objects.at = at


@pytest.mark.parametrize("seed", range(4))
def test_two_incarnations_at_once_tell_the_same_whoever_sleeps(seed: int) -> None:
    rng = random.Random(seed)
    objects, clock = MemoryObjectStore(), [0]
    task = pool(objects)
    nodes = [Node(objects, clock, OFTEN, "a"), Node(objects, clock, OFTEN, "b")]
    asleep, highest = [0, 0], 0
    for step in range(1, 45):
        ts = SNAPSHOT_TS + step
        clock[0] += 1
        task.retained_ts = max(task.retained_ts, min(ts - rng.randint(2, 6), highest))
        task.flush(ts, truncate(ts) if rng.random() < 0.8 else [meta_row(ts, b"NextGlobalID", value=1)])
        for at in rng.sample(range(2), 2):
            if rng.random() < 0.05:
                asleep[at] = step + rng.randint(5, 30)
            if asleep[at] > step and asleep[1 - at] <= step:
                continue
            if rng.random() < 0.05:
                nodes[at] = Node(objects, clock, OFTEN, f"{step}")
            nodes[at].step()
            assert nodes[at].schema.holds == []
            assert nodes[at].resolved_ts == ts
        high_ts, _ = readable(objects)
        highest = max(highest, high_ts)
    known = whole(task, objects)
    for node in (*nodes, Node(objects, clock, OFTEN, "last")):
        node.step()
        assert node.schema.holds == []
        assert node.answers(task.retained_ts) == known.answers(task.retained_ts)
        assert node.schema.sizes.records_ever == known.schema.sizes.records_ever  # replicas count on the numbers
    assert len(log_keys(objects)) <= 2 * OFTEN.base_objects + 4


def grown(objects: MemoryObjectStore, clock: list[int], node: Node, task: CommittedTask, steps: int) -> None:
    """DDL after DDL, with retention right behind."""
    for _ in range(steps):
        ts = task.flushed_ts + 1
        task.retained_ts = max(0, min(ts - 2, node.durable.high_ts))
        task.flush(ts, truncate(ts))
        clock[0] += 1
        node.step()
        assert node.schema.holds == []


def test_a_sleeper_whose_rows_are_gone_takes_them_from_the_log() -> None:
    objects, clock = MemoryObjectStore(), [0]
    task = pool(objects)
    node, sleeper = Node(objects, clock, OFTEN, "a"), Node(objects, clock, OFTEN, "sleeper")
    grown(objects, clock, node, task, 2)
    sleeper.step()
    grown(objects, clock, node, task, 20)
    assert readable(objects)[1] > sleeper.durable.number + 1  # what it would read next was collected long ago
    assert task.retained_ts > sleeper.resolved_ts
    sleeper.step()
    assert sleeper.schema.holds == []
    assert sleeper.resolved_ts == task.flushed_ts
    assert sleeper.answers(task.retained_ts) == node.answers(task.retained_ts)


def test_rows_that_are_gone_and_not_in_the_log_hold_the_schema_loudly() -> None:
    objects, clock = MemoryObjectStore(), [0]
    task = pool(objects)
    node = Node(objects, clock, OFTEN)
    node.step()
    task.flush(30, truncate(20))
    task.retained_ts = 30
    task.flush(40, truncate(35))
    late = Node(objects, clock, OFTEN, "late")
    for one in (node, late):
        for _ in range(2):
            assert not one.step()
            assert one.resolved_ts == SNAPSHOT_TS
            (hold,) = one.schema.holds
            assert hold.stage == "schema"
            assert "rows up to 30 may be gone" in hold.reason


def test_a_put_long_under_way_brings_back_a_collected_number_and_nobody_believes_it() -> None:
    inner, clock = MemoryObjectStore(), [0]
    task = pool(inner)
    slow = FaultyObjectStore(inner)
    node, sleeper = Node(inner, clock, OFTEN, "a"), Node(slow, clock, OFTEN, "sleeper")
    grown(inner, clock, node, task, 2)
    sleeper.step()
    number = sleeper.durable.number
    task.flush(task.flushed_ts + 1, truncate(task.flushed_ts + 1))
    slow.plan.extend([Fault.DELAYED] * 5)
    with pytest.raises(Exception, match="unknown whether it was written"):
        sleeper.step()
    grown(inner, clock, node, task, 20)
    assert layout.schema_log(TENANT, number + 1) not in log_keys(inner)
    slow.deliver()
    assert layout.schema_log(TENANT, number + 1) in log_keys(inner)
    readable(inner)
    sleeper.step()
    assert sleeper.schema.holds == []
    for one in (sleeper, Node(inner, clock, OFTEN, "fresh")):
        one.step()
        assert one.answers(task.retained_ts) == node.answers(task.retained_ts)
    grown(inner, clock, node, task, 10)
    assert layout.schema_log(TENANT, number + 1) not in log_keys(inner)


def test_a_writer_that_wakes_with_a_collected_number_gives_way() -> None:
    """Its put succeeds, since what stood there was deleted; the floor tells that it counts for nothing."""
    objects, clock = MemoryObjectStore(), [0]
    task = pool(objects)
    node, sleeper = Node(objects, clock, OFTEN, "a"), Node(objects, clock, OFTEN, "sleeper")
    grown(objects, clock, node, task, 2)
    sleeper.step()
    stale = DurableLog(objects, TENANT, "sleeper", lambda _seconds: None)
    stale.catch_up()
    grown(objects, clock, node, task, 20)
    found = stale.append(stale.high_ts + 1, ())
    assert found[0].base is not None
    assert (stale.number, stale.high_ts) == (node.durable.number, node.durable.high_ts)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.UNANSWERED])
@pytest.mark.parametrize("at", range(8))
def test_the_floor_and_the_base_come_through_faults(fault: Fault, at: int) -> None:
    inner, clock = MemoryObjectStore(), [0]
    task = pool(inner)
    objects = FaultyObjectStore(inner)
    node = Node(objects, clock, OFTEN)
    node.step()
    objects.plan.extend([Fault.NONE] * at + [fault])
    for _ in range(8):
        ts = task.flushed_ts + 1
        task.retained_ts = max(0, min(ts - 2, node.durable.high_ts))
        task.flush(ts, truncate(ts))
        clock[0] += 1
        for _ in range(2):
            with suppress(Unavailable):  # its loop comes again
                node.step()
        assert node.schema.holds == []
    assert readable(inner) == (task.flushed_ts, node.durable.floor)
    assert node.durable.floor > 1


def test_nothing_is_deleted_before_the_grace_has_passed() -> None:
    objects, clock = MemoryObjectStore(), [0]
    task = pool(objects)
    keeping = LogKeepingRules(base_objects=3, grace_ms=HOUR_MS)
    node = Node(objects, clock, keeping)
    grown(objects, clock, node, task, 8)
    floor = node.durable.floor
    assert floor > 1
    assert log_keys(objects)[0] == layout.schema_log(TENANT, 1)
    clock[0] += HOUR_MS
    again = Node(objects, clock, keeping, "again")  # a start finds the floor where it is, and waits as long
    again.step()
    clock[0] += HOUR_MS - 1
    again.step()
    assert log_keys(objects)[0] == layout.schema_log(TENANT, 1)
    clock[0] += 1
    again.step()
    assert log_keys(objects)[0] == layout.schema_log(TENANT, again.durable.floor)


@pytest.mark.parametrize("retained", [0, SNAPSHOT_TS])
def test_what_is_kept_for_ever_is_never_restated(retained: int) -> None:
    objects, clock = MemoryObjectStore(), [0]
    task = pool(objects)
    task.retained_ts = retained
    node = Node(objects, clock, OFTEN)
    for ts in range(11, 40):
        task.flush(ts, truncate(ts))
        node.step()
    assert node.durable.base == node.durable.floor == 0
    assert len(log_keys(objects)) == 30
    assert node.answers(SNAPSHOT_TS) == whole(task, objects).answers(SNAPSHOT_TS)


def test_nothing_that_any_task_still_keeps_is_forgotten() -> None:
    objects, clock = MemoryObjectStore(), [0]
    pool(objects)
    spans = [KeySpan(b"", encode_key(b"E")), KeySpan(encode_key(b"E"), b"")]
    tasks = [CommittedTask(objects, TENANT, SNAPSHOT_TS, task_id=at, span=span) for at, span in enumerate(spans, 2)]
    route = routed(*((task.task_id, task.span) for task in tasks))
    node = Node(objects, clock, OFTEN)
    for ts in range(11, 31):
        for task, behind in zip(tasks, (2, 7), strict=True):
            task.retained_ts = max(0, min(ts - behind, node.durable.high_ts))
            task.flush(ts, [row for row in truncate(ts) if row["key"] in task.span])
        node.step(route)
        assert node.schema.holds == []
        assert (node.schema.base_ts or 0) <= max(SNAPSHOT_TS, tasks[1].retained_ts)
    assert (node.schema.base_ts or 0) > SNAPSHOT_TS


def test_the_floor_of_the_log_only_rises() -> None:
    objects, clock = MemoryObjectStore(), [0]
    task = pool(objects)
    node = Node(objects, clock, LogKeepingRules(base_objects=2))
    grown(objects, clock, node, task, 6)
    stale = DurableLog(objects, TENANT, "stale", lambda _seconds: None)
    stale.catch_up()
    grown(objects, clock, node, task, 6)
    floor = readable(objects)[1]
    assert 0 < stale.base < floor
    stale.raise_floor()
    assert readable(objects)[1] == stale.floor == floor


def test_quiet_progress_is_kept_after_an_hour_and_only_if_there_was_any() -> None:
    objects, clock = MemoryObjectStore(), [0]
    task = pool(objects)
    node = Node(objects, clock, LogKeepingRules())
    node.step()
    clock[0] += 10 * HOUR_MS
    task.flush(20)  # progress, but no rows: whoever starts anew has nothing to read
    node.step()
    assert (node.resolved_ts, len(log_keys(objects))) == (20, 1)
    task.flush(30, [meta_row(25, b"NextGlobalID", value=1)])
    node.step()
    assert len(log_keys(objects)) == 2  # ten hours after the last one
    task.flush(40, [meta_row(35, b"NextGlobalID", value=1)])
    for _ in range(3):
        clock[0] += HOUR_MS // 3
        assert node.schema.sizes.durable_ts == 30
        node.step()
    assert (node.schema.sizes.durable_ts, len(log_keys(objects))) == (40, 3)
    clock[0] += 10 * HOUR_MS
    node.step()
    assert len(log_keys(objects)) == 3


def test_a_floor_that_names_no_base_is_told() -> None:
    objects, clock = MemoryObjectStore(), [0]
    task = pool(objects)
    node = Node(objects, clock, LogKeepingRules())
    task.flush(20, truncate(20))
    node.step()
    for number, why in ((2, "is no base"), (9, "is not there")):
        objects.put(layout.schema_floor(TENANT), floor_format.encode(number))
        with pytest.raises(CorruptObject, match=why):
            DurableLog(objects, TENANT, "n", lambda _seconds: None).catch_up()
        fresh = Node(objects, clock, LogKeepingRules(), "fresh")
        fresh.step()
        assert fresh.schema.holds[0].object == layout.schema_floor(TENANT)


def test_after_a_merge_a_restart_reads_what_is_left_of_the_schemas_rows() -> None:
    """The neighbour had let go of more than the log holds; of the schema's keys nothing has gone."""
    objects, clock = MemoryObjectStore(), [0]
    task = pool(objects)
    task.flush(20, truncate(20))
    Node(objects, clock, OFTEN).step()
    task.flush(1_000)
    task.retained_ts, task.schema_retained_ts = 900, 15
    task.flush(1_010, truncate(1_005))
    again = Node(objects, clock, OFTEN, "again")
    again.step()
    assert again.schema.holds == []
    assert again.resolved_ts == 1_010
    assert again.answers(20) == whole(task, objects).answers(20)
