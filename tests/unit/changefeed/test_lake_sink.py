"""A feed's Iceberg tables: whatever fails, whoever wakes up late, a table has each change once, and each snapshot shows
the table as it was at its resolved_ts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchViewError, RESTError, ServiceUnavailableError
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from pyiceberg.view import View
from pyiceberg.view.metadata import ViewMetadata

from support import feed_tables
from support.effort import cases, seeds
from support.feed_tables import Change, Key
from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.model.ts import Window
from tistream.read.cursor import Place, Position
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb import table as t
from tistream.schema.visible import TableVersion
from tistream.wire.bulk.changefeeds import Move
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.core.load import Load
from tistream_changefeed.core.new_tables import NewTables
from tistream_changefeed.core.outgoing import NOTHING
from tistream_changefeed.core.progress import FIRST, Fence, Revision
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.core.segments import windows
from tistream_changefeed.core.shard import Order, Shard, Transaction
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.rows.split import never, split
from tistream_changefeed.rows.window import EventWindow
from tistream_changefeed.sinks.iceberg.lake import Commit, Lake
from tistream_changefeed.sinks.iceberg.lake_files import write_file
from tistream_changefeed.sinks.iceberg.lake_pipeline import TableDdl
from tistream_changefeed.sinks.iceberg.lake_rows import by_hour
from tistream_changefeed.sinks.iceberg.lake_sink import LakeSink
from tistream_changefeed.sinks.iceberg.table_schema import Shape
from tistream_changefeed.sinks.iceberg.target import Identifier, LakeTarget
from tistream_changefeed.sinks.iceberg.upkeep import DAY_MS, Keeping
from tistream_changefeed.sinks.left_out import LetterMark
from tistream_changefeed.table_errors.tables_refused import TablesRefused
from tistream_client.core.errors import WrongArgument
from tistream_client.lake.now import rows_now

TENANT = TenantKey("7", "acme")
NOW_MS = 20_000 * DAY_MS
START, END = NOW_MS << 18, (NOW_MS + 4_000) << 18
ORDER = Order(TENANT, "lake", 0, Fence(1, 1), START, END)
TARGET = LakeTarget("iceberg://lake", "{database}", ("changes", "table"), 300, 1 << 20)
OWN = "tistream.7__acme__lake"
ID, VALUE = feed_tables.column("id"), feed_tables.column("value")
KEY = [Key("primary", ("id",), primary=True)]
BEFORE = feed_tables.version([ID, VALUE], KEY)
AFTER = feed_tables.version([ID, VALUE, feed_tables.column("added") | {"origin_default": "7"}], KEY)
OTHER = feed_tables.version([ID, VALUE], KEY, name="other", table_id=101)
NEXT = (("moved", 100), ("t", 102))
Event = tuple[int, str, int, int | None, int | None]  # commit_ts, table, id, value before and after


class Killed(BaseException):
    """The process is dead; it has not even closed its sink."""


class LifesLake(Lake):
    """The catalog as one holder reaches it, which may die or pause before and after each step."""

    def __init__(self, life: Life) -> None:
        super().__init__(lambda: life.catalog, "iceberg://lake", life.warehouse, Keeping(), lambda url: url)
        self._life = life

    def commit(self, table: Table, change: Commit) -> None:
        self._life.interrupt()
        super().commit(table, change)
        self._life.interrupt()

    def create(self, *arguments: Any) -> Table:
        self._life.interrupt()
        return super().create(*arguments)

    def rename(self, before: Identifier, after: Identifier) -> Table:
        self._life.renaming()
        return super().rename(before, after)

    def close(self) -> None:
        """Other holders use the catalog too."""


class Life:
    """Holders one after the other, of which some wake up while others work."""

    def __init__(self, seed: int, root: Path, target: LakeTarget = TARGET) -> None:
        self.rng, self.clock, self.target = Random(seed), ManualClock(NOW_MS), target
        self.warehouse = f"file://{root}/lake"
        self.catalog = SqlCatalog("lake", uri="sqlite://", warehouse=self.warehouse)
        stamps = sorted(self.rng.sample(range(START + 1, END + 1), 10))
        self.ddl = stamps[5] + 1
        self.events = [event for ts in stamps for event in self.changes(ts)]
        self.epoch = self.depth = 0
        self.resolved_ts = START
        self.finished = False
        self.names = map("{:016x}".format, itertools.count())
        self.failures: set[str] = set()
        self.state: dict[tuple[str, int], int] = {}

    def changes(self, ts: int) -> list[Event]:
        """What a transaction does to a few rows of both tables."""
        self.state = getattr(self, "state", {})
        out: list[Event] = []
        for table, number in self.rng.sample([("t", 1), ("t", 2), ("t", 3), ("other", 1)], 2):
            before = self.state.get((table, number))
            after = None if before is not None and self.rng.random() < 0.4 else self.rng.randrange(1 << 40)
            out.append((ts, table, number, before, after))
            if after is None:
                del self.state[table, number]
            else:
                self.state[table, number] = after
        return out

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def interrupt(self) -> None:
        """The process may be killed here; or it is paused, and another one takes over."""
        if self.chance(0.03):
            raise Killed
        if self.depth < 2 and self.chance(0.03):
            self.depth += 1
            self.hold()
            self.depth -= 1

    def renaming(self) -> None:
        """A table is renamed after this."""
        self.interrupt()

    def run(self) -> None:
        while not self.finished:
            self.hold()

    def sink(self, order: Order, lake: Lake | None = None) -> LakeSink:
        return LakeSink(self.target, lake or LifesLake(self), order, self.clock, lambda: next(self.names))

    def hold(self) -> None:
        """A new holder works until it has finished, fails or is killed; or it stops in the middle. It may have the
        epoch of another one, as after a restore of the meta database."""
        self.epoch += int(self.chance(0.7))
        shard = Shard(replace(ORDER, fence=Fence(1, self.epoch)), self.rng)
        sink = self.sink(shard.order)
        try:
            self.write(shard, sink, shard.opened(*sink.open(), sink.where))
            while shard.phase != "finished" and not self.chance(0.05):
                self.step(shard, sink)
            self.finished = self.finished or shard.phase == "finished"
        except FeedFailed as error:
            self.failures.add(error.failure.kind)
            if error.failure.kind == "failed":
                raise
        except Killed:
            return

    def step(self, shard: Shard, sink: LakeSink) -> None:
        self.clock.advance(self.rng.randrange(300))
        low = shard.at
        if self.chance(0.5):
            self.resolved_ts = min(self.resolved_ts + self.rng.randrange(1, 1_500 << 18), END)
        high = max(low.low_ts, self.resolved_ts)
        at_ddl = low < Position(self.ddl, Place.DDL, table_id=1) and self.ddl <= high
        until = Position(self.ddl - 1) if at_ddl else Position(high)
        found = [event for event in self.events if low.low_ts < event[0] <= until.commit_ts]
        events = rows_of(found, self.ddl)
        for window in windows(events.commit_ts, events.sizes, 100, until):
            part = events.between(window.start, window.end)
            self.write(shard, sink, shard.send(part, len(part), (), window.until))
        shard.skip(until)
        if at_ddl:
            end = Position(self.ddl, Place.DDL, table_id=1)
            self.write(shard, sink, shard.send(NOTHING, 0, (added_column(self.ddl),), end))
            shard.skip(Position(self.ddl))
        if shard.at.commit_ts == END or (sink.waits and shard.at.low_ts == self.resolved_ts):
            self.write(shard, sink, shard.send(NOTHING, 0, (), shard.at))

    def write(self, shard: Shard, sink: LakeSink, transaction: Transaction) -> None:
        if sink.write(transaction):
            shard.acknowledged(transaction, self.clock.monotonic_ms())

    # ---- what readers see

    def check(self) -> None:
        """What the feed's own table promises is in its tables, and each snapshot is the table at one ts."""
        promised = int(self.summaries(OWN)[-1]["tistream.resolved_ts"])
        for name in ("t", "other"):
            mine = [event for event in self.events if event[1] == name]
            changes = self.rows(f"d.{name}__changes")
            got = [(one["_commit_ts"], one["id"], one["_op"], one["value"], one["_old"]) for one in changes]
            assert len({one[:2] for one in got}) == len(got)
            wanted = [
                (ts, number, op_of(old, new), old if new is None else new, None if old is None else old)
                for ts, _, number, old, new in mine
            ]
            old = [(*one[:4], None if one[4] is None else one[4]["value"]) for one in got]
            assert sorted(old, key=str) == sorted(wanted[: len(got)], key=str)
            assert len(got) >= sum(event[0] <= promised for event in mine)
            table = self.catalog.load_table(f"d.{name}")
            for snapshot, summary in zip(table.metadata.snapshots, self.summaries(f"d.{name}"), strict=True):
                at_ts = int(summary["tistream.resolved_ts"])
                found = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
                assert shown(found) == self.state_at(name, at_ts)

    def state_at(self, name: str, at_ts: int) -> list[tuple[Any, ...]]:
        """The rows of a table at a ts: id, value, and the column that the DDL has added."""
        newest = {event[2]: event for event in self.events if event[1] == name and event[0] <= at_ts}
        default = 7 if name == "t" and at_ts >= self.ddl else None
        return sorted(
            (number, event[4], default if event[0] <= self.ddl else None)
            for number, event in newest.items()
            if event[4] is not None
        )

    def check_now(self) -> None:
        """Each snapshot of a delta and the one of its table that it names are the table at one ts."""
        for name in ("t", "other"):
            if not self.catalog.table_exists(f"d.{name}_delta"):  # a row came and went in its only window
                assert self.state_at(name, END) == self.rows(f"d.{name}")
                continue
            table, delta = (self.catalog.load_table(f"d.{name}{end}") for end in ("", "_delta"))
            for snapshot, summary in zip(delta.metadata.snapshots, self.summaries(f"d.{name}_delta"), strict=True):
                base = int(summary["tistream.base"]) if "tistream.base" in summary else None
                if base is not None:  # else it is the fence of a worker that has taken over, and nothing was there yet
                    at_ts = int(summary["tistream.resolved_ts"])
                    assert shown(joined(table, base, delta, snapshot.snapshot_id)) == self.state_at(name, at_ts)
            at_end = rows_now(table, delta)
            assert at_end.schema.metadata[b"tistream.ts"].decode() == delta.properties["tistream.resolved_ts"]
            assert shown(at_end.to_pylist()) == self.state_at(name, END)

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.catalog.load_table(name).scan().to_arrow().to_pylist()
        return found

    def summaries(self, name: str) -> list[Mapping[str, str]]:
        snapshots = self.catalog.load_table(name).metadata.snapshots
        return [one.summary.additional_properties for one in snapshots if one.summary is not None]


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["value"], row.get("added")) for row in rows)


def joined(table: Table, table_at: int, delta: Table, delta_at: int) -> list[dict[str, Any]]:
    """The rows of a snapshot of a table without the keys of one of its delta, and the rows of that one."""
    rows, changed = (
        one.scan(snapshot_id=at).to_arrow().to_pylist() for one, at in ((table, table_at), (delta, delta_at))
    )
    keys = [row["id"] for row in changed]
    assert len(set(keys)) == len(keys)
    return [row for row in rows if row["id"] not in keys] + [row for row in changed if not row["_deleted"]]


def op_of(old: int | None, new: int | None) -> str:
    return "insert" if old is None else "delete" if new is None else "update"


def rows_of(events: list[Event], ddl_ts: int) -> RowEvents:
    batches = []
    first = 0
    for version, chosen in (
        (BEFORE, [one for one in events if one[1] == "t" and one[0] <= ddl_ts]),
        (AFTER, [one for one in events if one[1] == "t" and one[0] > ddl_ts]),
        (OTHER, [one for one in events if one[1] == "other"]),
    ):
        if chosen:
            batches.append(feed_tables.batch(version, [change(one) for one in chosen], first_at=first))
            first += len(chosen)
    return RowEvents(split(EventWindow(tuple(batches), ()), never))


def change(event: Event) -> Change:
    ts, table, number, old, new = event
    sides = [None if value is None else {"id": number, "value": value} for value in (old, new)]
    return Change(*sides, commit_ts=ts, start_ts=ts - 1, key=f"{table}{number}".encode())


def added_column(ts: int) -> TableDdl:
    event = DdlEvent(
        ts, ts - 1, 1, "d", "t", "alter table t add added bigint default 7", "add column", ts, (("d", "t"),)
    )
    return TableDdl(event, (TableChange(BEFORE, AFTER),))


@pytest.mark.parametrize("seed", seeds(1, 300))
def test_each_change_is_there_once_whoever_is_killed_or_wakes_up_late(seed: int, tmp_path: Path) -> None:
    life = Life(seed, tmp_path)
    life.run()
    life.check()
    assert len(life.rows("d.t__changes")) + len(life.rows("d.other__changes")) == len(life.events)


@pytest.mark.parametrize("seed", seeds(2, 300))
def test_a_table_and_its_delta_are_the_table_at_one_ts_whoever_is_killed(seed: int, tmp_path: Path) -> None:
    life = Life(seed, tmp_path, replace(TARGET, delta_share=30))
    life.run()
    life.check()
    life.check_now()


def test_a_worker_that_wakes_up_in_the_middle_of_a_window_commits_nothing_more(tmp_path: Path) -> None:
    life = Life(1, tmp_path)
    life.interrupt = lambda: None  # type: ignore[method-assign]
    shard, sink = opened(life, 1)
    first = [event for event in life.events if event[0] <= life.events[2][0]]
    rows = rows_of(first, life.ddl)
    life.write(shard, sink, shard.send(rows, len(rows), (), Position(first[-1][0])))
    tables = ["d.t", "d.t__changes", "d.other", "d.other__changes"]
    made: list[str] = []

    def late() -> None:
        """The worker has begun its window, and stands still before it commits to a table."""
        if len(life.summaries(OWN)) == 2 and not made:
            made.append("another")
            another, theirs = opened(life, 2)
            life.write(another, theirs, another.send(NOTHING, 0, (), another.at))

    life.interrupt = late  # type: ignore[method-assign]
    life.clock.advance(300)
    with pytest.raises(FeedFailed) as found:
        life.write(shard, sink, shard.send(NOTHING, 0, (), shard.at))
    assert found.value.failure.kind == "fenced"
    assert made
    assert [row for name in tables for row in life.rows(name)] == []


def test_rows_that_a_table_has_are_not_written_again_after_a_crash(tmp_path: Path) -> None:
    life = Life(1, tmp_path)
    life.interrupt = lambda: None  # type: ignore[method-assign]
    shard, sink = opened(life, 1)
    rows = rows_of(life.events, life.ddl)
    life.write(shard, sink, shard.send(rows_of(life.events[:4], life.ddl), 4, (), Position(life.events[3][0])))
    life.clock.advance(300)

    def dying() -> None:
        if "d" in {name for (name, *_) in life.catalog.list_namespaces()} and any(
            life.summaries(f"d.{name}__changes")
            for name in ("t", "other")
            if life.catalog.table_exists(f"d.{name}__changes")
        ):
            raise Killed

    life.interrupt = dying  # type: ignore[method-assign]
    with pytest.raises(Killed):
        life.write(shard, sink, shard.send(NOTHING, 0, (), shard.at))
    life.interrupt = lambda: None  # type: ignore[method-assign]
    shard, sink = opened(life, 2)
    assert shard.at == Position(START)
    life.write(shard, sink, shard.send(rows, len(rows), (), Position(END)))
    assert len(life.rows("d.t__changes")) + len(life.rows("d.other__changes")) == len(life.events)


def test_metadata_stays_small_and_files_that_no_snapshot_names_are_deleted_after_a_day(tmp_path: Path) -> None:
    life = Life(1, tmp_path)
    life.interrupt = lambda: None  # type: ignore[method-assign]
    target = replace(TARGET, shapes=("table",), keeping=Keeping(snapshots=3, hours=0))
    shard = Shard(replace(ORDER, fence=Fence(1, 1), end_ts=None), life.rng)
    lake = Lake(lambda: life.catalog, "iceberg://lake", life.warehouse, target.keeping, lambda url: url)
    sink = LakeSink(target, lake, shard.order, life.clock, lambda: next(life.names))
    life.write(shard, sink, shard.opened(*sink.open(), sink.where))
    for number in range(6):
        if number == 5:
            places = [Path(life.catalog.load_table(name).location().removeprefix("file://")) for name in ("d.t", OWN)]
            orphans = [place / "metadata" / "orphan" for place in places]
            for orphan in orphans:
                orphan.write_bytes(b"")
            life.clock.advance(int(orphans[-1].stat().st_mtime * 1_000) + DAY_MS + 1_000 - life.clock.now_ms())
        ts = START + 1 + number
        rows = rows_of([(ts, "t", 1, None if number == 0 else number - 1, number)], END)
        life.write(shard, sink, shard.send(rows, 1, (), Position(ts)))
        life.clock.advance(300)
        life.write(shard, sink, shard.send(NOTHING, 0, (), shard.at))
    table = life.catalog.load_table("d.t")
    assert len(table.metadata.snapshots) <= 4  # one more has a tag
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "value": 5}]
    assert not any(orphan.exists() for orphan in orphans)


def test_a_table_that_another_program_has_dropped_or_changed_stops_the_feed(tmp_path: Path) -> None:
    life = Life(1, tmp_path)
    life.interrupt = lambda: None  # type: ignore[method-assign]
    target = replace(TARGET, shapes=("table",))
    shard = Shard(replace(ORDER, fence=Fence(1, 1), end_ts=None), life.rng)
    sink = LakeSink(target, LifesLake(life), shard.order, life.clock, lambda: next(life.names))
    life.write(shard, sink, shard.opened(*sink.open(), sink.where))

    def sent(number: int) -> None:
        rows = rows_of([(START + number, "t", number, None, number)], END)
        life.write(shard, sink, shard.send(rows, 1, (), Position(START + number)))
        life.clock.advance(300)
        life.write(shard, sink, shard.send(NOTHING, 0, (), shard.at))

    sent(1)
    table = life.catalog.load_table("d.t")
    with table.transaction() as change:
        change.set_properties({"commit.retry.num-retries": "4"})
    shard, sink = opened_as(life, target)
    with pytest.raises(FeedFailed, match="num-retries is not 0") as found:
        sent(2)
    assert found.value.failure.kind == "failed"
    with life.catalog.load_table("d.t").transaction() as change:
        change.set_properties({"commit.retry.num-retries": "0"})
    shard, sink = opened_as(life, target)
    sent(2)
    life.catalog.drop_table("d.t")
    with pytest.raises(FeedFailed, match="has dropped, renamed or replaced the table") as found:
        sent(3)
    assert found.value.failure.kind == "failed"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_table_that_goes_away_while_no_worker_runs_is_not_created_again_unnoticed(
    tmp_path: Path, *, replaced: bool
) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    feed.rows(BEFORE, (None, 1))
    feed.rows(OTHER, (None, 5))
    catalog = feed.life.catalog
    there = catalog.load_table("d.t")
    catalog.drop_table("d.t")
    if replaced:
        place = f"{there.location()}-copy"
        catalog.create_table("d.t", there.schema(), place, properties=there.properties)
    for _ in range(2):
        feed.shard, feed.sink = opened_as(feed.life, feed.target)
        feed.rows(OTHER, (None, 5 + feed.life.epoch))
        with pytest.raises(FeedFailed, match=r"d\.t: another program has dropped, renamed or replaced") as found:
            feed.rows(BEFORE, (None, 2))
        assert found.value.failure.kind == "failed"
    if replaced:
        catalog.drop_table("d.t")
    at = Move(revision=1, ts=feed.ts - 1)
    feed.shard, feed.sink = opened_as(feed.life, feed.target, Revision(1, at))
    feed.rows(BEFORE, (None, 3))
    feed.shard, feed.sink = opened_as(feed.life, feed.target, Revision(1, at))
    feed.rows(BEFORE, (None, 4))
    assert feed.ids("d.t") == [3, 4]


def test_a_table_that_was_dropped_in_the_cluster_may_be_dropped_in_the_catalog(tmp_path: Path) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    feed.rows(BEFORE, (None, 1))
    feed.ddl("drop table", TableChange(BEFORE, None))
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    feed.life.catalog.drop_table("d.t")
    second = feed_tables.version([ID, VALUE], KEY, table_id=102)
    feed.ddl("create table", TableChange(None, second))
    feed.rows(second, (None, 2))
    assert feed.ids("d.t") == [2]


@pytest.mark.parametrize("shape", ["table", "changes"])
@pytest.mark.parametrize("restored", [False, True])
def test_a_table_that_another_program_has_rolled_back_stops_the_feed(
    tmp_path: Path, shape: Shape, *, restored: bool
) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=(shape,)))
    name, catalog = "d.t" if shape == "table" else "d.t__changes", feed.life.catalog
    feed.rows(BEFORE, (None, 1))
    older = catalog.load_table(name)
    feed.rows(BEFORE, (None, 2))
    at, newest = feed.ts, current(catalog.load_table(name))
    if restored:
        catalog.drop_table(name)
        catalog.register_table(name, older.metadata_location)
    else:
        catalog.load_table(name).manage_snapshots().rollback_to_snapshot(current(older)).commit()
    with pytest.raises(FeedFailed, match="another writer has changed the table"):
        feed.rows(BEFORE, (None, 3))
    for _ in range(2):
        with pytest.raises(FeedFailed, match=f"{name}: another program has rolled the table back") as found:
            feed.shard, feed.sink = opened_as(feed.life, feed.target)
        assert found.value.failure.kind == "failed"
        touched(catalog, name)  # a snapshot on top of the older state does not hide it
    if restored:
        for _ in range(2):
            moved = Revision(1, Move(revision=1, ts=at))
            feed.shard, feed.sink = opened_as(feed.life, feed.target, moved)
            feed.rows(BEFORE, (None, feed.ts))
        assert len(feed.ids(name)) == 3
    else:
        catalog.load_table(name).manage_snapshots().set_current_snapshot(newest).commit()
        feed.shard, feed.sink = opened_as(feed.life, feed.target)
        feed.rows(BEFORE, (None, 3))
        assert feed.ids(name) == [1, 2, 3]


def test_rows_that_are_still_to_be_loaded_come_after_a_rolled_back_table_was_accepted(tmp_path: Path) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    ts = feed.ts + 1
    created = feed.shard.send(NOTHING, 0, (NewTables((BEFORE,)),), Position(ts))
    feed.send(loading(created, ts, b""))
    feed.load(ts, 1)
    older = feed.life.catalog.load_table("d.t")
    feed.load(ts, 2)
    feed.life.catalog.load_table("d.t").manage_snapshots().rollback_to_snapshot(current(older)).commit()
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    with pytest.raises(FeedFailed, match=r"d\.t: another program has rolled the table back"):
        feed.load(ts, 3)
    moved = Revision(1, Move(revision=1, ts=ts))
    feed.shard, feed.sink = opened_as(feed.life, feed.target, moved)
    feed.load(ts, 3)
    assert feed.ids("d.t") == [1, 3]


@pytest.mark.parametrize("metadata", [True, False])
def test_rows_are_there_once_though_another_program_expires_every_snapshot_of_the_feed(
    tmp_path: Path, *, metadata: bool
) -> None:
    """`metadata`: whether the earlier metadata files are there; without them, the data files show whose rows it has."""
    feed = Steady(tmp_path)
    catalog = feed.life.catalog
    feed.rows(BEFORE, (None, 1))

    def dying() -> None:
        """The worker has committed to both tables, and not its progress."""
        if len(feed.life.summaries("d.t")) == 2:
            raise Killed

    feed.life.interrupt = dying  # type: ignore[method-assign]
    with pytest.raises(Killed):
        feed.rows(BEFORE, (None, 2))
    feed.life.interrupt = lambda: None  # type: ignore[method-assign]
    at = feed.ts
    for number in (2, 3):
        for name in ("d.t", "d.t__changes", OWN):
            touched(catalog, name, alone=True)
            assert len(feed.life.summaries(name)) == 1
            if not metadata:
                without_earlier_metadata(catalog, name)
        feed.shard, feed.sink = opened_as(feed.life, feed.target)
        assert feed.shard.at == Position(at - 1)
        feed.ts = at - 1
        feed.rows(BEFORE, (None, number))
        at += 1
    assert (feed.ids("d.t"), feed.ids("d.t__changes")) == ([1, 2, 3], [1, 2, 3])


def current(table: Table) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def touched(catalog: SqlCatalog, name: str, *, alone: bool = False) -> None:
    """Another program adds a snapshot to a table. `alone`: it drops all others, and their tags."""
    with catalog.load_table(name).transaction() as change:
        change.update_snapshot().merge_append().commit()
    if alone:
        all_but_current_expire(catalog, name)


def without_earlier_metadata(catalog: SqlCatalog, name: str) -> None:
    for entry in catalog.load_table(name).metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink(missing_ok=True)


def all_but_current_expire(catalog: SqlCatalog, name: str) -> None:
    table = catalog.load_table(name)
    for tag in [one for one in table.refs() if one != "main"]:
        table.manage_snapshots().remove_tag(tag).commit()
    others = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != current(table)]
    table.maintenance.expire_snapshots().by_ids(others).commit()


@pytest.mark.parametrize("last", cases((2, 5, 8), (0, 1, 3, 4, 6, 7)))
def test_a_worker_that_takes_over_in_a_rename_finds_the_tables(tmp_path: Path, last: int) -> None:
    """Two tables swap their names; then one is set aside, because the feed leaves out the DDL that has dropped it. The
    worker is killed before its step `last`."""
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    feed.rows(BEFORE, (None, 1))
    feed.rows(OTHER, (None, 2))
    first = feed_tables.version([ID, VALUE], KEY, name="other")
    second = feed_tables.version([ID, VALUE], KEY, table_id=101)
    third = feed_tables.version([ID, VALUE], KEY, table_id=102)
    swap = ("rename table", TableChange(BEFORE, first), TableChange(OTHER, second))
    steps = itertools.count()

    def dying() -> None:
        if next(steps) == last:
            raise Killed

    feed.life.interrupt = dying  # type: ignore[method-assign]
    killed = 0
    for ddl in (swap, ("create table", TableChange(None, third))):
        at = feed.ts
        try:
            feed.ddl(*ddl)
        except Killed:
            killed += 1
            feed.life.interrupt = lambda: None  # type: ignore[method-assign]
            feed.ts = at
            feed.shard, feed.sink = opened_as(feed.life, feed.target)
            feed.ddl(*ddl)
    assert killed == 1
    feed.rows(third, (None, 3))
    feed.rows(first, (None, 4))
    assert (feed.ids("d.t"), feed.ids("d.other")) == ([3], [1, 4])


@pytest.mark.parametrize("last", [None, *cases((3, 5, 7, 9), (0, 1, 2, 4, 6, 8, 10, 11, 12, 13, 14))])
def test_a_new_version_of_a_table_has_all_rows_though_the_worker_is_killed(tmp_path: Path, last: int | None) -> None:
    """The first version stays, under a tag. A rename gives the new name to the newest version. The worker is killed
    before its step `last`."""
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",), file_bytes=16))
    catalog = feed.life.catalog
    number, text = feed_tables.column("value"), feed_tables.column("value", t.VARCHAR, Flen=30) | {"id": 7}
    typed, back = feed_tables.version([ID, text], KEY), feed_tables.version([ID, number | {"id": 8}], KEY)
    moved = feed_tables.version([ID, number | {"id": 8}], KEY, name="moved")
    feed.rows(BEFORE, (None, 1), (None, 2))
    kept = sorted((row["id"], row["value"]) for row in feed.life.rows("d.t"))
    steps = itertools.count()

    def dying() -> None:
        if next(steps) == last:
            raise Killed

    def again(*ddl: Any) -> None:
        """Apply a DDL; if the worker dies in it, the next one does."""
        at, epoch = feed.ts, feed.life.epoch
        try:
            feed.ddl(*ddl)
        except Killed:
            feed.life.interrupt = lambda: None  # type: ignore[method-assign]
            feed.ts = at
            feed.shard, feed.sink = opened_as(feed.life, feed.target)
            assert feed.life.epoch > epoch
            feed.reread()
            feed.ddl(*ddl)

    feed.life.interrupt = dying  # type: ignore[method-assign]
    feed.again = {1: "one", 2: "two", 3: "three"}
    feed.reread()
    again("modify column", TableChange(BEFORE, typed))
    assert {row["id"]: row["value"] for row in feed.life.rows("d.t__v2")} == feed.again
    old = catalog.load_table("d.t")
    assert sorted((row["id"], row["value"]) for row in feed.life.rows("d.t")) == kept
    assert old.properties["tistream.next_version"] == "t__v2"
    tagged = old.scan(snapshot_id=old.refs()["v1"].snapshot_id).to_arrow().to_pylist()
    assert sorted((row["id"], row["value"]) for row in tagged) == kept
    feed.again = {1: 1, 3: 3}
    again("modify column", TableChange(typed, back))
    assert {row["id"]: row["value"] for row in feed.life.rows("d.t__v3")} == feed.again
    again("rename table", TableChange(back, moved))
    feed.life.interrupt = lambda: None  # type: ignore[method-assign]
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    feed.rows(moved, (None, 4), (3, None))
    assert feed.ids("d.moved") == [1, 4]
    names = [name for _, name in catalog.list_tables("d")]
    assert len(names) == 3
    assert sum("__dropped_" in name for name in names) == 2
    feed.rows(BEFORE, (None, 9))  # another table of the old name
    assert feed.ids("d.t") == [9]


def test_the_newest_version_is_found_though_the_first_one_was_dropped(tmp_path: Path) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    typed = feed_tables.version([ID, feed_tables.column("value", t.VARCHAR, Flen=30) | {"id": 7}], KEY)
    feed.rows(BEFORE, (None, 1))
    feed.again = {1: "one"}
    feed.reread()
    feed.ddl("modify column", TableChange(BEFORE, typed))
    feed.life.catalog.drop_table("d.t")
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    feed.values(typed, {"id": 2, "value": "two"})
    assert feed.ids("d.t__v2") == [1, 2]
    feed.ddl("drop table", TableChange(typed, None))
    feed.rows(second := feed_tables.version([ID, VALUE], KEY, table_id=102), (None, 3))
    assert feed.ids("d.t") == [3]
    feed.again = {3: "three"}
    feed.reread()
    feed.ddl("modify column", TableChange(second, feed_tables.version(typed_columns(), KEY, table_id=102)))
    assert feed.ids("d.t__v2") == [3]


def typed_columns() -> list[dict[str, Any]]:
    return [ID, feed_tables.column("value", t.VARCHAR, Flen=30) | {"id": 9}]


def test_small_changes_wait_in_the_delta_and_a_reader_may_open_both_tables_in_any_order(tmp_path: Path) -> None:
    """After each window the snapshots of both; those of two windows that follow each other are right together."""
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",), delta_share=20, file_bytes=64))
    rng, catalog = Random(1), feed.life.catalog
    state: dict[int, int] = {}
    seen: list[tuple[int, int, dict[int, int]]] = []  # snapshots of the table and of the delta, and the rows
    rewritten = 0
    for number in range(12):
        chosen = range(1, 21) if number == 0 else rng.sample(range(1, 26), rng.choice((1, 1, 4)))
        feed.changes(BEFORE, written(feed, BEFORE, state, [-one if rng.random() < 0.3 else one for one in chosen]))
        table, delta = catalog.load_table("d.t"), catalog.load_table("d.t_delta")
        assert table.properties["tistream.delta"] == "t_delta"
        seen.append((current(table), current(delta), dict(state)))
        assert {row["id"]: row["value"] for row in rows_now(table, delta).to_pylist()} == state
        summary = table.metadata.current_snapshot().summary.additional_properties  # type: ignore[union-attr]
        then = next((rows for _, at, rows in seen if ts_of(delta, at) == summary["tistream.resolved_ts"]), {})
        assert {row["id"]: row["value"] for row in feed.life.rows("d.t")} == then
        rewritten += number > 1 and seen[-2][0] != seen[-1][0]
    assert 0 < rewritten < 8
    for at, (_, snapshot, rows) in enumerate(seen):
        for other, _, _ in seen[max(0, at - 1) : at + 2]:
            found = joined(catalog.load_table("d.t"), other, catalog.load_table("d.t_delta"), snapshot)
            assert {row["id"]: row["value"] for row in found} == rows, (at, other)
    with pytest.raises(WrongArgument, match="is not the delta of the table"):
        rows_now(catalog.load_table("d.t"), catalog.load_table("d.t"))


def ts_of(table: Table, snapshot_id: int) -> str:
    found = table.metadata.snapshot_by_id(snapshot_id)
    assert found is not None
    assert found.summary is not None
    return found.summary.additional_properties["tistream.resolved_ts"]


def written(feed: Steady, version: TableVersion, state: dict[int, Any], numbers: Sequence[int]) -> list[Change]:
    """The next transaction of a feed, which puts rows into `state`, by id; those with a negative number are deleted."""
    feed.ts += 1
    more = {column.name: 7 for column in version.table.visible_columns[2:]}
    text, out = version.table.visible_columns[1].tp == t.VARCHAR, []
    for number in numbers:
        key = abs(number)
        value = f"v{feed.ts}" if text else feed.ts
        old = {"id": key, "value": state[key], **more} if key in state else None
        new = {"id": key, "value": value, **more} if number > 0 else None
        if old or new:
            out.append(Change(old, new, feed.ts, feed.ts - 1, str(key).encode()))
        state.pop(key, None)
        if new is not None:
            state[key] = value
    return out


@pytest.mark.parametrize("last", [None, *cases((20, 70, 120), [*range(0, 128, 5), *range(3, 128, 5)])])
def test_ddls_come_to_a_table_and_its_delta_though_the_worker_is_killed(tmp_path: Path, last: int | None) -> None:
    """The worker is killed before its step `last`: a commit, the creation of a table, or a rename."""
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",), delta_share=40))
    catalog = feed.life.catalog
    text = feed_tables.column("value", t.VARCHAR, Flen=30) | {"id": 7}
    third = feed_tables.column("added") | {"origin_default": "7"}
    typed = feed_tables.version([ID, text, third], KEY)
    moved, empty = (feed_tables.version([ID, text, third], KEY, name="moved", table_id=at) for at in (100, 105))
    fresh = feed_tables.version([ID, VALUE], KEY, name="moved", table_id=106)
    state: dict[int, Any] = {}
    steps = itertools.count()

    def dying() -> None:
        if next(steps) == last:
            raise Killed

    def surely(act: Callable[[], None]) -> None:
        """Do it; if the worker dies in it, the next one does."""
        at = feed.ts
        try:
            act()
        except Killed:
            feed.life.interrupt = lambda: None  # type: ignore[method-assign]
            feed.ts = at
            feed.shard, feed.sink = opened_as(feed.life, feed.target)
            feed.reread()
            act()

    def rows(version: TableVersion, *numbers: int) -> None:
        changes = written(feed, version, state, numbers)
        surely(lambda: feed.changes(version, changes))
        check(version)

    def check(version: TableVersion) -> None:
        names = [name for _, name in catalog.list_tables("d")]
        (name,) = {one for one in names if one in (version.name[1], f"{version.name[1]}__v2")} - replaced
        table = catalog.load_table(f"d.{name}")
        if not table.properties.get("tistream.delta"):
            assert {row["id"]: row["value"] for row in feed.life.rows(f"d.{name}")} == state
            return
        found = rows_now(table, catalog.load_table(f"d.{name}_delta")).to_pylist()
        assert {row["id"]: row["value"] for row in found} == state
        assert all(row["added"] == 7 for row in found if "added" in row)

    def ddl(action: str, *changes: TableChange) -> None:
        surely(lambda: feed.ddl(action, *changes))

    replaced: set[str] = set()
    feed.life.interrupt = dying  # type: ignore[method-assign]
    feed.reread()
    rows(BEFORE, 1, 2, 3, 4, 5)
    rows(BEFORE, 1)
    ddl("add column", TableChange(BEFORE, AFTER))
    check(AFTER)
    rows(AFTER, -2)
    state |= {one: f"w{one}" for one in state}
    feed.again = state
    ddl("modify column", TableChange(AFTER, typed))
    replaced.add("t")
    check(typed)
    rows(typed, 3, 9)
    rows(typed, -4)
    ddl("rename table", TableChange(typed, moved))
    check(moved)
    rows(moved, 5)
    state.clear()
    ddl("truncate table", TableChange(moved, empty))
    check(empty)
    rows(empty, 6)
    ddl("drop table", TableChange(empty, None))
    assert feed.ids("d.moved") == [6]
    state.clear()
    ddl("create table", TableChange(None, fresh))
    rows(fresh, 8)
    if last is not None:
        assert next(steps) > last, "the worker was killed"
    feed.target = replace(feed.target, delta_share=0)
    feed.life.interrupt = lambda: None  # type: ignore[method-assign]
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    rows(fresh, 7)
    assert feed.ids("d.moved") == [7, 8]
    feed.target = replace(feed.target, delta_share=40)
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    rows(fresh, -7)


class ViewCatalog(SqlCatalog):
    """A catalog that has views too."""

    def __init__(self, root: Path) -> None:
        super().__init__("lake", uri="sqlite://", warehouse=f"file://{root}/lake")
        self.shown: dict[str, View] = {}
        self.refusal: Exception | None = None

    def create_view(self, identifier: Any, schema: Any, view_version: Any, *_: Any, **__: Any) -> View:
        if self.refusal is not None:
            raise self.refusal
        known: dict[str, Any] = {"format-version": 1, "location": "", "current-version-id": 1, "version-log": []}
        known |= {"schemas": [schema], "versions": [view_version], "view-uuid": "00000000-0000-0000-0000-000000005570"}
        return self.shown.setdefault(".".join(identifier), View(identifier, ViewMetadata.model_validate(known)))

    def load_view(self, identifier: Any) -> View:
        if ".".join(identifier) not in self.shown:
            raise NoSuchViewError(identifier)
        return self.shown[".".join(identifier)]

    def drop_view(self, identifier: Any) -> None:
        del self.shown[".".join(identifier)]


def with_views(root: Path, state: dict[int, Any]) -> tuple[Steady, ViewCatalog]:
    """A feed with deltas into a catalog that has views, with the rows `state`: five, of which one has changed since."""
    feed = Steady(root, replace(TARGET, shapes=("table",), delta_share=40))
    feed.life.catalog = catalog = ViewCatalog(root)
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    for numbers in (range(1, 6), [1], [1]):
        feed.changes(BEFORE, written(feed, BEFORE, state, numbers))
    assert [*catalog.shown] == ["d.t_now"]
    return feed, catalog


@pytest.mark.parametrize("last", [None, *range(2, 10)])
def test_a_feed_that_has_no_deltas_any_more_leaves_no_older_rows_to_its_readers(
    tmp_path: Path, last: int | None
) -> None:
    """The worker that ends the delta is killed before or after one of its commits."""
    state: dict[int, Any] = {}
    feed, catalog = with_views(tmp_path, state)
    feed.target = replace(feed.target, delta_share=0)
    steps = itertools.count()

    def dying() -> None:
        if next(steps) == last:
            raise Killed

    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    changes = written(feed, BEFORE, state, [-1, 2])
    feed.life.interrupt = dying  # type: ignore[method-assign]
    try:
        feed.changes(BEFORE, changes)
    except Killed:
        feed.life.interrupt = lambda: None  # type: ignore[method-assign]
        feed.shard, feed.sink = opened_as(feed.life, feed.target)
        feed.changes(BEFORE, changes)
    assert last is None or next(steps) > last
    table, delta = catalog.load_table("d.t"), catalog.load_table("d.t_delta")
    for rows in (feed.life.rows("d.t"), joined(table, current(table), delta, current(delta))):
        assert {row["id"]: row["value"] for row in rows} == state
    assert (delta.properties["tistream.now"], [*catalog.shown]) == ("", [])


def test_the_view_of_a_version_that_is_replaced_goes(tmp_path: Path) -> None:
    feed, catalog = with_views(tmp_path, {})
    typed = feed_tables.version([ID, feed_tables.column("value", t.VARCHAR, Flen=30) | {"id": 7}], KEY)
    feed.again = {number: str(number) for number in range(1, 6)}
    feed.reread()
    feed.ddl("modify column", TableChange(BEFORE, typed))
    assert (feed.life.rows("d.t_delta"), [*catalog.shown]) == ([], [])
    feed.values(typed, {"id": 6, "value": "six"})
    assert [*catalog.shown] == ["d.t__v2_now"]


def test_a_table_that_gets_its_name_back_gets_its_view_back(tmp_path: Path) -> None:
    feed, catalog = with_views(tmp_path, {})
    moved = feed_tables.version([ID, VALUE], KEY, name="moved")
    feed.ddl("rename table", TableChange(BEFORE, moved))
    assert [*catalog.shown] == ["d.moved_now"]
    feed.ddl("rename table", TableChange(moved, BEFORE))
    assert [*catalog.shown] == ["d.t_now"]


@pytest.mark.parametrize("refusal", [ServiceUnavailableError("503"), ForbiddenError("403"), RESTError("405")])
def test_a_view_is_stored_as_soon_as_the_catalog_does_it(tmp_path: Path, refusal: Exception) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",), delta_share=40))
    feed.life.catalog = catalog = ViewCatalog(tmp_path)
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    catalog.refusal = refusal
    if isinstance(refusal, ServiceUnavailableError):
        with pytest.raises(FeedFailed, match="503") as found:
            feed.rows(BEFORE, (None, 1))
        assert found.value.failure.kind == "retry"
        feed.shard, feed.sink = opened_as(feed.life, feed.target)
    else:
        feed.rows(BEFORE, (None, 1))
    catalog.refusal = None
    feed.rows(BEFORE, (None, 2))
    assert [*catalog.shown] == ["d.t_now"]


def test_a_table_that_a_release_without_deltas_has_written_keeps_its_newer_rows(tmp_path: Path) -> None:
    state: dict[int, Any] = {}
    feed, catalog = with_views(tmp_path, state)
    with catalog.load_table("d.t").transaction() as change:  # such a release does not look at the property
        change.set_properties({"tistream.delta": ""})
    feed.shard, feed.sink = opened_as(feed.life, replace(feed.target, delta_share=0))
    feed.changes(BEFORE, written(feed, BEFORE, state, [1]))
    with catalog.load_table("d.t").transaction() as change:
        change.set_properties({"tistream.delta": "t_delta"})
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    kept, at = dict(state), feed.ts
    with pytest.raises(FeedFailed, match=r"lake/d\.t: .* than d\.t_delta has: drop or rename") as found:
        feed.changes(BEFORE, written(feed, BEFORE, dict(state), [2, 3, 4]))
    assert found.value.failure.kind == "failed"
    assert {row["id"]: row["value"] for row in feed.life.rows("d.t")} == kept
    catalog.drop_table("d.t_delta")
    feed.ts = at
    feed.shard, feed.sink = opened_as(feed.life, feed.target, Revision(1, Move(revision=1, ts=at)))
    for number in (2, 3):
        feed.changes(BEFORE, written(feed, BEFORE, state, [number]))
        found_now = rows_now(catalog.load_table("d.t"), catalog.load_table("d.t_delta")).to_pylist()
        assert {row["id"]: row["value"] for row in found_now} == state


def test_a_table_that_was_rolled_back_takes_what_waits_in_its_delta(tmp_path: Path) -> None:
    """A user has accepted the older rows of the table, as of a checkpoint that is higher than the delta's."""
    state: dict[int, Any] = {}
    feed, catalog = with_views(tmp_path, state)
    feed.changes(BEFORE, written(feed, BEFORE, state, [2, 3, 4]))  # they wait
    table = catalog.load_table("d.t")
    feed.rows(OTHER, (None, 1))
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()
    feed.shard, feed.sink = opened_as(feed.life, feed.target, Revision(1, Move(revision=1, ts=feed.ts)))
    feed.changes(BEFORE, written(feed, BEFORE, state, [1]))
    found = rows_now(catalog.load_table("d.t"), catalog.load_table("d.t_delta")).to_pylist()
    assert {row["id"]: row["value"] for row in found} == {number: state[number] for number in range(1, 5)}, (
        "row 5 is gone"
    )


def test_a_letter_is_written_once_and_does_not_end_the_window_of_the_rows_beside_it(tmp_path: Path) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("changes",)))
    letter = LetterMark("d.t", START + 1, b'{"reason":"wrong"}')
    rows = rows_of([(START + 1, "t", 1, None, 1)], END)
    inside = Position(START + 1, Place.ROW, start_ts=START)
    for _ in range(2):
        feed.send(feed.shard.send(rows, 1, (letter,), inside, 1))
        assert feed.sink.waits
        assert not feed.life.catalog.table_exists("d.t__changes")
        feed.shard, feed.sink = opened_as(feed.life, feed.target)
    assert feed.life.rows(f"{OWN}__dead_letters") == [
        {"commit_ts": START + 1, "table": "d.t", "letter": letter.value.decode()}
    ]
    feed.send(feed.shard.send(NOTHING, 0, (replace(letter, value=b"{}"),), Position(START + 2), 1))
    assert feed.shard.acked is not None
    assert (feed.shard.acked.skipped, len(feed.life.rows(f"{OWN}__dead_letters"))) == (1, 2)


def test_letters_that_are_older_than_those_to_be_written_are_not_read(tmp_path: Path) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("changes",)))

    def write(ts: int, text: bytes) -> None:
        feed.ts = max(feed.ts, ts)
        feed.send(feed.shard.send(NOTHING, 0, (LetterMark("d.t", ts, text),), Position(feed.ts), 1))

    write(START + 1, b"1")
    write(START + 2, b"2")
    first, second = (feed.life.catalog.load_table(f"{OWN}__dead_letters").inspect.files()["file_path"].to_pylist())[
        ::-1
    ]
    kept = Path(first.removeprefix("file://")).rename(tmp_path / "kept")
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    write(START + 3, b"3")
    gone = Path(second.removeprefix("file://")).rename(tmp_path / "gone")
    write(START + 4, b"4")  # nothing is read after this worker's own commit
    kept.rename(first.removeprefix("file://"))
    gone.rename(second.removeprefix("file://"))
    write(START + 2, b"2")  # as a table sends that has stopped and catches up
    assert sorted(row["letter"] for row in feed.life.rows(f"{OWN}__dead_letters")) == ["1", "2", "3", "4"]


def test_the_progress_that_is_higher_counts_in_the_snapshot_or_in_the_properties(tmp_path: Path) -> None:
    """An earlier release stores it in the snapshot alone; another program may roll the table back."""
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    catalog = feed.life.catalog
    feed.rows(BEFORE, (None, 1))
    older = catalog.load_table(OWN)
    names = {name: older.properties[name] for name in ("tistream.progress", "tistream.begun")}
    feed.rows(BEFORE, (None, 2))
    with catalog.load_table(OWN).transaction() as change:
        change.set_properties(names)
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    assert feed.shard.at == Position(feed.ts)
    feed.rows(BEFORE, (None, 3))
    catalog.load_table(OWN).manage_snapshots().rollback_to_snapshot(current(older)).commit()
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    assert feed.shard.at == Position(feed.ts)
    feed.rows(BEFORE, (None, 4))
    assert feed.ids("d.t") == [1, 2, 3, 4]


@pytest.mark.parametrize("shape", ["table", "changes"])
@pytest.mark.parametrize("gone", ["none", "others", "replacing", "replacing, and its metadata"])
def test_a_table_that_another_program_has_replaced_stops_the_feed(tmp_path: Path, shape: Shape, gone: str) -> None:
    """CREATE OR REPLACE TABLE of Spark keeps the table's id and properties; its rows begin anew. `gone`: what has
    expired since: all other snapshots; after one more commit, the one that has replaced the table too."""
    feed = Steady(tmp_path, replace(TARGET, shapes=(shape,)))
    name, catalog = "d.t" if shape == "table" else "d.t__changes", feed.life.catalog
    feed.rows(BEFORE, (None, 1))
    feed.rows(BEFORE, (None, 2))
    at, rows = feed.ts, catalog.load_table(name).scan("id = 1").to_arrow()
    with catalog.load_table(name).transaction() as change:
        change._apply((RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"}),))
    table = catalog.load_table(name)
    assert table.current_snapshot() is None
    with table.transaction() as change:
        begun = change.update_snapshot().merge_append()
        for hour, part in by_hour(rows) if shape == "changes" else [(None, rows)]:
            begun.append_data_file(write_file(table, table.schema(), part, "again", hour))
        begun.commit()
    if gone.startswith("replacing"):
        touched(catalog, name)
    if gone != "none":
        all_but_current_expire(catalog, name)
    if gone.endswith("metadata"):
        without_earlier_metadata(catalog, name)
    with pytest.raises(FeedFailed, match="another writer has changed the table"):
        feed.rows(BEFORE, (None, 3))
    for _ in range(2):
        with pytest.raises(
            FeedFailed, match=f"{name}: another program has rolled the table back, replaced it"
        ) as found:
            feed.shard, feed.sink = opened_as(feed.life, feed.target)
        assert found.value.failure.kind == "failed"
        touched(catalog, name)
    moved = Revision(1, Move(revision=1, ts=at))
    feed.shard, feed.sink = opened_as(feed.life, feed.target, moved)
    feed.ts = at
    feed.rows(BEFORE, (None, 4))
    assert feed.ids(name) == [1, 4]


def test_what_cannot_be_read_in_the_catalog_is_an_error_of_the_sink_that_names_the_table(tmp_path: Path) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    feed.rows(BEFORE, (None, 1))
    table = feed.life.catalog.load_table("d.t")
    for name, text in (("tistream.fields", "?"), ("tistream.swept_ms", "?"), ("tistream.table_id", "?")):
        before = table.properties[name]
        with table.transaction() as change:
            change.set_properties({name: text})
        refused(feed)
        with table.transaction() as change:
            change.set_properties({name: before})
    metadata = Path(table.metadata_location.removeprefix("file://"))
    content = metadata.read_bytes()
    metadata.write_bytes(b"{}")
    refused(feed)
    metadata.write_bytes(content)
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    feed.rows(BEFORE, (None, 3))
    assert feed.ids("d.t") == [1, 3]


def refused(feed: Steady) -> None:
    """A new worker cannot write the table."""
    with pytest.raises(FeedFailed, match="Error") as found:  # noqa: PT012  # a window that was begun is fenced first
        feed.shard, feed.sink = opened_as(feed.life, feed.target)
        feed.rows(BEFORE, (None, 2))
    told = found.value.failure
    assert (told.kind, told.stage, told.object) == ("retry", "sink", "iceberg://lake/d.t")


class Steady:
    """A feed whose workers are neither killed nor paused, unless a test does it."""

    def __init__(self, root: Path, target: LakeTarget = TARGET) -> None:
        self.life, self.target = Life(1, root), target
        self.life.interrupt = lambda: None  # type: ignore[method-assign]
        self.ts = START
        self.again: dict[int, Any] = {}  # the rows by id, with their values, as the pool has them
        self.shard, self.sink = opened_as(self.life, target)

    def reread(self) -> None:
        """The present worker may read rows again."""

        def rows_of(
            version: TableVersion, window: Window, ids: Collection[int] | None = None, *, gone: bool = False
        ) -> Iterator[RowEvents]:
            assert (window.low < window.high == self.ts, ids, gone) == (True, None, False)
            for number, value in self.again.items():
                more = {column.name: 7 for column in version.table.visible_columns[2:]}
                change = Change(None, {"id": number, "value": value, **more}, self.ts, 0, str(number).encode())
                yield RowEvents(split(EventWindow((feed_tables.batch(version, [change]),), ()), never))

        self.sink.reads_again(rows_of)

    def rows(self, version: TableVersion, *rows: tuple[int | None, int | None]) -> None:
        """A transaction that puts (None, id), deletes (id, None) or updates (id, id) rows; and its window's end."""
        self.ts += 1
        changes = []
        for row in rows:
            sides = [None if one is None else {"id": one, "value": self.ts} for one in row]
            key = str(row[0] or row[1]).encode()
            changes.append(Change(*sides, commit_ts=self.ts, start_ts=self.ts - 1, key=key))
        self.changes(version, changes)

    def values(self, version: TableVersion, *rows: dict[str, Any]) -> None:
        """A transaction that inserts rows; and its window's end."""
        self.ts += 1
        keys = [str(row["id"]).encode() for row in rows]
        changes = [Change(None, row, self.ts, self.ts - 1, key) for row, key in zip(rows, keys, strict=True)]
        self.changes(version, changes)

    def changes(self, version: TableVersion, changes: list[Change]) -> None:
        """A transaction; and its window's end."""
        events = RowEvents(split(EventWindow((feed_tables.batch(version, changes),), ()), never))
        self.send(self.shard.send(events, len(events), (), Position(self.ts)))
        self.life.clock.advance(300)
        self.send(self.shard.send(NOTHING, 0, (), self.shard.at))

    def load(self, ts: int, number: int) -> None:
        """One of the rows with which the feed begins."""
        key = str(number).encode()
        change = Change(None, {"id": number, "value": number}, commit_ts=ts, start_ts=0, key=key)
        events = RowEvents(split(EventWindow((feed_tables.batch(BEFORE, [change]),), ()), never))
        self.send(loading(self.shard.send(events, 1, (), Position(ts)), ts, key))
        self.life.clock.advance(300)
        self.send(loading(self.shard.send(NOTHING, 0, (), Position(ts)), ts, key))

    def ddl(self, action: str, *changes: TableChange) -> None:
        self.ts += 1
        event = DdlEvent(self.ts, self.ts - 1, 1, "d", "t", action, action, self.ts, ())
        at = Position(self.ts, Place.DDL, table_id=1)
        self.send(self.shard.send(NOTHING, 0, (TableDdl(event, changes),), at))
        self.shard.skip(Position(self.ts))

    def send(self, transaction: Transaction) -> None:
        self.life.write(self.shard, self.sink, transaction)

    def ids(self, name: str) -> list[int]:
        return sorted(row["id"] for row in self.life.rows(name))


def test_a_table_that_was_renamed_keeps_its_files_when_another_one_gets_its_name(tmp_path: Path) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    moved, second = (feed_tables.version([ID, VALUE], KEY, name=name, table_id=at) for name, at in NEXT)
    feed.rows(BEFORE, (None, 1), (None, 2))
    feed.ddl("rename table", TableChange(BEFORE, moved))
    feed.ddl("create table", TableChange(None, second))
    feed.rows(second, (None, 3))
    feed.ddl("drop table", TableChange(second, None))
    feed.ddl("create table", TableChange(None, third := feed_tables.version([ID, VALUE], KEY, table_id=103)))
    feed.rows(third, (None, 4))
    newest = max(one.stat().st_mtime for one in tmp_path.rglob("*.parquet"))
    feed.life.clock.advance(int(newest * 1_000) + DAY_MS + 1_000 - feed.life.clock.now_ms())
    feed.rows(third, (None, 5))
    feed.rows(moved, (None, 6))
    assert (feed.ids("d.t"), feed.ids("d.moved")) == ([4, 5], [1, 2, 6])
    (dropped,) = (name for _, name in feed.life.catalog.list_tables("d") if "__dropped_" in name)
    assert feed.ids(f"d.{dropped}") == [3]


@pytest.mark.parametrize("early", [True, False])
def test_a_worker_that_wakes_up_late_renames_no_table_of_a_newer_one(tmp_path: Path, *, early: bool) -> None:
    """`early`: it has paused before it has begun the DDL; else right before it asks the catalog to rename."""
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    moved, second = (feed_tables.version([ID, VALUE], KEY, name=name, table_id=at) for name, at in NEXT)
    feed.rows(BEFORE, (None, 1))
    old, old_ts = (feed.shard, feed.sink), feed.ts

    def another() -> None:
        feed.life.renaming = feed.life.interrupt  # type: ignore[method-assign]
        feed.shard, feed.sink = opened_as(feed.life, feed.target)
        feed.ddl("rename table", TableChange(BEFORE, moved))
        feed.ddl("create table", TableChange(None, second))
        feed.rows(second, (None, 2))

    if early:
        another()
    else:
        feed.life.renaming = another  # type: ignore[method-assign]
    newer, newer_ts = (feed.shard, feed.sink), feed.ts
    (feed.shard, feed.sink), feed.ts = old, old_ts
    with pytest.raises(FeedFailed) as found:
        feed.ddl("rename table", TableChange(BEFORE, moved))
    assert found.value.failure.kind == "fenced"
    if early:
        (feed.shard, feed.sink), feed.ts = newer, newer_ts
    feed.rows(second, (None, 3))
    feed.rows(moved, (None, 4))
    assert (feed.ids("d.t"), feed.ids("d.moved")) == ([2, 3], [1, 4])
    assert len(feed.life.catalog.list_tables("d")) == 2


@pytest.mark.parametrize("shapes", [("table",), ("changes", "table")])
def test_the_rows_of_two_tables_are_never_in_one(tmp_path: Path, shapes: tuple[Shape, ...]) -> None:
    feed = Steady(tmp_path, replace(TARGET, namespace="all", shapes=shapes))
    feed.rows(BEFORE, (None, 1))
    same = {"database": "other"} if len(shapes) == 1 else {"name": "t__changes"}
    second = feed_tables.version([ID, VALUE], KEY, table_id=102, **same)
    for act in (
        lambda: feed.ddl("create table", TableChange(None, second)),
        lambda: feed.rows(second, (None, 2)),
        lambda: feed.ddl("rename table", TableChange(OTHER, second)),
    ):
        kept = feed.ts
        with pytest.raises(TablesRefused, match=r"has the (rows|changes) of d\.t: leave .* out by filter.rules"):
            act()
        feed.ts = kept
        feed.shard.roll_back()
        feed.rows(BEFORE, (None, feed.ts))
    feed.ddl("drop table", TableChange(BEFORE, None))
    feed.ddl("create table", TableChange(None, second))
    feed.rows(second, (None, 3))
    assert feed.ids("all." + second.name[1]) == [3]


def test_a_feed_that_is_moved_back_fails_because_rows_would_be_doubled(tmp_path: Path) -> None:
    feed = Steady(tmp_path)
    feed.rows(BEFORE, (None, 1))
    feed.life.epoch += 2
    moved = Revision(1, Move(revision=1, ts=START))
    order = replace(ORDER, fence=Fence(1, feed.life.epoch), end_ts=None, revision=moved)
    shard, sink = Shard(order, feed.life.rng), feed.life.sink(order)
    with pytest.raises(FeedFailed, match=f"a checkpoint_ts of at least {feed.ts}"):
        feed.life.write(shard, sink, shard.opened(*sink.open(), sink.where))


def test_a_table_that_is_renamed_into_the_rules_has_the_rows_that_come_after(tmp_path: Path) -> None:
    feed = Steady(tmp_path)
    feed.rows(OTHER, (None, 1))
    feed.ddl("rename table", TableChange(feed_tables.version([ID, VALUE], KEY, name="staging"), BEFORE))
    for name in ("d.t", "d.t__changes"):
        assert feed.life.catalog.load_table(name).properties["tistream.since_ts"] == str(feed.ts)


def test_a_row_that_gets_its_key_back_is_there_once_though_an_earlier_release_has_left_it(tmp_path: Path) -> None:
    """That release has written nothing for the update to a key that no calendar has."""
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    day = feed_tables.column("id", t.DATE, t.FLAG_NOT_NULL)
    dated = feed_tables.version([day, VALUE], KEY)
    feed.values(dated, {"id": "2024-02-28", "value": 1}, {"id": "2024-02-29", "value": 2})
    with feed.life.catalog.load_table("d.t").transaction() as change:
        change.remove_properties("tistream.since_ts")
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    feed.values(dated, {"id": "2024-02-29", "value": 3})
    assert sorted((str(one["id"]), one["value"]) for one in feed.life.rows("d.t")) == [
        ("2024-02-28", 1),
        ("2024-02-29", 3),
    ]


def test_a_row_whose_key_comes_back_is_there_once_though_an_earlier_release_has_written_in_between(
    tmp_path: Path,
) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    day = feed_tables.column("id", t.DATE, t.FLAG_NOT_NULL)
    dated = feed_tables.version([day, VALUE], KEY)
    feed.values(dated, {"id": "2024-02-28", "value": 1})
    before = feed.life.catalog.load_table("d.t").properties["tistream.whole_at"]
    feed.values(dated, {"id": "2024-02-29", "value": 2})
    with feed.life.catalog.load_table("d.t").transaction() as change:
        change.set_properties({"tistream.whole_at": before})  # an earlier release does not set it
    for value in (3, 4):
        feed.shard, feed.sink = opened_as(feed.life, feed.target)
        feed.values(dated, {"id": "2024-02-29", "value": value})
        assert sorted((str(one["id"]), one["value"]) for one in feed.life.rows("d.t")) == [
            ("2024-02-28", 1),
            ("2024-02-29", value),
        ]
    assert feed.life.catalog.load_table("d.t").properties["tistream.whole_at"] == before, "it may have left more rows"


def test_an_insert_of_a_key_with_a_date_leaves_the_files_that_do_not_get_it(tmp_path: Path) -> None:
    """Each file has the same first key, so a row that is deleted is looked for in all of them."""
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",), file_bytes=16))
    day = feed_tables.column("day", t.DATE, t.FLAG_NOT_NULL)
    dated = feed_tables.version([ID, day], [Key("primary", ("id", "day"), primary=True)])

    def insert(*days: str) -> set[str]:
        """The files after it."""
        feed.ts += 1
        rows = [Change(None, {"id": 1, "day": one}, feed.ts, feed.ts - 1, one.encode()) for one in days]
        feed.changes(dated, rows)
        return {one.file.file_path for one in feed.life.catalog.load_table("d.t").scan().plan_files()}

    first = insert("2024-02-26", "2024-02-27", "2024-02-28")
    second = insert("2024-02-29")
    assert len(first) == 3
    assert len(first - second) == 1
    assert sorted(str(one["day"]) for one in feed.life.rows("d.t")) == [f"2024-02-{at}" for at in range(26, 30)]


def loading(transaction: Transaction, ts: int, key: bytes) -> Transaction:
    """The same transaction of a feed that has loaded the rows up to this key."""
    return replace(transaction, progress=replace(transaction.progress, load=Load(ts, 100, "d.t", key)))


def opened_as(life: Life, target: LakeTarget, revision: Revision = FIRST) -> tuple[Shard, LakeSink]:
    life.epoch += 2
    shard = Shard(replace(ORDER, fence=Fence(1, life.epoch), end_ts=None, revision=revision), life.rng)
    sink = LakeSink(target, LifesLake(life), shard.order, life.clock, lambda: next(life.names))
    life.write(shard, sink, shard.opened(*sink.open(), sink.where))
    return shard, sink


def opened(life: Life, epoch: int) -> tuple[Shard, LakeSink]:
    shard = Shard(replace(ORDER, fence=Fence(1, epoch)), life.rng)
    sink = life.sink(shard.order)
    life.write(shard, sink, shard.opened(*sink.open(), sink.where))
    return shard, sink
