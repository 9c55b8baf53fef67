"""A table of a feed into Iceberg that stops: the others go on, and it gets each row once when it goes on itself. Which
names stop: a user's table may have the name that the feed has given to another one's delta, version or view."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.view import View
from test_lake_sink import (
    AFTER,
    BEFORE,
    ID,
    KEY,
    ORDER,
    OTHER,
    START,
    TARGET,
    VALUE,
    Killed,
    Steady,
    ViewCatalog,
    added_column,
    opened_as,
    rows_of,
    with_views,
    written,
)

from support import feed_tables
from tistream.read.cursor import Place, Position
from tistream.schema.tidb import table as t
from tistream_changefeed.core.outgoing import NOTHING
from tistream_changefeed.core.progress import Fence, Progress, Revision
from tistream_changefeed.core.shard import Transaction
from tistream_changefeed.core.stopped import StoppedTable
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.sinks.iceberg.mirrored.now_view import SUMMARY, VIEW_OF, is_of_feed, now_query
from tistream_changefeed.sinks.iceberg.pending import is_whole, reached
from tistream_changefeed.table_errors.tables_refused import TablesRefused
from tistream_client.lake.now import rows_now


def user_table(name: str, table_id: int = 103) -> Any:
    return feed_tables.version([ID, VALUE], KEY, name=name, table_id=table_id)


def flush(feed: Steady) -> None:
    feed.life.clock.advance(300)
    feed.send(feed.shard.send(NOTHING, 0, (), feed.shard.at))


def resolved(feed: Steady, name: str) -> int:
    return int(feed.life.catalog.load_table(name).properties["tistream.resolved_ts"])


def now(feed: Steady, name: str) -> list[dict[str, Any]]:
    """The rows of a table, and of its delta if it has one."""
    table = feed.life.catalog.load_table(name)
    if not table.properties.get("tistream.delta"):
        return feed.life.rows(name)
    found: list[dict[str, Any]] = rows_now(table, feed.life.catalog.load_table(f"{name}_delta")).to_pylist()
    return found


def ids_now(feed: Steady, name: str) -> list[int]:
    return sorted(row["id"] for row in now(feed, name))


# ---- how far a stopped table has come


def test_a_stopped_table_has_come_as_far_as_its_own_position() -> None:
    def progress(at: Position, *stopped: StoppedTable) -> Progress:
        return Progress(at, 0, Fence(1, 1), stopped=stopped)

    inside = Position(7, Place.ROW, start_ts=6)
    one = StoppedTable(("d", "T"), Position(5), "refused", limit=Position(5))
    assert reached(progress(Position(9)), "d.t") == Position(9)
    assert reached(progress(Position(9), one), "d.t") == Position(5)
    assert reached(progress(Position(9), one), "d.tt") == Position(9)
    assert reached(progress(Position(9), replace(one, name=("d", ""))), "d.tt") == Position(5)
    assert reached(progress(Position(9), replace(one, name=("d", ""))), "dd.t") == Position(9)
    assert reached(progress(Position(9), replace(one, at=inside, limit=inside)), "d.t") == Position(6)
    assert reached(progress(inside, replace(one, at=inside)), "d.t") == inside
    catching = replace(one, at=inside, limit=None)
    assert [is_whole(progress(Position(9), each)) for each in (one, catching)] == [True, False]
    assert not is_whole(progress(inside))


@pytest.mark.parametrize("share", [0, 40])
def test_a_table_that_has_stopped_gets_each_row_once_when_it_goes_on(tmp_path: Path, share: int) -> None:
    """It stops in a window that has rows of it; the window and later ones are committed without the rest. Its rows and
    a DDL come later, in several windows."""
    feed = Steady(tmp_path, replace(TARGET, delta_share=share))
    first, last = START + 1, START + 9

    def events(ts: int, table: str = "t") -> Any:
        return rows_of([(ts, table, ts - START, None, ts - START)], first + 2)

    feed.send(feed.shard.send(events(first), 1, (), Position(first)))
    feed.shard.stop(("d", "t"), Position(first), "it is refused", left=False)
    feed.send(feed.shard.send(events(last, "other"), 1, (), Position(last)))
    flush(feed)
    assert (resolved(feed, "d.t__changes"), resolved(feed, "d.other__changes")) == (first, last)
    for number in (1, 2):  # it stops again, and goes on in the end
        feed.shard, feed.sink = opened_as(feed.life, feed.target, Revision(number))
        (catching,) = feed.shard.catching
        assert catching.at == Position(first)
        if number == 1:
            feed.shard.stop(("d", "t"), Position(0), "it is refused again", left=False)
            feed.send(feed.shard.send(events(last + 1, "other"), 1, (), Position(last + 1)))
            flush(feed)
    feed.send(feed.shard.catch_up(events(first + 1), 1, (), Position(first + 1)))
    flush(feed)
    at = Position(first + 2, Place.DDL, table_id=1)
    feed.send(feed.shard.catch_up(NOTHING, 0, (added_column(first + 2),), at))
    for ts in (first + 3, first + 5):
        feed.send(feed.shard.catch_up(events(ts), 1, (), Position(ts)))
        flush(feed)
        assert resolved(feed, "d.t__changes") == ts
    feed.shard.passed(feed.shard.at)
    feed.send(feed.shard.rejoin((), None))
    assert feed.shard.stopped == ()
    feed.ts = feed.shard.at.commit_ts
    feed.values(AFTER, {"id": 90, "value": 1, "added": 2})
    wanted = [1, 2, 4, 6, 90]
    assert feed.ids("d.t__changes") == wanted
    assert feed.ids("d.other__changes") == [9, 10]
    found = sorted((row["id"], row["added"]) for row in now(feed, "d.t"))
    assert found == [(1, 7), (2, 7), (4, None), (6, None), (90, 2)]


# ---- names


@contextmanager
def stopping(feed: Steady, text: str) -> Iterator[None]:
    """What is sent is refused with this text. The tables stop, and the feed goes on behind what is durable."""
    at = feed.shard.acked
    with pytest.raises(TablesRefused, match=text) as found:
        yield
    feed.shard.roll_back()
    for name in found.value.names:
        feed.shard.stop(name, Position(0), str(found.value), left=False, stage="sink")
    feed.send(feed.shard.send(NOTHING, 0, (), feed.shard.at))
    assert at is not None
    assert feed.shard.acked is not None
    assert (feed.shard.acked.at, len(feed.shard.acked.stopped)) == (at.at, len(found.value.names))
    feed.ts = feed.shard.at.commit_ts


@pytest.mark.parametrize("ddl", [True, False])
def test_a_table_with_the_name_of_another_ones_delta_stops_alone(tmp_path: Path, *, ddl: bool) -> None:
    feed = Steady(tmp_path, replace(TARGET, delta_share=40))
    mine = user_table("t_delta")
    feed.rows(BEFORE, (None, 1))
    ts = feed.ts
    feed.send(feed.shard.send(rows_of([(ts + 1, "t", 2, None, 2)], ts + 9), 1, (), Position(ts + 1)))
    feed.ts = ts + 1
    why = r"table d\.t_delta: .*/d\.t_delta, which has the changes of d\.t that wait .*: leave d\.t_delta out by filter"
    with stopping(feed, why):
        if ddl:
            feed.ddl("create table", TableChange(None, mine))
        else:
            feed.rows(mine, (None, 1))
    assert [one.name for one in feed.shard.stopped] == [("d", "t_delta")]
    feed.send(feed.shard.send(rows_of([(ts + 1, "t", 2, None, 2)], ts + 9), 1, (), Position(ts + 1)))
    feed.ts = ts + 1
    feed.rows(OTHER, (None, 5))
    assert (ids_now(feed, "d.t"), ids_now(feed, "d.other")) == ([1, 2], [5])
    assert (feed.ids("d.t__changes"), feed.ids("d.other__changes")) == ([1, 2], [5])


def test_a_table_has_no_delta_if_another_one_has_the_name(tmp_path: Path) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",), delta_share=40))
    mine, moved = user_table("t_delta"), user_table("moved_delta", 104)
    feed.rows(mine, (None, 1))
    for number in (2, 3):
        feed.rows(BEFORE, (None, number))
    feed.rows(moved, (None, 9))
    feed.rows(OTHER, (None, 7))
    feed.rows(OTHER, (None, 8))
    to = feed_tables.version([ID, VALUE], KEY, name="moved", table_id=101)
    feed.ddl("rename table", TableChange(OTHER, to))
    feed.rows(to, (None, 6))
    assert (feed.ids("d.t"), ids_now(feed, "d.t_delta")) == ([2, 3], [1])
    assert (feed.ids("d.moved"), ids_now(feed, "d.moved_delta")) == ([6, 7, 8], [9])


@pytest.mark.parametrize("last", [None, 0, 1, 2, 3, 4, 5])
def test_a_new_version_passes_over_the_name_of_another_table(tmp_path: Path, last: int | None) -> None:
    """The worker is killed before its step `last`."""
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    mine = user_table("t__v2")
    typed, again = (
        feed_tables.version([ID, feed_tables.column("value", kind, **more) | {"id": at}], KEY)
        for kind, more, at in ((t.VARCHAR, {"Flen": 30}, 7), (t.LONGLONG, {}, 8))
    )
    moved = feed_tables.version([ID, feed_tables.column("value") | {"id": 8}], KEY, name="moved")
    feed.rows(BEFORE, (None, 1))
    feed.rows(mine, (None, 20))
    steps = iter(range(1_000))

    def dying() -> None:
        if next(steps) == last:
            raise Killed

    def surely(*ddl: Any) -> None:
        at = feed.ts
        feed.reread()
        try:
            feed.ddl(*ddl)
        except Killed:
            feed.life.interrupt = lambda: None  # type: ignore[method-assign]
            feed.ts = at
            feed.shard, feed.sink = opened_as(feed.life, feed.target)
            feed.reread()
            feed.ddl(*ddl)

    feed.life.interrupt = dying  # type: ignore[method-assign]
    feed.again = {1: "one"}
    surely("modify column", TableChange(BEFORE, typed))
    feed.life.interrupt = lambda: None  # type: ignore[method-assign]
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    feed.values(typed, {"id": 2, "value": "two"})
    feed.rows(mine, (None, 21))
    assert (feed.ids("d.t"), feed.ids("d.t__v2"), feed.ids("d.t__v3")) == ([1], [20, 21], [1, 2])
    assert feed.life.catalog.load_table("d.t").properties["tistream.next_version"] == "t__v3"
    feed.again = {1: 1, 2: 2}
    surely("modify column", TableChange(typed, again))
    assert feed.ids("d.t__v4") == [1, 2]
    feed.ddl("rename table", TableChange(again, moved))
    feed.rows(moved, (None, 3))
    feed.rows(BEFORE, (None, 4))
    feed.rows(mine, (None, 22))
    assert (feed.ids("d.t"), feed.ids("d.moved"), feed.ids("d.t__v2")) == ([4], [1, 2, 3], [20, 21, 22])


def test_a_table_with_the_name_of_another_ones_version_stops_alone(tmp_path: Path) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",)))
    typed = feed_tables.version([ID, feed_tables.column("value", t.VARCHAR, Flen=30) | {"id": 7}], KEY)
    feed.rows(BEFORE, (None, 1))
    feed.again = {1: "one"}
    feed.reread()
    feed.ddl("modify column", TableChange(BEFORE, typed))
    with stopping(feed, r"table d\.t__v2: .*/d\.t__v2, which has the rows of d\.t since a type has changed: leave"):
        feed.rows(user_table("t__v2"), (None, 20))
    feed.values(typed, {"id": 2, "value": "two"})
    assert feed.ids("d.t__v2") == [1, 2]


def test_two_tables_whose_ddl_is_refused_stop_both(tmp_path: Path) -> None:
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",), delta_share=40))
    feed.rows(BEFORE, (None, 1))
    feed.rows(OTHER, (None, 2))
    first, second = user_table("t_delta", 101), user_table("free", 105)
    with stopping(feed, r"d\.t_delta, which has the changes of d\.t that wait"):
        feed.ddl("rename table", TableChange(OTHER, first), TableChange(user_table("old", 105), second))
    assert {one.name[1] for one in feed.shard.stopped} == {"other", "t_delta", "old", "free"}
    assert sorted(name for _, name in feed.life.catalog.list_tables("d")) == ["other", "other_delta", "t", "t_delta"]


# ---- the view


def test_a_table_with_the_name_of_a_view_takes_the_place_of_the_view(tmp_path: Path) -> None:
    feed, catalog = with_views(tmp_path, {})
    mine, moved = user_table("t_now"), user_table("other_now")
    feed.rows(mine, (None, 20))
    feed.rows(OTHER, (None, 5))
    feed.rows(BEFORE, (None, 6))
    assert sorted(catalog.shown) == ["d.other_now", "d.t_now_now"]
    feed.ddl("rename table", TableChange(mine, moved))
    feed.rows(OTHER, (None, 7))
    feed.rows(BEFORE, (None, 8))
    assert (sorted(catalog.shown), ids_now(feed, "d.other_now")) == (["d.other_now_now", "d.t_now"], [20])


class KeepsLittle(ViewCatalog):
    """A catalog whose server replaces the summary of a view by its own, and may drop its properties."""

    def __init__(self, root: Path, *, keeps: bool) -> None:
        super().__init__(root)
        self.keeps = keeps

    def create_view(self, identifier: Any, schema: Any, view_version: Any, *more: Any, **named: Any) -> View:
        version = view_version.model_copy(update={"summary": {"engine-name": "server"}})
        view = super().create_view(identifier, schema, version, *more, **named)
        kept = dict(more[1]) if self.keeps else {}
        found = View(identifier, view.metadata.model_copy(update={"properties": kept}))
        self.shown[".".join(identifier)] = found
        return found


@pytest.mark.parametrize("properties", [True, False])
def test_a_view_is_known_as_the_feeds_though_the_server_replaces_its_summary(
    tmp_path: Path, *, properties: bool
) -> None:
    state: dict[int, Any] = {}
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",), delta_share=40))
    feed.life.catalog = catalog = KeepsLittle(tmp_path, keeps=properties)
    feed.shard, feed.sink = opened_as(feed.life, feed.target)
    for numbers in (range(1, 6), [1]):
        feed.changes(BEFORE, written(feed, BEFORE, state, numbers))
    feed.ddl("add column", TableChange(BEFORE, AFTER))
    feed.changes(AFTER, written(feed, AFTER, state, [2]))
    assert [one.name for one in catalog.shown["d.t_now"].schema().fields] == ["id", "value", "added"]
    feed.shard, feed.sink = opened_as(feed.life, replace(feed.target, delta_share=0))
    feed.changes(AFTER, written(feed, AFTER, state, [3]))
    assert [*catalog.shown] == []


def test_the_view_of_another_program_is_not_taken_for_the_feeds() -> None:
    view, table = ("d", "t_now"), (("d", "t"), ("d", "t_delta"), ["id", "v"], ["id"])
    for quote in '"`':
        mine = now_query(*table, quote)
        assert is_of_feed(view, {}, {}, ["SELECT 1", mine])
        for other in (mine.replace("t_delta", "other"), mine + " LIMIT 1", "WITH x AS (" + mine):
            assert not is_of_feed(view, {}, {"engine-name": "server"}, [other])
        assert not is_of_feed(("d", "u_now"), {}, {}, [mine])
        assert not is_of_feed(("d", "all"), {}, {}, [mine])
    assert is_of_feed(view, {VIEW_OF: "d.t"}, {}, ["SELECT 1"])
    assert is_of_feed(view, {}, {**SUMMARY, "engine-version": "1"}, ["SELECT 1"])


# ---- before the first commit of a delta


@pytest.mark.parametrize("first", [True, False])
def test_the_rows_of_now_are_right_between_the_creation_of_a_delta_and_its_first_commit(
    tmp_path: Path, *, first: bool
) -> None:
    """`first`: the table is created in the same window; else the feed had no deltas before."""
    state: dict[int, Any] = {}
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",), delta_share=0))
    catalog = feed.life.catalog
    seen: list[dict[int, Any]] = []
    if not first:
        feed.changes(BEFORE, written(feed, BEFORE, state, [1, 2]))
    kept = dict(state)
    feed.target = replace(feed.target, delta_share=40)
    feed.shard, feed.sink = opened_as(feed.life, feed.target)

    def look() -> None:
        if catalog.table_exists("d.t_delta"):
            found = rows_now(catalog.load_table("d.t"), catalog.load_table("d.t_delta"))
            assert found.schema.metadata[b"tistream.ts"].isdigit()
            seen.append({row["id"]: row["value"] for row in found.to_pylist()})

    feed.life.interrupt = look  # type: ignore[method-assign]
    changes = written(feed, BEFORE, state, [2, 3])
    feed.changes(BEFORE, changes)
    assert seen[0] == kept
    assert seen[-1] == state
    assert all(one in (kept, state) for one in seen)


def test_no_view_shows_a_delta_that_has_no_columns_yet(tmp_path: Path) -> None:
    """The view of a table that was dropped goes when another table gets its name."""
    feed, catalog = with_views(tmp_path, {})
    second = feed_tables.version([ID, VALUE], KEY, table_id=102)
    feed.ddl("drop table", TableChange(BEFORE, None))
    assert [*catalog.shown] == ["d.t_now"]
    seen: list[bool] = []

    def look() -> None:
        there = catalog.table_exists("d.t_delta") and "tistream.now" in catalog.load_table("d.t_delta").properties
        seen.append(there)
        old = catalog.table_exists("d.t") and catalog.load_table("d.t").properties["tistream.table_id"] == "100"
        assert there or old or not catalog.shown

    feed.life.interrupt = look  # type: ignore[method-assign]
    feed.ddl("create table", TableChange(None, second))
    feed.rows(second, (None, 1))
    assert {*seen} == {True, False}
    assert [*catalog.shown] == ["d.t_now"]


def test_a_worker_that_dies_before_the_first_commit_of_a_delta_leaves_right_rows(tmp_path: Path) -> None:
    state: dict[int, Any] = {}
    feed = Steady(tmp_path, replace(TARGET, shapes=("table",), delta_share=0))
    feed.changes(BEFORE, written(feed, BEFORE, state, [1, 2]))
    kept, catalog = dict(state), feed.life.catalog
    feed.target = replace(feed.target, delta_share=40)
    for last in range(12):
        feed.shard, feed.sink = opened_as(feed.life, feed.target)
        steps = iter(range(1_000))
        feed.ts += 0 if last else 1
        changes = [feed_tables.Change(None, {"id": 3, "value": 3}, feed.ts, feed.ts - 1, b"3")]

        def dying(steps: Iterator[int] = steps, last: int = last) -> None:
            if next(steps) == last:
                raise Killed

        feed.life.interrupt = dying  # type: ignore[method-assign]
        done = lives(feed, changes)
        feed.life.interrupt = lambda: None  # type: ignore[method-assign]
        if catalog.table_exists("d.t_delta"):
            found = rows_now(catalog.load_table("d.t"), catalog.load_table("d.t_delta")).to_pylist()
            assert {row["id"]: row["value"] for row in found} in (kept, {**kept, 3: 3})
        if done:
            break
    assert {row["id"]: row["value"] for row in found} == {**kept, 3: 3}


def lives(feed: Steady, changes: list[feed_tables.Change]) -> bool:
    """Send changes. Returns whether the worker is alive after it."""
    try:
        feed.changes(BEFORE, changes)
    except Killed:
        return False
    return True


def test_the_catch_up_of_a_feed_states_what_it_has(tmp_path: Path) -> None:
    """A transaction without rows stores that a table has stopped, at once."""
    feed = Steady(tmp_path)
    feed.rows(BEFORE, (None, 1))
    feed.shard.stop(("d", "t"), Position(feed.ts), "it is refused", left=False)
    sent: Transaction = feed.shard.send(NOTHING, 0, (), feed.shard.at)
    assert feed.sink.write(sent)
    again = replace(ORDER, fence=Fence(1, feed.life.epoch + 2), end_ts=None)
    found, _ = feed.life.sink(again).open()
    assert found is not None
    assert [one.name for one in found.stopped] == [("d", "t")]
