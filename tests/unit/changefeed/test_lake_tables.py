"""Iceberg schemas follow TiDB's ids of columns; a commit rewrites only files whose keys change; what expires."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import DateType, DecimalType, IntegerType, LongType, StringType

from support import feed_tables
from support.feed_tables import Change
from support.row_bytes import column
from tistream.errors import CannotEncode
from tistream.model.ids import TenantKey
from tistream.read.cursor import Position
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.sinks.iceberg.field_types import keeps_values
from tistream_changefeed.sinks.iceberg.key_ranges import KeyRange, merged, pieces, rewrites
from tistream_changefeed.sinks.iceberg.lake_rows import by_hour, change_rows
from tistream_changefeed.sinks.iceberg.marks import CURSOR, LOADED, SEQUENCE, Marks, Newest, Told, newest
from tistream_changefeed.sinks.iceberg.table_schema import (
    EMPTY,
    LakeSchema,
    changes_type,
    evolved,
    with_first_ids,
)
from tistream_changefeed.sinks.iceberg.upkeep import DAY_MS, Keeping, expired, hourly_tag, old_tags, orphans

HOUR = 3_600_000 << 18
UNSIGNED = t.FLAG_UNSIGNED


def version(*columns: tuple[int, str, int, int]) -> TableVersion:
    """A table of these columns: id, name, type, length."""
    return feed_tables.version([feed_tables.column(name, tp, Flen=flen) | {"id": at} for at, name, tp, flen in columns])


def shown(lake: LakeSchema) -> list[tuple[str, int]]:
    return [(one.name, one.field_id) for one in lake.schema.fields]


def test_a_column_keeps_its_field_through_renames_and_one_that_is_added_again_is_another() -> None:
    first = evolved(EMPTY, "table", version((1, "id", t.LONG, 11), (2, "v", t.LONG, 11)))
    assert shown(first) == [("id", 1001), ("v", 1002)]
    renamed = evolved(first, "table", version((2, "w", t.LONG, 11), (1, "id", t.LONG, 11)))
    assert shown(renamed) == [("w", 1002), ("id", 1001)]
    dropped = evolved(renamed, "table", version((1, "id", t.LONG, 11)))
    again = evolved(dropped, "table", version((1, "id", t.LONG, 11), (3, "w", t.LONG, 11)))
    assert shown(again) == [("id", 1001), ("w", 1003)]
    assert [column.name for column in again.added] == ["w"]
    at_once = evolved(renamed, "table", version((1, "id", t.LONG, 11), (3, "w", t.LONG, 11)))
    assert shown(at_once) == shown(again)


def test_a_type_that_grows_keeps_its_field_and_one_that_changes_values_is_refused() -> None:
    before = version((1, "a", t.LONG, 11), (2, "d", t.DECIMAL, 10))
    first = evolved(EMPTY, "table", before)
    wider = evolved(first, "table", version((1, "a", t.LONGLONG, 20), (5, "d", t.DECIMAL, 12)), before)
    assert [(one.field_id, one.field_type) for one in wider.schema.fields] == [
        (1001, LongType()),
        (1002, DecimalType(12, 0)),
    ]
    assert (wider.fields, with_first_ids(wider).fields) == ({1: 1001, 5: 1002}, {1: 1001, 2: 1002, 5: 1002})
    with pytest.raises(CannotEncode, match="column a"):
        evolved(first, "table", version((7, "a", t.VARCHAR, 30), (2, "d", t.DECIMAL, 10)), before)
    changes = evolved(EMPTY, "changes", before)
    other = evolved(changes, "changes", version((7, "a", t.VARCHAR, 30), (2, "d", t.DECIMAL, 10)), before)
    assert other.fields == {7: 1007, 2: 1002}


def test_a_column_that_a_statement_adds_is_not_taken_for_one_that_it_drops() -> None:
    before = version((1, "id", t.LONG, 11), (2, "z", t.LONG, 11))
    first = evolved(EMPTY, "table", before)
    after = version((1, "id", t.LONG, 11), (3, "e", t.JSON, -1))
    for query in (
        "alter table t add column e json, drop column z",
        "alter table t add e json comment 'change z e', drop `z` /* change z e json */",
    ):
        assert shown(evolved(first, "table", after, before, query)) == [("id", 1001), ("e", 1003)]
        assert not changes_type(first, after, before, query)
    for change in ("CHANGE `z` `e` json", "change column z e json", "change  Z\n E json", 'change "z" "e" json'):
        assert changes_type(first, after, before, f"alter table t {change}")
        with pytest.raises(CannotEncode, match="column e"):
            evolved(first, "table", after, before, f"alter table t {change}")
    assert changes_type(first, after, before), "without a statement"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("alter table t modify column a varchar(30), add column c int", "a"),
        ("alter table t add column c int, change a b varchar(30)", "b"),
    ],
)
def test_the_rows_of_a_column_that_a_statement_rewrites_are_not_lost_beside_another_change(
    query: str, name: str
) -> None:
    """The column has a new id, and the table has one column more."""
    before = version((1, "id", t.LONG, 11), (2, "a", t.LONG, 11))
    after = version((1, "id", t.LONG, 11), (7, name, t.VARCHAR, 30), (8, "c", t.LONG, 11))
    assert changes_type(evolved(EMPTY, "table", before), after, before, query)
    wider = version((1, "id", t.LONG, 11), (7, name, t.LONGLONG, 20), (8, "c", t.LONG, 11))
    kept = evolved(evolved(EMPTY, "table", before), "table", wider, before, query)
    assert shown(kept) == [("id", 1001), (name, 1002), ("c", 1008)]


def test_changes_have_the_old_row_and_dates_that_no_calendar_has_are_told() -> None:
    of = version((1, "id", t.LONG, 11), (2, "d", t.DATE, 10))
    lake = evolved(EMPTY, "changes", of)
    assert isinstance(lake.schema.find_type("d"), DateType)
    assert isinstance(lake.schema.find_type("_old.id"), IntegerType)
    assert isinstance(lake.schema.find_type("_op"), StringType)
    zero = {"id": 1, "d": "0000-00-00"}
    batch = feed_tables.batch(
        of,
        [
            Change(None, zero, HOUR - 2, 5),
            Change(zero, {"id": 1, "d": "2024-02-29"}, HOUR - 1, 6),
            Change({"id": 1, "d": "2024-02-29"}, None, HOUR + 1, 7),
        ],
    )
    rows = change_rows([batch], lake)
    found = rows.select(["_op", "_commit_ts", "_start_ts", "id", "_raw", "_old"]).to_pylist()
    assert [tuple(row.values())[:5] for row in found] == [
        ("insert", HOUR - 2, 5, 1, '{"d":"0000-00-00"}'),
        ("update", HOUR - 1, 6, 1, None),
        ("delete", HOUR + 1, 7, 1, None),
    ]
    assert [None if row["_old"] is None else str(row["_old"]["d"]) for row in found] == [None, "None", "2024-02-29"]
    assert [(hour, part.num_rows) for hour, part in by_hour(rows)] == [(0, 2), (1, 1)]


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (column(t.DECIMAL, flen=40, decimal=2), column(t.DECIMAL, flen=44, decimal=2), True),
        (column(t.DECIMAL, flen=40, decimal=2), column(t.DECIMAL, flen=44, decimal=4), False),
        (column(t.VARCHAR, flen=20), column(t.VARCHAR, flen=90), True),
        (column(t.VARCHAR, flen=20), column(t.DURATION, decimal=0), False),
        (column(t.DURATION, decimal=0), column(t.DURATION, decimal=0), True),
        (column(t.DURATION, decimal=0), column(t.DURATION, decimal=3), False),
        (column(t.DURATION, decimal=0), column(t.VARCHAR, flen=20), False),
    ],
)
def test_texts_that_a_statement_writes_anew_are_not_taken_for_the_same(
    before: Column, after: Column, kept: bool
) -> None:
    assert keeps_values(before, after) is kept  # a text with another scale, or a time that was text, differs


def test_rows_from_before_a_column_got_another_id_are_shown_by_its_first_one() -> None:
    before = version((1, "id", t.LONG, 11), (2, "d", t.DECIMAL, 10))
    lake = evolved(EMPTY, "changes", before)
    wider = evolved(lake, "changes", version((1, "id", t.LONG, 11), (5, "d", t.DECIMAL, 12)), before)
    one, two = {"id": 1, "d": "1"}, {"id": 1, "d": "2"}
    rows = change_rows([feed_tables.batch(before, [Change(one, two, HOUR, 5)])], with_first_ids(wider))
    [found] = rows.select(["id", "d", "_old"]).to_pylist()
    assert (found["id"], found["d"], found["_old"]) == (1, Decimal(2), {"id": 1, "d": Decimal(1)})


def test_a_commit_rewrites_the_files_whose_keys_change_and_no_other() -> None:
    files = [KeyRange(1, 10), KeyRange(20, 30), KeyRange(40, 50)]
    plan = rewrites(files, pa.array([25]), pa.array([0, 12, 45, 60, 11]))
    assert [(one.file, one.puts.tolist()) for one in plan] == [(0, [0, 1, 4]), (1, []), (2, [2, 3])]
    assert [(one.file, one.puts.tolist()) for one in rewrites([], pa.array([], pa.int64()), pa.array([3]))] == [
        (None, [0])
    ]
    unknown = rewrites([KeyRange(None, None)], pa.array(["x"]), pa.array([], pa.string()))
    assert [one.file for one in unknown] == [0]


def test_a_file_is_merged_by_key_and_cut_when_it_is_large() -> None:
    rows = pa.table({"a": [1, 2, 3, 4], "b": ["x", None, "z", "w"], "v": [1, 2, 3, 4]})
    deleted = [pa.table({"a": [2, 4], "b": pa.array([None, "other"])}), pa.table({"a": [3], "b": ["z"]})]
    put = pa.table({"a": [3, 0], "b": ["z", "n"], "v": [33, 0]})
    out = merged(rows, ["a", "b"], deleted, put)
    assert out["v"].to_pylist() == [0, 1, 33, 4]
    odd = merged(pa.table({"#": [1, 2]}), ["#"], [pa.table({"#": [1]})], pa.table({"#": [0]}))
    assert odd["#"].to_pylist() == [0, 2]
    large = pa.table({"a": np.arange(1_000)})
    assert [part.num_rows for part in pieces(large, 2_000)] == [250] * 4
    assert [part.num_rows for part in pieces(large, 5_000)] == [1_000]
    assert list(pieces(large.slice(0, 0), 1)) == []


def test_the_newest_commit_is_found_though_its_snapshot_has_expired_or_is_not_current() -> None:
    tenant = TenantKey("7", "acme")
    first, second = (Marks("f", Position(ts), Fence(1, 1), b"k" if ts == 5 else None) for ts in (5, 6))
    texts = [one.texts(tenant) for one in (first, second)]
    foreign = Told(9, {})
    kept = {**texts[1], SEQUENCE: "4"}
    for told, properties, wanted in (
        ([], {}, None),
        ([foreign], {}, None),
        ([foreign, Told(4, texts[1]), Told(3, texts[0])], kept, Newest(second, 4, current=True)),
        ([foreign, Told(3, texts[0])], kept, Newest(first, 3, current=False)),
        ([foreign], kept, Newest(second, 4, current=True)),
        ([Told(3, {})], kept, Newest(second, 4, current=False)),
        ([], kept, Newest(second, 4, current=False)),
        ([foreign], {**texts[0], SEQUENCE: "3"}, Newest(first, 3, current=True)),
        ([foreign, Told(8, {}, parent=False)], kept, Newest(second, 4, current=False)),
        ([foreign, Told(8, {"total-data-files": "1"}, parent=False)], kept, Newest(second, 4, current=True)),
        ([Told(8, {"total-data-files": "1", "added-data-files": "1"}, parent=False)], kept, Newest(second, 4, False)),
        ([foreign], {**texts[1], LOADED: b"k".hex()}, Newest(second, 0, current=True)),  # of an earlier release
    ):
        assert newest(told, properties, tenant, "d.t") == wanted
    with pytest.raises(FeedFailed, match="another program has written it"):
        newest([foreign], {CURSOR: "?"}, tenant, "d.t")


def test_old_snapshots_and_tags_expire_and_one_commit_of_an_hour_has_a_tag() -> None:
    snapshots = [(number, number) for number in range(10)]
    assert expired(snapshots, {0, 9}, Keeping(snapshots=3)) == [6, 5, 4, 3, 2, 1]
    assert hourly_tag(5 * HOUR + 1, ["ts_" + str(4 * HOUR), "mine"]) == f"ts_{5 * HOUR + 1}"
    assert hourly_tag(5 * HOUR + 1, ["ts_" + str(5 * HOUR)]) is None
    tags = [f"ts_{number * HOUR}" for number in range(5)]
    assert old_tags([*tags, "mine"], 5 * HOUR, Keeping(hours=3)) == tags[:2]
    files = {"old": 0, "named": 0, "fresh": DAY_MS}
    assert list(orphans(files, {"named"}, 2 * DAY_MS)) == ["old"]
