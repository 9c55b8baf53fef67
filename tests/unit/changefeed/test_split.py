"""Events become batches of row events with key updates split: equal to TiCDC's, and to a slow reference."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace

import pytest

from support import golden_kafka
from support.effort import seeds
from support.feed_batches import event_keys, golden_windows, raw_windows, rendered_window
from support.feed_tables import Change, Key, batch, changes_of, column, version
from support.golden_kafka import EventKey
from tistream.read.plan import OP_DELETE, OP_PUT
from tistream.rules.table_rules import TableRules
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb import table as t
from tistream.schema.visible import TableVersion
from tistream_changefeed.filters.event_filter import EventFilter
from tistream_changefeed.filters.event_kinds import parse_kinds
from tistream_changefeed.filters.feed_filter import FeedFilter
from tistream_changefeed.rows.handle_key import eligible, handle_columns, index_columns, unique_columns
from tistream_changefeed.rows.split import Splitting, by_handle, by_unique_index, never, split
from tistream_changefeed.rows.window import EventWindow, PlacedDdl

NOT_NULL = t.FLAG_NOT_NULL


def differing() -> set[int]:
    """The numbers of TiCDC's events that SELECT does not show: rows written with the value that they had."""
    groups = [line for line in golden_kafka.lines("differs") if line["why"].startswith("unchanged row")]
    return {number for line in groups for low, high in line["events"] for number in range(low, high + 1)}


def test_golden_events_are_ticdcs_but_for_unchanged_rows() -> None:
    ours = [key for window in golden_windows() for one in window.rows for key in event_keys(one)]
    theirs = {key: line["i"] for key, line in golden_kafka.rows().items()}
    assert len(set(ours)) == len(ours)
    assert not set(ours) - set(theirs)
    assert {theirs[key] for key in set(theirs) - set(ours)} == differing()


def test_golden_events_have_ticdcs_order_in_each_table_and_transaction() -> None:
    def by_transaction(keys: list[tuple[int, EventKey]]) -> dict[tuple[int, int], list[EventKey]]:
        out: dict[tuple[int, int], list[EventKey]] = defaultdict(list)
        for table_id, key in keys:
            out[table_id, key.commit_ts].append(key)
        return out

    ours: list[tuple[int, EventKey]] = []
    for window in golden_windows():
        placed = [
            (int(at), (one.version.head.id, key))
            for one in window.rows
            for at, key in zip(one.at, event_keys(one), strict=True)
        ]
        ours += [found for _, found in sorted(placed, key=lambda one: one[0])]
    known = {key for _, key in ours}
    theirs = [(line["table_id"], golden_kafka.key_of(line)) for line in golden_kafka.events() if line["type"] == "row"]
    assert by_transaction(ours) == by_transaction([one for one in theirs if one[1] in known])


def test_golden_handle_keys_and_eligible_tables_are_ticdcs() -> None:
    theirs = golden_kafka.rows()
    for window in golden_windows():
        for one in window.rows:
            line = theirs[event_keys(one)[0]]
            assert [column.name for column in one.handle] == (line["handle_key"] or [])
            assert eligible(one.version.table) == line["eligible"]


def test_golden_places_are_dense_and_each_ddl_follows_the_rows_of_its_ts() -> None:
    for window in golden_windows():
        placed = [(int(at), int(ts), 0) for one in window.rows for at, ts in zip(one.at, one.commit_ts, strict=True)]
        placed += [(ddl.at, ddl.event.commit_ts, 1) for ddl in window.ddls]
        placed.sort()
        assert [at for at, _, _ in placed] == list(range(len(window)))
        assert [one[1:] for one in placed] == sorted(one[1:] for one in placed)


def test_without_a_split_each_changed_row_is_one_event() -> None:
    windows = [split(window, never) for window in raw_windows()]
    keys = [key for window in windows for one in window.rows for key in event_keys(one)]
    assert len({(key.commit_ts, key.physical_id, key.raw) for key in keys}) == len(keys)
    assert sum(map(len, windows)) == sum(map(len, raw_windows())) < sum(map(len, golden_windows()))


@pytest.mark.parametrize("splitting", [never, by_unique_index])
def test_deletes_and_puts_that_are_read_apart_give_the_same_events(splitting: Splitting) -> None:
    # A filter that takes the delete half of a key update for a delete would drop it
    everything = TableRules.parse(["*.*"])
    ignoring = FeedFilter(everything, (EventFilter(everything, parse_kinds(["delete"])),), without_key=True)

    def events(window: EventWindow) -> list[EventKey]:
        return [key for one in split(ignoring.window(window), splitting).rows for key in event_keys(one)]

    deletes, puts = (rendered_window(op, splitting) for op in (OP_DELETE, OP_PUT))
    assert any(one.half is not None for one in (*deletes.rows, *puts.rows))
    first, then = events(deletes), events(puts)
    assert {key.op for key in first} == (set() if splitting is never else {"delete"})
    assert {key.op for key in then} == {"insert", "update"}
    assert sorted([*first, *then], key=repr) == sorted(events(rendered_window(None, None)), key=repr)


THREE = [column("a", flag=NOT_NULL), column("b", flag=NOT_NULL), column("c")]


def test_the_handle_key_is_the_index_with_the_fewest_columns_and_then_the_smallest_id() -> None:
    keys = [Key("ab", ("a", "b"), id=1), Key("b", ("b",), id=3), Key("a", ("a",), id=2), Key("c", ("c",), id=4)]
    table = version(THREE, keys).table
    assert [one.name for one in handle_columns(table)] == ["a"]
    assert [one.name for one in table.key_columns] == ["a", "b"]  # an event's key is another
    assert [one.name for one in unique_columns(table)] == ["a", "b", "c"]


def test_a_nullable_or_plain_index_is_no_handle_key() -> None:
    table = version(THREE, [Key("c", ("c",)), Key("a", ("a",), unique=False)]).table
    assert handle_columns(table) == ()
    assert not eligible(table)
    assert [one.name for one in unique_columns(table)] == ["c"]


def test_a_unique_index_over_a_virtual_column_is_no_handle_key() -> None:
    virtual = {**column("v", flag=NOT_NULL), "generated_expr_string": "`a` + 1", "generated_stored": False}
    table = version([*THREE, virtual], [Key("v", ("v",))]).table
    assert handle_columns(table) == ()


@pytest.mark.parametrize("name", ["ab", "AB"])
def test_an_index_is_found_by_its_name_in_any_case(name: str) -> None:
    table = version(THREE, [Key("Ab", ("b", "a")), Key("plain", ("c",), unique=False)]).table
    assert [one.name for one in index_columns(table, name) or ()] == ["a", "b"]
    assert index_columns(table, "plain") is None
    assert index_columns(table, "primary") is None


def test_an_update_of_a_nullable_unique_index_is_split_by_any_unique_index_only() -> None:
    of = version(THREE, [Key("PRIMARY", ("a",), primary=True), Key("c", ("c",), id=2)])
    old, new = {"a": 1, "b": 1, "c": None}, {"a": 1, "b": 1, "c": 5}
    window = EventWindow((batch(of, [Change(old, new)]),), ())

    def sent(splitting: Splitting) -> list[tuple[object, object]]:
        return [(change.old, change.new) for _, change in changes_of(split(window, splitting))]

    assert sent(by_unique_index) == [(old, None), (None, new)]
    assert sent(by_handle) == sent(never) == [(old, new)]


# --- against a slow reference --------------------------------------------------------------------------------------


def expected(window: EventWindow, splitting: Splitting, versions: dict[int, TableVersion]) -> list[tuple[int, Change]]:
    """The events in order, worked out one by one."""
    out: list[tuple[tuple[int, int, int, int, bytes], tuple[int, Change]]] = []
    for table_id, one in changes_of(window):
        names = [column.name for column in splitting(versions[table_id])]
        if one.old is not None and one.new is not None and any(one.old[name] != one.new[name] for name in names):
            parts = [(0, replace(one, new=None)), (3, replace(one, old=None))]
        else:
            parts = [(0 if one.new is None else 2 if one.old is None else 1, one)]
        for kind, part in parts:
            out.append(((part.commit_ts, part.start_ts, table_id, kind, part.key), (table_id, part)))
    return [event for _, event in sorted(out, key=lambda pair: pair[0])]


def history(rng: random.Random) -> tuple[EventWindow, dict[int, TableVersion]]:
    """A raw window of two tables: few values, so that many changes are of keys, and many transactions of both."""
    versions = {
        1: version(THREE, [Key("ab", ("a", "b"), id=1), Key("c", ("c",), id=2)], table_id=1),
        2: version([column("a", flag=NOT_NULL), column("s", t.VARCHAR)], [Key("s", ("s",))], table_id=2),
    }

    def row(of: int) -> dict[str, object]:
        some: dict[str, object] = {"a": rng.randrange(3), "b": rng.randrange(3), "c": rng.choice([None, 1, 2])}
        return some if of == 1 else {"a": rng.randrange(3), "s": rng.choice([None, "", "x", "X"])}

    changes: list[tuple[tuple[int, int, int, bool, bytes], int, Change]] = []
    for commit_ts in range(10, 10 + rng.randrange(1, 8)):
        for start_ts in rng.sample(range(1, 9), rng.randrange(1, 3)):
            for table_id in versions:
                for key in rng.sample(range(20), rng.randrange(6)):
                    old = row(table_id) if rng.random() < 0.7 else None
                    new = row(table_id) if old is None or rng.random() < 0.7 else None
                    one = Change(old, new, commit_ts, start_ts, b"%02d" % key)
                    changes.append(((commit_ts, start_ts, table_id, new is not None, one.key), table_id, one))
    changes.sort(key=lambda one: one[0])
    batches = []
    for table_id, of in versions.items():
        places = [place for place, one in enumerate(changes) if one[1] == table_id]
        made = batch(of, [changes[place][2] for place in places])
        batches.append(replace(made, at=made.at * 0 + places))
    ddls = [
        PlacedDdl(len(changes), DdlEvent(ts, 1, 1, "d", "t", "", "", 0, ())) for ts in sorted(rng.sample(range(20), 2))
    ]
    return EventWindow(tuple(one for one in batches if len(one)), tuple(ddls)), versions


@pytest.mark.parametrize("seed", seeds(20, 2_000))
@pytest.mark.parametrize("splitting", [never, by_handle, by_unique_index])
def test_a_random_window_is_split_as_by_the_reference(seed: int, splitting: Splitting) -> None:
    window, versions = history(random.Random(seed))
    done = split(window, splitting)
    assert changes_of(done) == expected(window, splitting, versions)
    placed = {ddl.at: ddl.event.commit_ts for ddl in done.ddls}
    for one in done.rows:
        for at, ts in zip(one.at.tolist(), one.commit_ts.tolist(), strict=True):
            placed[at] = ts
            assert all((ddl.at > at) == (ddl.event.commit_ts >= ts) for ddl in done.ddls)
    assert sorted(placed) == list(range(len(done)))
