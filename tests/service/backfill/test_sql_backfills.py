"""Backfills by SQL from a server that answers stale reads of a golden set, with the faults that upstreams have."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import polars as pl
import pytest

from support.effort import FULL
from support.golden_tidb import PASSWORD, GoldenTidb
from support.runner_world import RunnerWorld
from tistream.model.base_cover import Hole, base_ts_of
from tistream.storage import layout
from tistream.storage.chunk_reader import read_plan
from tistream.wire.bulk.backfills import EndBackfill


class SqlRunnerWorld(RunnerWorld):
    """The registry goes on by some commits after each step."""

    def __init__(self) -> None:
        super().__init__(tasks=2)
        self.stamps = [self.made.t0, *(ts for ts in self.stamps_above() if ts <= self.made.set_.end_ts)]
        self.rng = random.Random(5)

    def stamps_above(self) -> list[int]:
        found: list[int] = self.made.rows["commit_ts"].unique().sort().to_list()
        return [ts for ts in found if ts > self.made.t0]

    def work(self, steps: int = 200) -> None:
        """Steps of the runner alone, until every chunk is written or the backfill has ended."""
        for _ in range(steps):
            self.advance()
            self.runner.step()
            if not self.book.running() or self.done():
                return
        raise AssertionError("the backfill does not end")

    def log_arrives(self) -> None:
        """Everything above T0."""
        for delivery in self.made.set_.files:
            self.world.push(delivery)
        self.world.tick()

    def advance(self) -> None:
        at = self.stamps.index(self.known_ts)
        self.known_ts = self.stamps[min(len(self.stamps) - 1, at + self.rng.randrange(1, 4))]

    def done(self) -> bool:
        return any(self.objects.list_after(layout.backfill_done(self.tenant, "s1")[:-1]))


@pytest.fixture
def one() -> Iterator[SqlRunnerWorld]:
    world = SqlRunnerWorld()
    tidb = GoldenTidb(world.made, world.made.set_.end_ts, encodes_keys=True)
    with tidb.serving():
        world.tidb = tidb
        yield world


def names(world: SqlRunnerWorld, count: int) -> list[str]:
    """Tables with at most 150 rows at T0, the largest first."""
    rows = Counter(world.made.state(world.made.t0)["table_id"].to_list())
    sized = [(sum(rows[id_] for id_ in one.head.physical_ids), one) for one in world.made.tables(world.made.t0)]
    ranked = sorted((pair for pair in sized if pair[0] <= 150), key=lambda pair: (-pair[0], pair[1].head.id))
    return [f"{one.database}.{one.head.name}" for _, one in ranked[:count]]


def test_every_table_is_complete_at_the_highest_ts_of_its_chunks(one: SqlRunnerWorld) -> None:
    one.log_arrives()
    one.start("s1", *names(one, 6), kind="sql")
    one.work()
    one.run()
    assert one.book.ended["s1"] == EndBackfill(state="finished")
    plan = read_plan(one.objects, one.tenant, "s1")
    assert len(plan.spans) > 8, "tables were cut"
    assert len({work.base_ts for work in one.works}) > 1
    cover = one.cover(one.tenant)
    for work in one.works:
        found = base_ts_of(cover, [work.span])
        assert not isinstance(found, Hole)
        assert found == work.base_ts


def test_a_key_whose_collation_only_the_upstream_knows_is_read_in_its_order(one: SqlRunnerWorld) -> None:
    """The keys `Ünï` and `z` of the set are in the order of weights, not of code points."""
    one.start("s1", "shop.k_uca", kind="sql")
    one.work()
    assert one.done()
    assert one.book.ended == {}


def test_a_region_of_the_upstream_is_a_chunk_where_it_shows_them(one: SqlRunnerWorld) -> None:
    assert one.tidb is not None
    one.tidb.regions = 9
    (table,) = names(one, 1)
    one.start("s1", table, kind="sql")
    one.work()
    assert any("TABLESAMPLE" in sql for _, sql in one.tidb.reads)
    assert not any("OFFSET" in sql for _, sql in one.tidb.reads)
    assert len(read_plan(one.objects, one.tenant, "s1").spans) > 2


def test_lost_connections_leave_the_plan_and_the_finished_chunks(one: SqlRunnerWorld) -> None:
    assert one.tidb is not None
    one.start("s1", *names(one, 3), kind="sql", threads=2)
    one.runner.step()
    plan, begun = read_plan(one.objects, one.tenant, "s1"), len(one.tidb.reads)
    one.tidb.lose_at = {begun + number for number in random.Random(3).sample(range(1, 24), 8)}
    one.work()
    assert len([number for number in one.tidb.lose_at if number <= len(one.tidb.reads)]) > 3
    assert read_plan(one.objects, one.tenant, "s1") == plan
    tries = Counter(work.number for work in one.works)
    assert set(tries) == set(range(len(plan.spans)))
    assert max(tries.values()) > 1, "a chunk was read again, at a newer ts"
    assert one.book.ended == {}


def test_a_killed_process_reads_no_finished_chunk_again(one: SqlRunnerWorld) -> None:
    one.start("s1", *names(one, 3), kind="sql", threads=1)
    steps = 0
    while not one.done():
        one.advance()
        one.runner = one.new_runner()  # the next process
        one.runner.step()
        steps += 1
        assert steps < 300, one.book.ended
    plan = read_plan(one.objects, one.tenant, "s1")
    assert [work.number for work in one.works] == list(range(len(plan.spans)))
    assert len({work.base_ts for work in one.works}) > 3


def test_a_read_below_gc_is_repeated_at_a_newer_ts(one: SqlRunnerWorld) -> None:
    assert one.tidb is not None
    one.start("s1", *names(one, 2), kind="sql", threads=2)
    one.runner.step()
    first = len(one.works)
    one.tidb.below_gc = one.stamps[20]
    one.work()
    later = one.works[first:]
    tries = Counter(work.number for work in later)
    assert max(tries.values()) > 1
    written = {work.number: work for work in later}  # the last try of each
    assert all(work.base_ts >= one.tidb.below_gc for work in written.values())
    assert any(work.base_ts < one.tidb.below_gc for work in later)


def test_a_table_that_a_ddl_job_reorganises_waits_and_others_go_on(one: SqlRunnerWorld) -> None:
    assert one.tidb is not None
    tables = names(one, 2)
    one.start("s1", *tables, kind="sql")
    database, name = tables[0].split(".")
    version = one.tidb.version(database, name, one.made.t0)
    assert version is not None
    until = one.stamps[40]
    one.tidb.reorganising[version.head.id] = (one.made.t0, until)
    one.work()
    there = {}
    for work in one.works:
        there[work.number] = work  # the last attempt is the one that was written
    mine = [work for work in there.values() if work.table is not None and work.table.table_id == version.head.id]
    others = [work for work in there.values() if work not in mine]
    assert mine
    assert all(work.base_ts > until for work in mine)
    assert others
    assert min(work.base_ts for work in others) <= until


def test_a_table_that_sql_cannot_read_is_named_with_the_way_out(one: SqlRunnerWorld) -> None:
    assert one.tidb is not None
    one.tidb.encodes_keys = False
    one.start("s1", "*.*" if FULL else "shop.k_*", kind="sql")
    plan = one.runner.sql.plan(one.book.rows[0])
    reason = one.runner.sql.refused(one.book.rows[0], plan)
    assert reason is not None
    assert "Read these by br-full" in reason
    assert "_ci" in reason or "prefix" in reason or "type" in reason


def test_a_server_that_reads_at_another_ts_is_caught_by_the_log(one: SqlRunnerWorld) -> None:
    """Invariant 26: the changes above base_ts have old values, whose keys the chunk must have."""
    assert one.tidb is not None
    one.log_arrives()
    one.tidb.skew = lambda _: one.made.set_.end_ts
    then, later = (
        one.made.state(ts).group_by("table_id").agg(pl.col("key").sort()) for ts in (one.made.t0, one.made.set_.end_ts)
    )
    keys = [dict(frame.iter_rows()) for frame in (then, later)]
    changed = {id_ for id_, listed in keys[0].items() if set(listed) ^ set(keys[1].get(id_, ()))}
    tables = [
        t
        for t in one.made.tables(one.made.t0)
        if changed & set(t.head.physical_ids) and len(keys[0].get(t.head.physical_ids[0], ())) <= 400
    ]
    one.start("s1", *(f"{t.database}.{t.head.name}" for t in tables[:3]), kind="sql")
    one.work()
    one.run()
    end = one.book.ended["s1"]
    assert end.state == "failed"
    assert "it is not as of its base_ts" in (end.reason or "")


def test_another_cluster_is_refused(one: SqlRunnerWorld) -> None:
    assert one.tidb is not None
    one.tidb.now = one.made.t0 - 1
    one.start("s1", *names(one, 1), kind="sql")
    one.runner.step()
    assert "another cluster" in (one.book.ended["s1"].reason or "")


def test_no_error_has_the_password(one: SqlRunnerWorld, caplog: pytest.LogCaptureFixture) -> None:
    assert one.tidb is not None
    one.start("s1", *names(one, 1), kind="sql")
    one.tidb.lose_at = set(range(1, 1_000))
    for _ in range(3):
        one.runner.step()
    assert caplog.records
    said = [str(record.__dict__) for record in caplog.records]
    assert any("127.0.0.1" in line for line in said), "it names the server"
    assert not any(PASSWORD in line for line in said)
