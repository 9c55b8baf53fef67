"""A table that stops in one shard of a feed stops in the others, and alone: within seconds in those that have rows of
it, in all at the next DDL. Once the cause has gone, all shards catch up with it, and each event is there once, and in
order to the DDLs (docs/changefeeds.md, "Order")."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import pytest

from support.effort import cases
from support.model_feed import Run, by_table, concerned, refusing
from support.model_kafka import Faults
from support.pull_world import golden_world
from support.sim.changefeed_judge import Feed, undisturbed_set
from tistream.concurrency import Event
from tistream.errors import CannotEncode
from tistream.model.ts import Window
from tistream.read.cursor import Position, Scope
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import Name
from tistream.wire.bulk.changefeeds import Applied
from tistream_changefeed.core import barrier, progress
from tistream_changefeed.core.lanes import CatchUpLane, MainLane
from tistream_changefeed.core.progress import Fence, Progress, Revision
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.core.stopped import StoppedTable
from tistream_changefeed.dispatch.ownership import Ownership
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.pipeline import FeedPipeline
from tistream_changefeed.protocols.messages import Encoder, Message, Messages
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.rows.row_batch import RowBatch

SHARDS = 3
FEED = Feed("all", "open-protocol", "changes", SHARDS)
FENCE, A, DB = Fence(5, 3), ("d", "a"), ("d", "")
SPREAD = {
    "filter": {"rules": ["shop.items", "shop.orders"]},  # without DDLs after their first rows
    "sink": {"dispatchers": [{"matcher": ["shop.*"], "partition": "index-value"}]},
}
WITH_DDLS = 8  # tables with rows before a DDL, at least, in the recorded set
Sent = tuple[int, Name, int, bool]  # commit_ts, table, the order of its transaction, whether it is a DDL


# ---- decisions


def at(ts: int) -> Position:
    return Position(ts)


def shard_at(ts: int, *stopped: StoppedTable, shard: int = 0, revision: int = 0) -> Shard:
    """A shard that has opened its sink, in which it has this progress."""
    tenant = golden_world("everything").tenant
    applied = None if not revision else Applied(revision=revision, from_ts=1, after_ts=1)
    there = Progress(at(ts), 0, FENCE, stopped=stopped, shards=2, applied=applied)
    found = progress.decode(tenant, progress.encode(tenant, there), "sink")
    of = Shard(Order(tenant, "f", shard, FENCE, 1, revision=Revision(revision), shards=2), None)  # type: ignore[arg-type]
    of.acknowledged(of.opened(found, {}, "sink"), 0)
    return of


def stopped(name: Name, ts: int, limit: int | None) -> StoppedTable:
    return StoppedTable(name, at(ts), "why", limit=None if limit is None else at(limit))


def late(there: Progress, until: int) -> bool:
    return bool(barrier.behind({0: there}, range(2), 1, FENCE, Revision(there.revision), at(until)))


def test_a_shard_has_not_come_to_a_barrier_until_its_tables_that_catch_up_have() -> None:
    there = Progress(at(150), 0, FENCE)
    assert late(replace(there, stopped=(stopped(A, 90, None),)), 100), "it is retried"
    assert late(replace(there, stopped=(stopped(A, 90, 95),)), 100), "it has stopped again, and catches up to there"
    assert not late(replace(there, stopped=(stopped(A, 95, 95),)), 100), "it does not come"
    assert not late(replace(there, stopped=(replace(stopped(A, 90, None), left=True),)), 100)
    assert not late(replace(there, stopped=(stopped(A, 100, None),)), 100)


def test_what_has_stopped_before_a_barrier_in_another_shard_stops() -> None:
    found = {
        0: Progress(at(150), 0, FENCE, stopped=(stopped(A, 95, 95), stopped(("d", "b"), 120, 120))),
        1: Progress(at(100), 0, FENCE, stopped=(stopped(("d", "c"), 90, 90),)),
    }
    assert [one.name for one in barrier.stopped(found, range(2), 1, at(100))] == [A]
    assert [one.name for one in barrier.stopped(found, range(2), 0, at(100))] == [("d", "c")]


def test_what_has_stopped_under_this_revision_counts_wherever_the_other_shards_are() -> None:
    there = Progress(
        at(150), 0, FENCE, stopped=(stopped(A, 95, 95),), applied=Applied(revision=2, from_ts=1, after_ts=1)
    )
    found = {0: there, 2: replace(there, stopped=(stopped(A, 60, None),)), 3: replace(there, fence=Fence(4, 9))}
    assert [*barrier.current(found, FENCE, Revision(2))] == [0, 2], "the other one is of an earlier feed"
    assert barrier.current(found, FENCE, Revision(3)) == {}, "they may retry it"
    assert [one.at for one in barrier.stopped(found, range(3), 1, at(100))] == [at(95)], "it is retried in shard 2"
    assert [*barrier.stopped(found, range(3), 1, at(95))] == [], "this shard has not come to where it has stopped"
    assert [*barrier.stopped({}, range(3), 1, at(100))] == []


def test_the_main_lane_stops_a_table_where_the_shards_meet_and_the_other_lane_where_its_table_is() -> None:
    one = shard_at(150)
    assert MainLane(one).adopt(stopped(A, 95, 95), at(120)) == [A]
    assert [(had.name, had.at, had.end, had.reason) for had in one.stopped] == [(A, at(120), at(120), "why")]
    assert MainLane(one).adopt(stopped(A, 99, 99), at(140)) == []
    assert MainLane(one).adopt(stopped(DB, 130, 130), at(140)) == [DB]
    assert MainLane(one).adopt(stopped(("d", "b"), 99, 99), at(140)) == [], "the database has"
    one = shard_at(150, stopped(A, 80, None), revision=1)
    assert one.catching
    assert CatchUpLane(one).adopt(stopped(("d", "b"), 70, 70), at(100)) == [], "the main lane sends it"
    assert CatchUpLane(one).adopt(stopped(A, 70, 70), at(100)) == [A]
    assert ([(had.at, had.end) for had in one.stopped], one.catching) == ([(at(80), at(80))], ())


def test_tables_are_retried_under_the_next_revision_and_not_when_a_worker_takes_over() -> None:
    first = shard_at(150, stopped(A, 80, 90))
    assert [(one.name, one.at, one.end) for one in first.catching] == [(A, at(80), at(90))]
    assert shard_at(150, stopped(A, 90, 90)).catching == ()
    assert [one.at for one in shard_at(150, stopped(A, 150, 150)).stopped] == [at(150)], "its DDL waits in all shards"
    there = Progress(at(150), 0, FENCE, stopped=(stopped(A, 90, 90),), shards=2)
    (retried,) = progress.revised(there, Revision(1), {}).stopped
    assert (retried.at, retried.lacks) == (at(90), True)


def test_the_record_of_a_shard_says_until_where_its_tables_are_sent_and_earlier_releases_refuse_it() -> None:
    tenant = golden_world("everything").tenant
    ends = Progress(at(150), 0, FENCE, stopped=(stopped(A, 90, 95), stopped(DB, 99, None)), shards=2)
    text = progress.encode(tenant, ends)
    assert progress.decode(tenant, text, "log") == ends
    assert json.loads(text)["version"] == 4
    alone = progress.encode(tenant, replace(ends, shards=1))
    assert json.loads(alone)["version"] == 2
    assert [one.limit for one in progress.decode(tenant, alone, "log").stopped] == [None, None]


# ---- holders


@dataclass(frozen=True)
class Refusing:
    """An encoder that refuses some events, by table and commit_ts."""

    encoder: Encoder
    rows_of: set[tuple[Name, int]]
    ddls: set[int]

    @property
    def numbered(self) -> bool:
        return self.encoder.numbered

    @property
    def describes_tables(self) -> bool:
        return self.encoder.describes_tables

    def rows(self, batch: RowBatch) -> Messages:
        refused = {ts for name, ts in self.rows_of if name == batch.version.name} & set(batch.commit_ts.tolist())
        if refused:
            raise CannotEncode(f"its event at {min(refused)} is refused")
        return self.encoder.rows(batch)

    def ddl(self, event: DdlEvent, changes: Sequence[TableChange] = ()) -> Message | None:
        if event.commit_ts in self.ddls:
            raise CannotEncode("it is refused")
        return self.encoder.ddl(event, changes)

    def resolved(self, ts: int) -> Message | None:
        return self.encoder.resolved(ts)


class Leaves:
    """The event of a holder that never waits: it leaves a barrier at which it would wait, and comes again."""

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def set(self) -> None:
        """It has nothing to end."""


@dataclass
class ShardsRun(Run):
    """A feed of several shards, each of which writes one partition. `ddls`: those that the last shard refuses."""

    uri: str = FEED.uri
    rows_of: set[tuple[Name, int]] = field(default_factory=set)
    ddls: set[int] = field(default_factory=set)

    def pipeline(self) -> FeedPipeline:
        made = super().pipeline()
        ddls = self.ddls if self.part.shard == SHARDS - 1 else set()
        return replace(made, encoder=Refusing(made.encoder, self.rows_of, ddls))

    def of_shard(self, shard: int) -> Holder:
        self.part = Ownership(shard, SHARDS)
        holder = self.holder()
        holder._stopping = cast(Event, Leaves())
        return holder

    def settle_all(self, deaths: float = 0.0) -> list[Holder]:
        """Let all shards go on in any order, until none has anything more to do."""
        holders = [self.of_shard(shard) for shard in range(SHARDS)]
        still = 0
        while still < 3:
            before = [(holder.shard.acked, holder.shard._planned) for holder in holders]
            for shard in self.rng.sample(range(SHARDS), SHARDS):
                if self.rng.random() < deaths:
                    holders[shard] = self.of_shard(shard)
                for _ in range(self.rng.choice((1, 1, 4))):
                    if holders[shard].shard.phase not in ("finished", "failed"):
                        holders[shard].step()
                        self.clock.advance(1_100)
            now = [(holder.shard.acked, holder.shard._planned) for holder in holders]
            still = still + 1 if now == before and all(one.shard.phase != "retrying" for one in holders) else 0
        assert [one.report().error for one in holders if one.shard.phase == "failed"] == []
        return holders

    def events(self) -> list[Sent]:
        """The rows and DDLs in all partitions."""
        self.clock.advance(1_000)
        out = []
        for partition in range(SHARDS):
            for _, record in self.kafka.committed(FEED.topic, partition):
                key = json.loads((record.key or b"")[16:])
                if key["t"] != 3:
                    assert record.transaction is not None
                    name = key["scm"], key.get("tbl", "")
                    out.append((key["ts"], name, record.transaction.order, key["t"] == 2))
        return out

    def check_order(self) -> None:
        """Check that each DDL stands behind all rows of its table up to it in all partitions, and before those above
        it; and that nothing stands behind a resolved message of its ts."""
        events = self.events()
        for ts, name, order, is_ddl in events:
            for row_ts, row_name, row_order, barrier_too in events if is_ddl else ():
                if not barrier_too and name[0] == row_name[0] and name[1] in ("", row_name[1]):
                    assert (row_order > order) if row_ts > ts else (row_order <= order), (ts, name, row_ts)
        for partition in range(SHARDS):
            resolved = 0
            for key, _ in self.messages(partition):
                assert key["ts"] > resolved
                resolved = key["ts"] if key["t"] == 3 else resolved


@functools.cache
def wanted() -> dict[int, dict[Name, list[tuple[int, bytes | None]]]]:
    """By partition, what the tables of an undisturbed feed have."""
    found, _ = undisturbed_set("everything", FEED)
    return {
        number: by_table([(json.loads((one.key or b"")[16:]), one.value) for one in every])
        for number, every in found.items()
    }


@functools.cache
def before_ddls() -> tuple[tuple[int, Name, int], ...]:
    """The commit_ts of rows, their table, and the commit_ts of the next DDL of the table."""
    found, _ = undisturbed_set("everything", FEED)
    rows: set[tuple[int, Name]] = set()
    ddls: set[tuple[int, Name]] = set()
    for one in (one for every in found.values() for one in every):
        key: dict[str, Any] = json.loads((one.key or b"")[16:])
        (ddls if one.barrier else rows).add((key["ts"], (key["scm"], key.get("tbl", ""))))
    out = []
    for ts, name in sorted(rows):
        if behind := [ddl for ddl, of in ddls if of == name and ddl > ts]:
            out.append((ts, name, min(behind)))
    return tuple(out)


def only_others_follow() -> Iterator[tuple[DdlEvent, int]]:
    """DDLs whose next event is a row of another table, which the first shard does not send: the DDL, and the commit_ts
    of the row."""
    world = golden_world("everything")
    found = world.source.ddl_events(Scope(world.tenant), Window(world.snapshot_ts, world.end_ts)).events
    ddls = {one.commit_ts: one for one in found}
    events: dict[int, set[tuple[Name, int, bool]]] = {}
    for partition, every in undisturbed_set("everything", FEED)[0].items():
        for one in every:
            key: dict[str, Any] = json.loads((one.key or b"")[16:])
            events.setdefault(one.commit_ts, set()).add(((key["scm"], key.get("tbl", "")), partition, one.barrier))
    for ts, row_ts in pairwise(sorted(events)):
        if any(not is_ddl for _, _, is_ddl in events[ts]):
            continue
        if all(part and not is_ddl and name not in concerned(ddls[ts]) for name, part, is_ddl in events[row_ts]):
            yield ddls[ts], row_ts


def differing(run: ShardsRun) -> set[Name]:
    """The tables that do not have all of their events in a partition."""
    out: set[Name] = set()
    for partition, every in wanted().items():
        there = by_table(run.messages(partition))
        out |= {name for name in {*every, *there} if there.get(name) != every.get(name)}
    return out


def stops(holders: Sequence[Holder]) -> set[Name]:
    return {(one.database, one.table) for holder in holders for one in holder.report().stopped}


@pytest.mark.parametrize("seed", cases([1], range(2, 9)))
def test_tables_that_stop_in_one_shard_stop_in_all_and_alone_and_catch_up_together(seed: int) -> None:
    faults = Faults(lost=0.01, unanswered=0.01, refused=0.01, doubtful=0.02) if seed % 2 else Faults()
    run = ShardsRun(seed, faults)
    assert len({name for _, name, _ in before_ddls()}) >= WITH_DDLS
    ts, name, ddl = run.rng.choice(before_ddls())
    _, other, refused = run.rng.choice([one for one in before_ddls() if one[1] != name])
    run.rows_of, run.ddls = {(name, ts)}, {refused}
    deaths = 0.1 if seed % 2 else 0.0
    holders = run.settle_all(deaths)
    run.check_order()
    found = stops(holders)
    assert {name, other} <= found
    assert differing(run) <= found, "the others have gone on"
    assert not any(there == name and at >= ddl for at, there, _, _ in run.events()), "in no shard after its DDL"
    for holder in holders:
        names = {(one.database, one.table) for one in holder.report().stopped}
        assert name in names, f"shard {holder.shard.order.shard} says it"
        assert (holder.shard.phase, holder.shard.acked and holder.shard.acked.checkpoint_ts < ddl) == ("running", True)
    run.rows_of = set()
    run.changed()
    holders = run.settle_all(deaths)
    run.check_order()
    assert other in stops(holders), "only one of them was repaired"
    run.ddls = set()
    run.changed()
    holders = run.settle_all(deaths)
    run.check_order()
    assert [holder.shard.phase for holder in holders] == ["finished"] * SHARDS
    assert differing(run) == set()
    assert stops(holders) == set()


def test_rows_behind_a_ddl_that_the_sink_of_one_shard_refuses_do_not_wait_for_its_next_event() -> None:
    ddl, row_ts = next(only_others_follow())
    run = ShardsRun(ends=False, sink=refusing(ddl))
    run.pool.ts = row_ts
    holders = run.settle_all()
    run.check_order()
    assert stops(holders) == set(concerned(ddl))
    assert row_ts in [ts for ts, _, _, is_ddl in run.events() if not is_ddl]


def test_a_refused_ddl_of_a_table_that_is_left_behind_holds_no_shard_up() -> None:
    ddl, _ = next(only_others_follow())
    run = ShardsRun(document={"tistream": {"on-table-error": "leave-table"}}, sink=refusing(ddl))
    holders = run.settle_all()
    run.check_order()
    assert [holder.shard.phase for holder in holders] == ["finished"] * SHARDS
    assert stops(holders) == set(concerned(ddl)) >= differing(run)
    assert all(one.left and "is refused" in one.reason for holder in holders for one in holder.report().stopped)


def test_a_table_that_stops_in_one_shard_stops_where_others_have_rows_of_it_though_no_ddl_follows() -> None:
    whole, name = ShardsRun(document=SPREAD), ("shop", "items")
    assert stops(whole.settle_all()) == set()
    found = [one for one in whole.events() if one[1][0] == name[0]]
    last_ddl = max(ts for ts, _, _, is_ddl in found if is_ddl)
    stamps = [ts for ts, of, _, _ in sorted(found) if of == name and ts > last_ddl]
    ts = next(ts for ts in stamps if stamps.count(ts) == 1 and after(whole, name, ts) == {*range(SHARDS)})
    run = ShardsRun(document=SPREAD, rows_of={(name, ts)})
    run.pool.ts = ts
    run.settle_all()
    run.pool.ts = run.world.end_ts
    holders = run.settle_all()
    run.check_order()
    for holder in holders:
        assert stops([holder]) == {name}, f"shard {holder.shard.order.shard}"
    assert after(run, name, ts) == set(), "its rows have not gone on in other partitions"
    run.rows_of = set()
    run.changed()
    holders = run.settle_all()
    run.check_order()
    assert [holder.shard.phase for holder in holders] == ["finished"] * SHARDS
    for partition in range(SHARDS):
        assert by_table(run.messages(partition)) == by_table(whole.messages(partition))


def after(run: ShardsRun, name: Name, ts: int) -> set[int]:
    """The partitions with rows of a table above `ts`."""
    return {part for part in range(SHARDS) if any(at > ts for at, _ in by_table(run.messages(part)).get(name, ()))}
