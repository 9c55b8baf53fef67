"""Fingerprints of row events that a feed into a database stores: what they notice, and that the pool gives them again
however it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from support.feed_run import StillView
from support.feed_tables import Change, Row, batch, column, version
from support.pull_world import World, golden_world
from tistream.errors import Gone
from tistream.read.chosen_scope import ChosenScope
from tistream.read.cursor import Place, Position
from tistream.read.scan import Budget
from tistream.schema.tidb import table as t
from tistream_changefeed.fingerprints.fingerprint import Fingerprint
from tistream_changefeed.fingerprints.rows import event_rows, row_fingerprints
from tistream_changefeed.fingerprints.windows import OTHERS, ComparedWindows, FoundParts, SentWindow
from tistream_changefeed.rows.split import by_unique_index, split
from tistream_changefeed.rows.window import EventWindow
from tistream_changefeed.sinks.mysql.mysql_feed import mysql_feed
from tistream_changefeed.sinks.mysql.mysql_pipeline import MySqlPipeline
from tistream_changefeed.sinks.mysql.payload import CommittedEvents
from tistream_changefeed.verify import table_windows
from tistream_changefeed.verify.table_windows import TableWindows, newest_events
from tistream_changefeed.verify.windows import late_tables

COLUMNS = [column("a"), column("b", t.VARCHAR)]
TABLE = version(COLUMNS)
ONE: Row = {"a": 1, "b": "x"}
NONE: Row = {"a": None, "b": None}
STORED = ["18cabaa41fda57ac", "36b429cd74044609", "23fccc615e48c41d"]


def hashes(*changes: Change, of: Any = TABLE) -> list[str]:
    ((_, _, found),) = event_rows([batch(of, list(changes))])
    return [f"{one:016x}" for one in found.tolist()]


def test_the_hash_of_an_event_is_the_same_in_each_release() -> None:
    assert hashes(Change(None, ONE), Change(ONE, NONE), Change(NONE, None)) == STORED


def test_events_that_differ_in_anything_have_other_hashes() -> None:
    seen = [
        *hashes(Change(None, ONE)),
        *hashes(Change(ONE, None)),
        *hashes(Change(ONE, ONE)),
        *hashes(Change(None, NONE)),
        *hashes(Change(NONE, None)),
        *hashes(Change(NONE, NONE)),
        *hashes(Change(NONE, ONE)),
        *hashes(Change(None, ONE, 11)),
        *hashes(Change(None, ONE, key=b"l")),
        *hashes(Change(None, {**ONE, "b": ""})),
        *hashes(Change(None, {"a": 1, "c": "x"}), of=version([column("a"), column("c", t.VARCHAR)])),
    ]
    assert len(set(seen)) == len(seen)


def test_parts_of_a_window_add_up() -> None:
    changes = [Change(None, {"a": at, "b": str(at)}, 10 + at, key=bytes([at])) for at in range(9)]
    whole = CommittedEvents(split(EventWindow((batch(TABLE, changes),), ()), by_unique_index))
    parts = [whole.between(0, 4), whole.between(4, 9)]
    found = [part.fingerprints()[TABLE.name] for part in parts]
    assert found[0] + found[1] == whole.fingerprints()[TABLE.name]
    assert found[0] == row_fingerprints([batch(TABLE, changes[:4])])[TABLE.name]


# ---- against the pool


@pytest.fixture(scope="module")
def world() -> World:
    return golden_world("everything")


@pytest.fixture(scope="module")
def pipeline() -> MySqlPipeline:
    rules = {"force-replicate": True, "filter": {"rules": ["shop.k_*", "shop.orders", "shop.items"]}}
    return mysql_feed("mysql://feed@db/", rules, ()).pipeline


def sent(world: World, pipeline: MySqlPipeline, budget: Budget) -> Iterator[SentWindow]:
    """The windows of a feed that reads the whole set in these pieces."""
    at, scope = Position(world.snapshot_ts), ChosenScope(world.tenant, choice=pipeline.tables)
    for one in pipeline.scan(world.source, scope, at, world.end_ts, budget).batches():
        rows = one.events.chosen(np.flatnonzero(one.events.place != int(Place.DDL)))
        until = one.events.position(len(one.events) - 1) if one.through is None else Position(one.through)
        tables = pipeline.rows(rows, lambda _: 1).messages.fingerprints() if len(rows) else {}
        yield SentWindow(at.low_ts, until.commit_ts, tables)
        at = until


@pytest.fixture(scope="module")
def windows(world: World, pipeline: MySqlPipeline) -> list[SentWindow]:
    return list(sent(world, pipeline, Budget(rows=40, first_rows=7, index_rows=500)))


def comparison(world: World, pipeline: MySqlPipeline, **more: Any) -> TableWindows:
    whole: dict[str, Any] = {"view": StillView(world), "budget": world.budget, "late": lambda: False}
    return TableWindows(world.tenant, pipeline, **{**whole, **more})


def test_the_pool_gives_the_windows_again_in_whatever_pieces_it_is_read(
    world: World, pipeline: MySqlPipeline, windows: list[SentWindow]
) -> None:
    assert len(windows) > 10
    by = comparison(world, pipeline)
    found = by.result(windows, 0, world.end_ts, None)
    assert found == ComparedWindows(len(windows) - 1), "all but the oldest"
    middle = windows[len(windows) // 2]
    part = by.result(windows, middle.after_ts, world.end_ts, None)
    assert 0 < part.count < found.count
    assert by.result(windows, 0, middle.until_ts, None).count < found.count
    assert by.result([], 0, world.end_ts, None) == ComparedWindows()


def test_a_window_with_other_events_than_the_pool_names_its_table(
    world: World, pipeline: MySqlPipeline, windows: list[SentWindow]
) -> None:
    at = next(at for at, one in enumerate(windows) if at and one.tables)
    name, one = next(iter(windows[at].tables.items()))
    less = replace(windows[at], tables={**windows[at].tables, name: one + Fingerprint(1, 7, 7)})
    altered = [*windows[:at], less, *windows[at + 1 :]]
    by = comparison(world, pipeline)
    (difference,) = by.result(altered, 0, world.end_ts, None).differences
    assert (difference.name, difference.found) == (name, one)
    assert len(by.result(altered, 0, world.end_ts, name).differences) == 1
    assert by.result(altered, 0, world.end_ts, ("shop", "other")).differences == ()


def test_windows_that_cannot_be_read_in_time_or_any_more_are_left_out(
    world: World, pipeline: MySqlPipeline, windows: list[SentWindow], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Budget(rows=40, first_rows=7, index_rows=500)
    late = comparison(world, pipeline, budget=small, late=lambda: True)
    assert late.result(windows, 0, world.end_ts, None).count < 5
    middle = windows[len(windows) // 2].after_ts

    class Kept(StillView):
        def check_served(self, ts: int) -> None:
            if ts < middle:
                raise Gone("too old")

    kept = comparison(world, pipeline, view=cast(Any, Kept(world)))
    whole, some = (by.result(windows, 0, world.end_ts, None).count for by in (comparison(world, pipeline), kept))
    assert 0 < some < whole
    counts = [SentWindow(at, at + 1, {("d", "t"): Fingerprint(30, at, at)}) for at in range(9)]
    monkeypatch.setattr(table_windows, "EVENTS_MAX", 70)
    assert newest_events(counts) == counts[-2:]
    monkeypatch.setattr(table_windows, "EVENTS_MAX", 20)
    assert newest_events(counts) == counts[-1:]
    assert newest_events([]) == []


def test_a_late_window_that_begins_before_the_newest_ones_is_left_out_with_those_it_overlaps(
    world: World, pipeline: MySqlPipeline, windows: list[SentWindow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_windows, "EVENTS_MAX", 60)
    by = comparison(world, pipeline, budget=Budget(rows=40, first_rows=7, index_rows=500))
    newest = newest_events(windows)
    assert newest[0].after_ts > windows[1].after_ts
    whole = by.result(windows, 0, world.end_ts, None)
    stopped = {("shop", "items"): Fingerprint(1, 1, 1)}
    late = SentWindow(windows[1].after_ts, newest[0].until_ts, stopped, late=True)
    found = by.result([*windows, late], 0, world.end_ts, None)
    assert 0 < found.count < whole.count
    assert (found.differences, found.late) == ((), frozenset(stopped))
    until_now = replace(late, until_ts=world.end_ts)
    assert by.result([*windows, until_now], 0, world.end_ts, None) == ComparedWindows(late=frozenset(stopped))
    before = replace(late, until_ts=newest[0].after_ts)
    assert by.result([*windows, before], 0, world.end_ts, None) == whole


def test_windows_newer_than_a_large_late_one_are_compared_and_older_ones_are_not(
    world: World, pipeline: MySqlPipeline, windows: list[SentWindow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_windows, "EVENTS_MAX", 60)
    by, end_ts = comparison(world, pipeline, budget=Budget(rows=40, first_rows=7, index_rows=500)), world.end_ts
    many = {("shop", "items"): Fingerprint(1_000, 1, 1)}
    late = SentWindow(windows[-4].after_ts, windows[-2].after_ts, many, late=True)
    found = by.result([*windows[:-2], late, *windows[-2:]], 0, end_ts, None)
    assert 0 < found.count <= 2
    assert (found.differences, found.late) == ((), frozenset())
    assert by.result([*windows, late], 0, end_ts, None) == ComparedWindows(late=frozenset(many))


def test_reading_ends_when_there_are_more_events_than_the_windows_have(
    world: World, pipeline: MySqlPipeline, windows: list[SentWindow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_windows, "EVENTS_MAX", 20)
    by, found = comparison(world, pipeline, budget=Budget(rows=40, first_rows=7, index_rows=500)), FoundParts()
    read_ts = by._read(found, windows[0].after_ts, world.end_ts)
    assert windows[0].after_ts < read_ts < world.end_ts
    assert 40 < len(found.events().hashes) <= 80


def test_tables_of_late_windows_are_named_of_which_windows_were_left_out() -> None:
    late = ComparedWindows(1, (), frozenset({("d", "b"), OTHERS})) + ComparedWindows(late=frozenset({("d", "a")}))
    assert [one.table for one in late_tables(late)] == ["a", "b"]
