"""Reads at a point in time through DDL of every kind, by hand-made tenants."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from support.points_world import PointWorld, over, written
from support.review_world import change, pulled, review_world
from support.row_bytes import compact, row_v2
from support.schema_records import DONE, column, database, drop, job, table, table_info
from tistream.errors import Gone, InvalidRequest, Unavailable, Undecodable, UnknownName
from tistream.format.run import SCHEMA as RUN_SCHEMA
from tistream.model.span import WHOLE
from tistream.model.ts import Window
from tistream.pool.rows import read_rows
from tistream.pool.versions.plan import IndexShard
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read.cursor import Scope
from tistream.schema.records import Record
from tistream_api.points.named_table import NotComplete, check_complete
from tistream_api.points.point_cursor import PointPosition
from tistream_api.points.snapshot_pull import SnapshotPage

NOT_NULL, PRIMARY, UNSIGNED = 1, 2, 32
BASE = [database(10, 1, "d")]
Line = dict[str, Any]


def shape(table_id: int, name: str, columns: list[Any], **more: Any) -> dict[str, Any]:
    pk = column(1, "id", flag=NOT_NULL | PRIMARY)
    return table_info(table_id, name, [pk, *columns], pk_is_handle=True, **more)


def v(*numbers: int) -> bytes:
    """A row of columns 2, 3, …"""
    return row_v2({2 + at: compact(number) for at, number in enumerate(numbers)})


WITH_B = table(40, 1, shape(100, "t", ["a", column(3, "b", origin_default="7")]))


def points(records: Iterable[Record], rows: Sequence[dict[str, Any]], **how: Any) -> PointWorld:
    world = review_world(records, rows)
    segments = tuple(one for index in world.indexes for one in index.segments)
    return over(world, [IndexShard(WHOLE, segments, **how)])


def check(one: PointWorld, name: str, ts: int) -> None:
    version = one.world.source.table(max(ts, 60), "d", name)
    assert version is not None
    check_complete(one.world.source, one.reads, [version], ts)


def rows(one: PointWorld, ts: int, name: str = "t") -> list[Line]:
    return [line["row"] for line in one.lines("d", name, ts)]


def net(events: list[Line]) -> list[tuple[str, Any, Any, Any]]:
    return [(event["op"], event["key"], event["old_row"], event["row"]) for event in events]


def test_a_table_is_read_in_its_shape_at_the_ts_and_not_before() -> None:
    one = points(
        [*BASE, table(20, 1, shape(100, "t", ["a"])), WITH_B],
        [change(30, 100, 1, v(5)), change(50, 100, 2, v(6, 8))],
    )  # fmt: skip
    assert rows(one, 39) == [{"id": 1, "a": 5}]
    assert rows(one, 40) == [{"id": 1, "a": 5, "b": 7}]
    assert rows(one, 50) == [{"id": 1, "a": 5, "b": 7}, {"id": 2, "a": 6, "b": 8}]
    with pytest.raises(UnknownName):
        rows(one, 19)
    assert net(one.diff("d", "t", 35, 60)) == [("put", {"id": 2}, None, {"id": 2, "a": 6, "b": 8})]
    assert net(one.diff("d", "t", 25, 35)) == [("put", {"id": 1}, None, {"id": 1, "a": 5})]


def test_a_changed_row_has_its_old_row_in_the_later_shape() -> None:
    one = points(
        [*BASE, table(20, 1, shape(100, "t", ["a"])), WITH_B],
        [change(30, 100, 1, v(5)), change(50, 100, 1, v(5, 9), v(5)), change(52, 100, 1, v(5, 7), v(5, 9))],
    )  # fmt: skip
    assert net(one.diff("d", "t", 35, 51)) == [("put", {"id": 1}, {"id": 1, "a": 5, "b": 7}, {"id": 1, "a": 5, "b": 9})]
    assert one.diff("d", "t", 35, 55) == []  # as it was


def test_a_truncate_deletes_all_and_pairs_what_came_back() -> None:
    one = points(
        [*BASE, table(20, 1, shape(100, "t", ["a"])), drop(40, 1, 100), table(40, 1, shape(101, "t", ["a"]))],
        [change(30, 100, 1, v(5)), change(31, 100, 2, v(6)), change(32, 100, 3, v(7)), change(50, 101, 2, v(60)),
         change(50, 101, 3, v(7))],
    )  # fmt: skip
    assert rows(one, 39) == [{"id": 1, "a": 5}, {"id": 2, "a": 6}, {"id": 3, "a": 7}]
    assert rows(one, 45) == []
    assert [(op, key) for op, key, *_ in net(one.diff("d", "t", 35, 45))] == [
        ("delete", {"id": 1}), ("delete", {"id": 2}), ("delete", {"id": 3})
    ]  # fmt: skip
    assert net(one.diff("d", "t", 35, 60)) == [
        ("delete", {"id": 1}, {"id": 1, "a": 5}, None),
        ("put", {"id": 2}, {"id": 2, "a": 6}, {"id": 2, "a": 60}),
    ]
    assert one.diff("d", "t", 35, 45)[0]["commit_ts"] == "45"
    assert [(one_["op"], one_["commit_ts"]) for one_ in one.history("d", "t", {"id": 2}, 15, 60)] == [
        ("put", "50"), ("put", "31")
    ]  # fmt: skip


def test_another_table_of_the_name_has_rows_of_its_own_shape() -> None:
    one = points(
        [*BASE, table(20, 1, shape(100, "t", ["a"])), drop(40, 1, 100),
         table(41, 1, shape(101, "t", [column(2, "text", tp=15, flen=20)]))],
        [change(30, 100, 1, v(5)), change(50, 101, 1, row_v2({2: b"x"}))],
    )  # fmt: skip
    assert net(one.diff("d", "t", 35, 60)) == [
        ("delete", {"id": 1}, {"id": 1, "a": 5}, None),
        ("put", {"id": 1}, None, {"id": 1, "text": "x"}),
    ]
    assert net(one.diff("d", "t", 35, 40)) == [("delete", {"id": 1}, {"id": 1, "a": 5}, None)]
    assert net(one.squash(low=35, high=60, ddl=False)) == net(one.diff("d", "t", 35, 60))


def test_a_row_that_moves_to_another_partition_is_one_event() -> None:
    one = points(
        [*BASE, table(20, 1, shape(100, "t", ["a"], partitions=[101, 102]))],
        [change(30, 101, 1, v(5)), change(31, 101, 2, v(6)), change(50, 101, 1, None, v(5)), change(50, 102, 1, v(50))],
    )
    assert rows(one, 40) == [{"id": 1, "a": 5}, {"id": 2, "a": 6}]
    assert rows(one, 50) == [{"id": 2, "a": 6}, {"id": 1, "a": 50}]  # by raw key
    assert net(one.diff("d", "t", 40, 50)) == [("put", {"id": 1}, {"id": 1, "a": 5}, {"id": 1, "a": 50})]
    assert [one_["op"] for one_ in one.history("d", "t", {"id": 1}, 15, 60)] == ["put", "delete", "put"]


def test_a_dropped_table_can_be_read_before_its_end() -> None:
    one = points([*BASE, table(20, 1, shape(100, "t", ["a"])), drop(40, 1, 100)], [change(30, 100, 1, v(5))])
    assert rows(one, 39) == [{"id": 1, "a": 5}]
    with pytest.raises(UnknownName):
        rows(one, 40)
    assert len(one.history("d", "t", {"id": 1}, 15, 60)) == 1
    assert net(one.squash(low=35, high=60, ddl=False)) == [("delete", {"id": 1}, {"id": 1, "a": 5}, None)]


def test_a_renamed_table_goes_on_in_a_squashed_pull() -> None:
    one = points(
        [*BASE, table(20, 1, shape(100, "t", ["a"])), table(40, 1, shape(100, "u", ["a"]))],
        [change(30, 100, 1, v(5)), change(50, 100, 1, v(6), v(5))],
    )
    assert rows(one, 60, "u") == [{"id": 1, "a": 6}]
    assert net(one.squash(low=35, high=60, ddl=False)) == [("put", {"id": 1}, {"id": 1, "a": 5}, {"id": 1, "a": 6})]
    assert net(one.squash("d", "u", low=35, high=60, ddl=False)) == [("put", {"id": 1}, None, {"id": 1, "a": 6})]
    assert net(one.squash("d", "t", low=35, high=60, ddl=False)) == [("delete", {"id": 1}, {"id": 1, "a": 5}, None)]


def test_rows_end_before_one_that_cannot_be_decoded_and_the_next_answer_names_it() -> None:
    bad = row_v2({2: b"\x01\x02\x03"})
    one = points(
        [*BASE, table(20, 1, shape(100, "t", ["a"]))],
        [change(30, 100, 1, v(5)), change(31, 100, 2, bad), change(32, 100, 3, v(7))],
    )
    *found, end = map(json.loads, one.page("d", "t", 40).splitlines())
    assert [line["row"]["id"] for line in found] == [1]
    with pytest.raises(Undecodable) as caught:
        one.page("d", "t", cursor=end["cursor"])
    assert caught.value.extra["commit_ts"] == "31"
    assert caught.value.extra["table"] == "d.t"
    assert [
        line["row"]["id"] for line in map(json.loads, one.page("d", "t", 40, from_key={"id": 3}).splitlines()[:-1])
    ] == [3]
    with pytest.raises(Undecodable):
        one.history("d", "t", {"id": 2}, 15, 60)
    with pytest.raises(Undecodable):
        one.diff("d", "t", 30, 60)
    assert len(one.diff("d", "t", 31, 60)) == 1


def test_a_snapshot_whose_first_row_cannot_be_read_is_refused_before_its_first_line() -> None:
    """Else each answer would have status 200 and be cut off, and its client would never learn why."""
    bad = row_v2({2: b"\x01\x02\x03"})
    one = points(
        [*BASE, table(20, 1, shape(100, "t", ["a"])), table(20, 1, shape(101, "u", ["a"]))],
        [change(30, 101, 1, bad), change(31, 101, 2, v(6))],
    )

    def first_piece(reads: PoolReads, ts: int) -> bytes:
        scope = Scope(one.world.tenant)
        tables, at = one.world.source.tables_at(ts, scope), PointPosition(0, ts)
        page = SnapshotPage(
            scope, tables, at, 10, one.world.source, reads, lambda *_: None, lambda _: None, lambda: False
        )
        return bytes(next(page.pieces()))

    with pytest.raises(Undecodable, match=r"table d\.u"):
        first_piece(one.reads, 60)
    assert json.loads(first_piece(one.reads, 29)) == {"type": "snapshot_begin", "snapshot_ts": "29"}

    def silent() -> list[IndexShard]:
        raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        first_piece(PoolReads(one.reads.reader, silent, lambda: None), 29)


def test_a_row_that_is_as_it_was_is_no_difference_although_it_cannot_be_decoded() -> None:
    bad = row_v2({2: b"\x01\x02\x03"})
    one = points(
        [*BASE, table(20, 1, shape(100, "t", ["a"]))],
        [
            change(30, 100, 1, bad),
            change(50, 100, 1, v(5), bad),
            change(51, 100, 1, bad, v(5)),
            change(52, 100, 2, v(6)),
        ],
    )
    assert net(one.diff("d", "t", 40, 60)) == [("put", {"id": 2}, None, {"id": 2, "a": 6})]


def test_what_was_there_before_the_tenant_is_not_read_as_if_it_were_complete() -> None:
    old = points([*BASE, table(10, 1, shape(90, "old", ["a"])), table(20, 1, shape(100, "t", ["a"]))], [])
    check(old, "t", 60)
    with pytest.raises(NotComplete, match=r"d\.old"):
        check(old, "old", 60)


def test_what_the_index_has_folded_is_gone() -> None:
    one = points([*BASE, table(20, 1, shape(100, "t", ["a"]))], [change(30, 100, 1, v(5))], base_ts=50, indexed_ts=50)
    check(one, "t", 50)
    with pytest.raises(Gone) as caught:
        check(one, "t", 49)
    assert caught.value.extra == {"earliest_ts": "50"}


def test_a_table_that_is_older_than_its_index_is_not_complete() -> None:
    one = points([*BASE, table(20, 1, shape(100, "t", ["a"])), table(60, 1, shape(110, "u", ["a"]))], [], begins_ts=50)
    check(one, "u", 80)
    with pytest.raises(NotComplete):
        check(one, "t", 80)


@pytest.mark.parametrize("action", [25, 63])
def test_a_table_that_was_dropped_before_the_pool_and_has_come_back_is_not_complete(action: int) -> None:
    t, u = shape(100, "t", ["a"]), shape(110, "u", ["a"], partitions=[111, 112])
    one = points(
        [*BASE, table(60, 1, t), job(60, 8, action, DONE, table_id=100, existed=False), table(61, 1, u),
         job(61, 9, action, DONE, table_id=110, existed=False)],
        [change(70, 100, 1, v(6), v(5))],
        logged_ts=10,
    )  # fmt: skip
    for name in ("t", "u"):
        with pytest.raises(NotComplete):
            check(one, name, 80)
    check_histories(one, [{"id": 1}], 65)


def test_a_table_that_was_created_and_came_back_above_the_pools_beginning_is_complete() -> None:
    t = shape(100, "t", ["a"])
    again = [table(60, 1, t), job(60, 8, 25, DONE, table_id=100, existed=False)]
    made = [table(20, 1, t), job(20, 6, 3, DONE, table_id=100, existed=False)]
    gone = [drop(40, 1, 100), job(40, 7, 4, DONE, table_id=100, existed=False)]
    check(points([*BASE, *made, *gone, *again], []), "t", 80)
    check(points([*BASE, *made, *gone, *again], [], begins_ts=15), "t", 80)
    for begins_ts in (30, 50):
        with pytest.raises(NotComplete):
            check(points([*BASE, *made, *gone, *again], [], begins_ts=begins_ts), "t", 80)


def test_a_row_without_a_key_has_a_history_by_its_rowid() -> None:
    one = points(
        [*BASE, table(20, 1, table_info(100, "t", [column(2, "a")]))],
        [change(30, 100, 1, v(5)), change(40, 100, 1, v(6), v(5)), change(41, 100, 2, v(7))],
    )
    versions = one.history("d", "t", {"_tidb_rowid": "1"}, 15, 60)
    assert [(each["row"], each["old_row"]) for each in versions] == [({"a": 6}, {"a": 5}), ({"a": 5}, None)]
    assert rows(one, 60) == [{"a": 6}, {"a": 7}]
    got = one.lines("d", "t", 60, from_key={"_tidb_rowid": "2"})
    assert [line["key"] for line in got] == [{"_tidb_rowid": "2"}]


def test_a_history_goes_on_where_the_type_of_the_key_changes() -> None:
    """An INT is a number in events, and a BIGINT a string."""

    def keyed(tp: int, table_id: int) -> dict[str, Any]:
        pk = column(1, "id", tp=tp, flag=NOT_NULL | PRIMARY)
        return table_info(table_id, "t", [pk, "a"], pk_is_handle=True)

    one = points(
        [
            *BASE,
            table(20, 1, keyed(3, 100)),
            table(40, 1, keyed(8, 100)),
            drop(60, 1, 100),
            table(61, 1, keyed(3, 101)),
        ],
        [
            change(30, 100, 1, v(5)),
            change(31, 100, 2, v(7)),
            change(50, 100, 1, v(6), v(5)),
            change(70, 101, 1, v(8)),
        ],
    )  # fmt: skip
    for key in ({"id": "1"}, {"id": 1}):
        found = one.history("d", "t", key, 15, 80)
        assert [(each["commit_ts"], each["row"], each["old_row"]) for each in found] == [
            ("70", {"id": 1, "a": 8}, None),
            ("50", {"id": "1", "a": 6}, {"id": "1", "a": 5}),
            ("30", {"id": 1, "a": 5}, None),
        ]


def test_a_range_goes_with_keys_that_are_stored_as_they_are() -> None:
    key = column(1, "k", tp=15, flen=20, flag=NOT_NULL | PRIMARY)
    unique = {"id": 1, "idx_name": {"O": "p", "L": "p"}, "idx_cols": [{"name": {"O": "k"}, "offset": 0}],
              "is_primary": True, "is_unique": True, "state": 5}  # fmt: skip
    one = points(
        [*BASE, table(20, 1, table_info(100, "t", [key, column(2, "a")], index_info=[unique]))],
        [change(30, 100, 1, row_v2({1: b"x", 2: b"\x05"}))],
    )
    with pytest.raises(InvalidRequest) as caught:
        one.page("d", "t", 60, from_key={"k": "a"})
    assert caught.value.extra == {"parameter": "from_key"}
    assert [line["key"] for line in one.lines("d", "t", 60, key={"k": "x"})] == [{"k": "x"}]
    assert one.lines("d", "t", 60, key={"k": "y"}) == []
    assert [each["row"] for each in one.history("d", "t", {"k": "x"}, 15, 60)] == [{"k": "x", "a": 5}]
    with pytest.raises(InvalidRequest) as caught:
        one.page("d", "t", 60, columns=("a", "none"))
    assert caught.value.extra == {"parameter": "columns"}


def as_indexed(one: PointWorld, indexed_ts: int) -> PointWorld:
    """The pool with a run of the changes up to `indexed_ts`, beside the segments that have them too."""
    (shard,) = one.reads.shards()
    some = pa.concat_tables([read_rows(one.world.objects, each, Window(0, indexed_ts)) for each in shard.segments])
    frame = pl.from_arrow(some.select(RUN_SCHEMA.names))
    assert isinstance(frame, pl.DataFrame)
    ordered = frame.sort("key", "commit_ts", "start_ts", descending=[False, True, True])
    runs = tuple(written(one.world, ordered, 10, indexed_ts, random.Random(1)))
    return over(one.world, [replace(shard, runs=runs, indexed_ts=indexed_ts, base_ts=10, begins_ts=10)])


def check_histories(one: PointWorld, keys: Sequence[Line], low: int) -> None:
    """The histories of these rows of d.t are the events of a pull that have their keys."""
    pull = [event for event in pulled(one.world, "d", "t", start=low) if event["type"] == "row"]
    assert pull
    for key in keys:
        wanted = [event for event in pull if event["key"] == key][::-1]
        got = one.history("d", "t", key, low, 100)
        names = ("commit_ts", "start_ts", "op", "row", "old_row")
        assert [[each[name] for name in names] for each in got] == [[each[name] for name in names] for each in wanted]


@pytest.mark.parametrize("indexed", [False, True])
def test_the_history_of_a_row_from_before_the_pool_has_its_old_row_and_its_delete(indexed: bool) -> None:
    one = points(
        [*BASE, table(10, 1, shape(100, "t", ["a"]))],
        [change(60, 100, 1, v(6), v(5)), change(70, 100, 2, None, v(5)), change(70, 100, 4, v(1)),
         change(71, 100, 1, v(7), v(6)), change(72, 100, 3, v(4)), change(73, 100, 3, None, v(4))],
        logged_ts=10,
    )  # fmt: skip
    one = as_indexed(one, 71) if indexed else one
    for low in (10, 60, 70, 72):
        check_histories(one, [{"id": number} for number in range(1, 6)], low)
    assert net_of(one.history("d", "t", {"id": 2}, 10, 100)) == [("delete", {"id": 2, "a": 5}, None)]


@pytest.mark.parametrize("indexed", [False, True])
def test_a_history_by_another_key_than_the_stored_one_has_rows_from_before_the_pool(indexed: bool) -> None:
    key = column(1, "id", flag=NOT_NULL | PRIMARY)
    primary = {"id": 1, "idx_name": {"O": "p", "L": "p"}, "idx_cols": [{"name": {"O": "id"}, "offset": 0}],
               "is_primary": True, "is_unique": True, "state": 5}  # fmt: skip
    info = table_info(100, "t", [key, column(2, "a")], index_info=[primary])

    def row(number: int, a: int) -> bytes:
        return row_v2({1: compact(number), 2: compact(a)})

    one = points(
        [*BASE, table(10, 1, info)],
        [change(60, 100, 1, row(11, 5), row(1, 5)), change(70, 100, 2, None, row(2, 5)), change(71, 100, 3, row(3, 5)),
         change(72, 100, 1, row(12, 5), row(11, 5)), change(73, 100, 4, row(2, 8), row(4, 8))],
        logged_ts=10,
    )  # fmt: skip
    one = as_indexed(one, 71) if indexed else one
    for low in (10, 60, 71):
        check_histories(one, [{"id": number} for number in (1, 2, 3, 4, 11, 12, 13)], low)


def net_of(versions: list[Line]) -> list[tuple[str, Any, Any]]:
    return [(one["op"], one["old_row"], one["row"]) for one in versions]


FAR = (1 << 63) + 1


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (6, None, [FAR, 7]),
        (6, FAR + 4, [FAR, 7]),
        (1 << 63, None, [FAR]),
        (None, 6, [5]),
        (None, FAR, [5, 7]),
        (FAR, FAR + 1, [FAR]),
        (FAR, 6, []),
        (5, 1 << 63, [5, 7]),
        (0, None, [FAR, 5, 7]),
    ],
)
def test_a_range_of_unsigned_keys_has_the_ids_from_2_63_on(low: int | None, high: int | None, expected: Any) -> None:
    pk = column(1, "id", tp=8, flag=NOT_NULL | PRIMARY | UNSIGNED)
    info = table_info(100, "t", [pk, column(2, "a")], pk_is_handle=True, partitions=[101, 102])
    some = [change(30, part, one, v(part - 100)) for part in (101, 102) for one in (5, 7, FAR)]
    one = points([*BASE, table(20, 1, info)], some)
    bounds = {"from_key": low, "to_key": high}
    asked: Any = {name: {"id": str(value)} for name, value in bounds.items() if value is not None}
    wanted = [(part, str(id_)) for part in (1, 2) for id_ in expected]

    def got(*lines: Line) -> list[tuple[int, str]]:
        return [(line["row"]["a"], line["row"]["id"]) for line in lines]

    assert got(*one.lines("d", "t", 40, **asked)) == wanted
    found, cursor = list[tuple[int, str]](), None
    while True:  # row after row
        *lines, end = map(json.loads, one.page("d", "t", 40, cursor=cursor, limit=1, **asked).splitlines())
        found += got(*lines)
        cursor = end["cursor"]
        if cursor is None:
            break
    assert found == wanted
    parts = one.parts("d", "t", 40, 16, **asked)
    in_parts = [one.lines("d", "t", 40, cursor=begin, until=until, **asked) for begin, until in parts]
    assert got(*(line for lines in in_parts for line in lines)) == wanted


# Attack: a task has flushed its rows of a transaction, and another one has not; a row group has rows of both sides
def test_a_transaction_above_the_resolved_ts_is_asked_to_come_back() -> None:
    two = [change(50, 100, row, v(row), start_ts=43) for row in (2, 3)]
    one = points([*BASE, WITH_B], [change(45, 100, 1, v(1), start_ts=41), *two])
    with pytest.raises(Unavailable, match="start_ts 43 is not resolved yet"):
        one.transaction(43, resolved_ts=46)
    assert [line["type"] for line in one.transaction(41, resolved_ts=46)] == ["row", "end"]
    assert [line["type"] for line in one.transaction(43, resolved_ts=50)] == ["row", "row", "end"]
