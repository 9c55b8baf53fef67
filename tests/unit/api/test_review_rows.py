"""SQL that the golden sets do not hold: keys, shapes and visibility of rows, by the sentences of design.md 5."""

from __future__ import annotations

from typing import Any

import pytest

from support import schema_records as s
from support.review_world import brief, change, paged, pulled, review_world
from support.row_bytes import (
    bytes_datum,
    compact,
    comparable_float,
    comparable_int,
    packed_time,
    row_v1,
    row_v2,
    uvarint,
    varint,
)
from support.schema_records import DONE, QUEUEING, RUNNING, WRITE_ONLY, column, database, drop, job, table, table_info
from tistream.read.cursor import Position, Scope
from tistream.read.scan import Budget, Scan
from tistream.schema.records import Record
from tistream_api.encode.ndjson import NdjsonEncoder

NOT_NULL, PRIMARY, UNSIGNED = 1, 2, 32
BASE = [database(10, 1, "d"), database(10, 2, "mysql"), table(10, 2, table_info(200, "user"))]


def int_pk(table_id: int, name: str, columns: list[Any], **more: Any) -> dict[str, Any]:
    """A table with an integer clustered key `id`, column 1."""
    pk = column(1, "id", flag=NOT_NULL | PRIMARY)
    return table_info(table_id, name, [pk, *columns], pk_is_handle=True, **more)


def index(index_id: int, *parts: tuple[str, int] | tuple[str, int, int], **more: Any) -> dict[str, Any]:
    """A public unique index over (name, offset[, length])."""
    return {
        "id": index_id,
        "idx_name": s.name(f"i{index_id}"),
        "idx_cols": [{"name": s.name(p[0]), "offset": p[1], "length": p[2] if len(p) > 2 else -1} for p in parts],
        "state": 5,
        "is_unique": True,
        **more,
    }


def v(number: int) -> bytes:
    return row_v2({2: compact(number)})


T = int_pk(100, "t", ["v"])


def test_an_unsigned_key_above_the_signed_range() -> None:
    pk = column(1, "id", tp=8, flag=NOT_NULL | PRIMARY | UNSIGNED, flen=20)
    info = table_info(100, "t", [pk, "v"], pk_is_handle=True)
    big = 2**64 - 1
    one = review_world([*BASE, table(10, 1, info)], [change(20, 100, big - 2**64, v(5))])
    assert brief(pulled(one)) == [(20, "put", "t", {"id": str(big)}, {"id": str(big), "v": 5}, None)]


@pytest.mark.parametrize(
    ("datum", "tp", "more", "shown"),
    [
        (b"\x05" + comparable_float(-1.5), 5, {}, -1.5),
        (b"\x05" + comparable_float(0.1), 4, {}, 0.1),
        (b"\x03" + comparable_int(-(2**63)), 8, {}, str(-(2**63))),
        (b"\x04" + (2**64 - 1).to_bytes(8, "big"), 8, {"flag": UNSIGNED}, str(2**64 - 1)),
        (b"\x06\x04\x02\x75\xc8", 0xF6, {"flen": 4, "Decimal": 2}, "-10.55"),
        (b"\x07" + comparable_int(-3_661_000_000_000), 11, {}, "-01:01:01"),
        (b"\x04" + packed_time(2024, 0, 0).to_bytes(8, "big"), 10, {}, "2024-00-00"),
        (b"\x04" + packed_time(2024, 2, 29, 1, 2, 3).to_bytes(8, "big"), 7, {}, "2024-02-29 01:02:03"),
        (b"\x03" + comparable_int(2155), 13, {}, 2155),
        (b"\x04" + (2**63).to_bytes(8, "big"), 16, {"flen": 64}, str(2**63)),
        (b"\x04" + (2).to_bytes(8, "big"), 0xF7, {"Elems": ["x", "y"]}, "y"),
        (b"\x04" + (3).to_bytes(8, "big"), 0xF8, {"Elems": ["x", "y"]}, "x,y"),
        (bytes_datum(b"\x00\xff"), 254, {"Charset": "binary"}, "AP8="),
    ],
)
def test_composite_keys_of_every_kind(datum: bytes, tp: int, more: dict[str, Any], shown: Any) -> None:
    first = column(1, "a", tp=tp, flag=more.pop("flag", 0) | NOT_NULL | PRIMARY, flen=more.pop("flen", 11))
    first["type"] |= more
    second = column(2, "b", flag=NOT_NULL | PRIMARY)
    primary = index(1, ("a", 0), ("b", 1), is_primary=True)
    info = table_info(100, "t", [first, second, "c"], is_common_handle=True, index_info=[primary])
    handle = datum + b"\x03" + comparable_int(-1)
    key = {"a": shown, "b": -1}
    one = review_world([*BASE, table(10, 1, info)], [change(20, 100, handle, row_v2({3: compact(7)}))])
    assert brief(pulled(one)) == [(20, "put", "t", key, {**key, "c": 7}, None)]


def test_a_key_that_changes_only_its_case_is_a_delete_and_a_put() -> None:
    """A clustered key under utf8mb4_general_ci: `a` and `A` are one raw key; the value restores the text."""
    name = column(1, "n", tp=15, flag=NOT_NULL | PRIMARY, flen=20)
    info = table_info(100, "t", [name, "v"], is_common_handle=True, index_info=[index(1, ("n", 0), is_primary=True)])
    raw = bytes_datum(b"\x00A")
    rows = [change(20, 100, raw, row_v2({1: b"A", 2: b"\1"}), row_v2({1: b"a", 2: b"\1"}))]
    one = review_world([*BASE, table(10, 1, info)], rows)
    assert brief(pulled(one)) == [
        (20, "delete", "t", {"n": "a"}, None, {"n": "a", "v": 1}),
        (20, "put", "t", {"n": "A"}, {"n": "A", "v": 1}, None),
    ]
    assert paged(one, limit=1) == pulled(one)


def test_a_changed_unique_key_of_a_table_without_primary_key() -> None:
    cols = [column(1, "u", flag=NOT_NULL), "v"]
    info = table_info(100, "t", cols, index_info=[index(3, ("u", 0))])
    rows = [change(20, 100, 1, row_v2({1: b"\2", 2: b"\1"}), row_v2({1: b"\1", 2: b"\1"}))]
    one = review_world([*BASE, table(10, 1, info)], rows)
    assert [(e[1], e[3]) for e in brief(pulled(one))] == [("delete", {"u": 1}), ("put", {"u": 2})]


@pytest.mark.parametrize(
    ("indexes", "key"),
    [
        ([index(1, ("u", 0))], {"u": 1}),
        ([index(1, ("u", 0), is_invisible=True)], {"u": 1}),
        ([index(1, ("u", 0), is_unique=False), index(2, ("w", 2))], {"w": 3}),
        ([index(2, ("w", 2)), index(1, ("u", 0))], {"w": 3}),  # in index_info order, not by id
        ([index(1, ("u", 0, 2))], None),
        ([index(1, ("n", 1))], None),  # nullable
        ([index(1, ("n", 1), is_primary=True, state=WRITE_ONLY), index(2, ("u", 0))], {"u": 1}),
        ([index(1, ("u", 0), state=WRITE_ONLY)], None),
        ([index(1, ("u", 0), condition_expr_string="`u` > 1")], None),
        ([index(1, ("u", 0), mv_index=True)], None),
        ([index(1, ("h", 3))], None),  # an expression index's hidden column
        ([index(1, ("g", 4))], None),  # a virtual column
        ([index(1, ("s", 5))], {"s": 9}),  # a stored one
        ([index(1, ("u", 0), ("h", 3)), index(2, ("u", 0), ("w", 2))], {"u": 1, "w": 3}),
        ([index(1, ("w", 2), is_primary=True)], {"w": 3}),
        ([index(1, ("u", 0)), index(7, ("w", 2), is_primary=True)], {"w": 3}),
    ],
)
def test_which_index_is_the_key(indexes: list[dict[str, Any]], key: dict[str, Any] | None) -> None:
    cols = [
        column(1, "u", flag=NOT_NULL),
        column(2, "n"),
        column(3, "w", flag=NOT_NULL),
        column(4, "h", flag=NOT_NULL, hidden=True, generated_expr_string="lower(`u`)"),
        column(5, "g", flag=NOT_NULL, generated_expr_string="`u` + 1"),
        column(6, "s", flag=NOT_NULL, generated_expr_string="`u` + 8", generated_stored=True),
    ]
    info = table_info(100, "t", cols, index_info=indexes)
    value = row_v2({1: b"\1", 2: b"\2", 3: b"\3", 6: b"\x09"})
    (event,) = pulled(review_world([*BASE, table(10, 1, info)], [change(20, 100, -5, value)]))
    assert event["key"] == ({"_tidb_rowid": "-5"} if key is None else key)
    assert event["row"] == {"u": 1, "n": 2, "w": 3, "s": 9}


def test_a_prefix_primary_key_shows_the_whole_value() -> None:
    cols = [column(1, "n", tp=15, flag=NOT_NULL | PRIMARY, flen=20), "v"]
    info = table_info(100, "t", cols, is_common_handle=True, index_info=[index(1, ("n", 0, 2), is_primary=True)])
    rows = [change(20, 100, bytes_datum(b"lo"), row_v2({1: b"long name", 2: b"\1"}))]
    assert pulled(review_world([*BASE, table(10, 1, info)], rows))[0]["key"] == {"n": "long name"}


def test_rows_of_format_v1() -> None:
    value = row_v1({2: b"\x08" + varint(-5), 3: b"\x09" + uvarint(7), 4: b"\x02" + varint(2) + b"hi", 5: b"\x00"})
    cols = ["v", column(3, "u", flag=UNSIGNED), column(4, "n", tp=15), "z", column(6, "d", origin_default="8")]
    rows = [change(20, 100, 1, value), change(30, 100, 1, row_v1({}), value)]
    row = {"id": 1, "v": -5, "u": 7, "n": "hi", "z": None, "d": 8}
    none = {"id": 1, "v": None, "u": None, "n": None, "z": None, "d": 8}
    assert brief(pulled(review_world([*BASE, table(10, 1, int_pk(100, "t", cols))], rows))) == [
        (20, "put", "t", {"id": 1}, row, None),
        (30, "put", "t", {"id": 1}, none, row),
    ]


def test_what_select_does_not_show_is_no_event() -> None:
    virtual = column(3, "g", generated_expr_string="`v` + 1")
    info = int_pk(100, "t", ["v", virtual, column(4, "later", state=WRITE_ONLY)])
    rows = [
        change(20, 100, 1, row_v2({2: b"\1"}), row_v2({2: b"\1", 4: b"\5"})),  # only an invisible cell changes
        change(21, 100, 2, None),  # a delete of what never was
        change(22, 200, 1, row_v2({1: b"\1"})),  # of mysql.user
        change(23, 100, 3, row_v2({2: None}), row_v2({})),  # NULL, told and untold
    ]
    assert pulled(review_world([*BASE, table(10, 1, info)], rows)) == []


def test_sql_null_and_the_document_null_are_two_things() -> None:
    info = int_pk(100, "t", [column(2, "j", tp=0xF5)])
    rows = [change(20, 100, 1, row_v2({2: b"\x04\x00"}), row_v2({2: None}))]
    (event,) = pulled(review_world([*BASE, table(10, 1, info)], rows))
    assert (event["row"], event["old_row"]) == ({"id": 1, "j": None}, {"id": 1, "j": None})


def test_rows_of_a_dropped_or_truncated_table_end_with_it() -> None:
    records = [
        *BASE,
        table(10, 1, T),
        job(20, 7, 11, QUEUEING, table_id=100),
        drop(30, 1, 100),
        table(30, 1, int_pk(101, "t", ["v"])),
        job(30, 7, 11, DONE, table_id=100),
        job(35, 8, 4, QUEUEING, table_id=101),
        table(40, 1, int_pk(101, "t", ["v"], state=WRITE_ONLY)),
        job(40, 8, 4, RUNNING, table_id=101),
        drop(50, 1, 101),
        job(50, 8, 4, DONE, table_id=101),
    ]
    rows = [change(ts, table_id, ts, v(1)) for ts in (29, 30, 31, 39, 40, 41, 60) for table_id in (100, 101)]
    one = review_world(records, rows)
    found = brief(pulled(one))
    assert [(e[0], e[1]) for e in found] == [
        (29, "put"), (30, "put"), (30, "ddl"), (31, "put"), (39, "put"), (40, "put"), (40, "ddl"),
    ]  # fmt: skip
    assert brief(pulled(one, "D", "T")) == found
    for limit in (1, 2, 3):
        assert brief(paged(one, "d", "t", limit=limit)) == found
    for start in (29, 30, 31, 40):
        assert brief(pulled(one, "d", "t", start=start)) == [e for e in found if e[0] > start]


def exchange(records: list[Record]) -> list[Record]:
    return [
        *records,
        job(25, 9, 42, QUEUEING, table_id=100),
        table(30, 1, int_pk(110, "p", ["v"], partitions=[100, 112])),
        drop(30, 1, 100),
        table(30, 1, int_pk(111, "t", ["v"])),
        job(30, 9, 42, DONE, table_id=100),
    ]


def test_exchange_partition_moves_rows_without_events() -> None:
    records = exchange([*BASE, table(10, 1, T), table(10, 1, int_pk(110, "p", ["v"], partitions=[111, 112]))])
    rows = [change(ts, table_id, ts, v(1)) for ts in (29, 30, 31) for table_id in (100, 111, 112)]
    one = review_world(records, rows)

    def told(*names: str) -> list[tuple[int, str, str, str]]:
        found = pulled(one, *names)
        assert paged(one, *names, limit=1) == found
        return [(int(e["commit_ts"]), e["type"], e["table"], e.get("table_id", "")) for e in found]

    before = [(29, "row", "t", "100"), (30, "row", "t", "100")]
    assert told("d", "t") == [*before, (30, "ddl", "t", ""), (31, "row", "t", "111")]
    both = [(29, "row", "p", "110")] * 2 + [(30, "row", "p", "110")] * 2
    assert told("d", "p") == [*both, (30, "ddl", "t", ""), (31, "row", "p", "110"), (31, "row", "p", "110")]
    assert len(told("d")) == 10


def test_names_across_databases_and_back() -> None:
    e_db = [database(10, 3, "e")]
    records = [
        *BASE,
        *e_db,
        table(10, 1, T),
        job(20, 7, 14, QUEUEING, schema_id=3, table_id=100),
        drop(30, 1, 100),
        table(30, 3, int_pk(100, "T2", ["v"])),
        job(30, 7, 14, RUNNING, schema_id=3, table_id=100),
        job(31, 7, 14, DONE, schema_id=3, table_id=100),
        job(40, 8, 3, QUEUEING, table_id=101),
        table(50, 1, int_pk(101, "t", ["v"])),
        job(50, 8, 3, DONE, table_id=101),
        database(60, 3, "e", WRITE_ONLY),
        job(60, 9, 2, RUNNING, schema_id=3, existed=False),
        drop(70, 3, 100),
        database(70, 3, None),
        job(70, 9, 2, DONE, schema_id=3),
    ]
    rows = [change(ts, 100, ts, v(1)) for ts in (29, 30, 31, 55, 60, 61)] + [change(55, 101, 9, v(1))]
    one = review_world(records, rows)

    def told(*names: str) -> list[tuple[int, str, str]]:
        return [(int(e["commit_ts"]), e["type"], f"{e['database']}.{e['table']}") for e in pulled(one, *names)]

    assert told("d") == [
        (29, "row", "d.t"), (30, "row", "d.t"), (30, "ddl", "e.T2"), (50, "ddl", "d.t"), (55, "row", "d.t"),
    ]  # fmt: skip
    assert told("d", "t") == told("d")
    in_e = [(31, "row", "e.T2"), (55, "row", "e.T2"), (60, "row", "e.T2"), (60, "ddl", "e.")]
    assert told("e") == told("E", "t2") == [(30, "ddl", "e.T2"), *in_e]


def test_a_recovered_table_goes_on_with_its_rows() -> None:
    records = [
        *BASE,
        table(10, 1, T),
        table(30, 1, {**T, "state": WRITE_ONLY}),
        job(30, 7, 4, RUNNING, table_id=100, existed=False),
        drop(32, 1, 100),
        job(32, 7, 4, DONE, table_id=100),
        table(50, 1, int_pk(100, "back", ["v"])),
        job(50, 8, 25, DONE, table_id=100, existed=False),
    ]
    rows = [change(20, 100, 1, v(1)), change(60, 100, 1, v(2), v(1))]
    assert brief(pulled(review_world(records, rows))) == [
        (20, "put", "t", {"id": 1}, {"id": 1, "v": 1}, None),
        (30, "ddl", "d", "t", "drop table"),
        (50, "ddl", "d", "back", "recover table"),
        (60, "put", "back", {"id": 1}, {"id": 1, "v": 2}, {"id": 1, "v": 1}),
    ]


@pytest.mark.parametrize("budget", [Budget(), Budget(8, 2, 1 << 20, 8)])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 29, 30, 31])
def test_transactions_larger_than_the_limit_and_a_ddl_at_their_ts(budget: Budget, limit: int) -> None:
    """Two transactions over two tables and a partitioned one at one commit_ts, key changes, and two DDLs there."""
    u = table_info(103, "u", [column(1, "u", flag=NOT_NULL), "v"], index_info=[index(3, ("u", 0))])
    records = [
        *BASE,
        table(10, 1, T),
        table(10, 1, int_pk(110, "p", ["v"], partitions=[101, 102])),
        table(10, 1, u),
        Record(50, 40, job(50, 8, 17, DONE, table_id=100, existed=False).change),
        Record(50, 41, job(50, 9, 17, DONE, table_id=110, existed=False).change),
    ]
    rows = []
    for at in range(1, 8):
        for start_ts, table_id in ((45, 100), (46, 101), (45, 102), (46, 102)):
            old, new = (None, v(at)) if at % 3 else (v(at), None)
            rows.append(change(50, table_id, at if start_ts == 45 else at + 100, new, old, start_ts=start_ts))
        changed = row_v2({1: compact(at + 1), 2: b"\1"})
        rows.append(change(50, 103, at, changed, row_v2({1: compact(at), 2: b"\1"}), start_ts=45))
        rows.append(change(40 + at, 100, 1_000 + at, v(1)))
        rows.append(change(60 + at, 101, 1_000 + at, v(1)))
    one = review_world(records, rows, tasks=3, budget=budget)
    plain = review_world(records, rows)
    found = pulled(plain)
    assert pulled(one) == found
    assert len(found) == 14 + 28 + 14 + 2
    assert paged(one, limit=limit) == found
    assert paged(one, "d", "u", limit=limit) == [e for e in found if e["table"] == "u"]
    puts: set[tuple[str, str]] = set()
    for event in found:
        group = (event["commit_ts"], event.get("start_ts", ""), event.get("table_id", ""))
        assert event.get("op") != "delete" or group not in puts
        puts |= {group} if event.get("op") == "put" else set()


def test_a_table_that_shows_no_stored_column_has_rows_all_the_same() -> None:
    virtual = column(1, "g", generated_expr_string="1 + 1")
    rows = [change(20, 100, 1, row_v2({})), change(30, 100, 1, None, row_v2({}))]
    one = review_world([*BASE, table(10, 1, table_info(100, "t", [virtual]))], rows)
    assert brief(pulled(one)) == [
        (20, "put", "t", {"_tidb_rowid": "1"}, {}, None),
        (30, "delete", "t", {"_tidb_rowid": "1"}, None, {}),
    ]


def test_origin_defaults_are_cast_to_the_column() -> None:
    cols = [
        column(2, "c", tp=254, flen=10, origin_default="ab  "),
        column(3, "b", tp=254, flen=4, origin_default="ab"),
        column(4, "s", tp=15, flen=10, origin_default="ab  "),
        column(5, "f", tp=5, flen=5, origin_default="1.555"),
    ]
    for place, facts in ((1, {"Charset": "binary"}), (3, {"Decimal": 2})):
        cols[place]["type"] |= facts
    one = review_world([*BASE, table(10, 1, int_pk(100, "t", cols))], [change(20, 100, 1, row_v2({}))])
    assert pulled(one)[0]["row"] == {"id": 1, "c": "ab", "b": "YWIAAA==", "s": "ab  ", "f": 1.56}


@pytest.mark.parametrize("together", [False, True])
def test_long_rows_that_compress_well_are_held_a_few_at_a_time(together: bool) -> None:
    """300 rows of 20 kB in a few compressed kB, in as many transactions or in one."""
    info = int_pk(100, "t", [column(2, "c", tp=252, flen=1 << 24)])
    value, small = row_v2({2: b"x" * 20_000}), row_v2({2: b"x"})
    rows = [change(50 if together else 20 + at, 100, at, value, small if at % 7 == 0 else None) for at in range(300)]
    one = review_world([*BASE, table(10, 1, info)], rows, tasks=2)
    want = pulled(one)
    budget = Budget(decoded_bytes=200_000)
    tight = review_world([*BASE, table(10, 1, info)], rows, tasks=2, budget=budget)
    assert pulled(tight) == want
    assert paged(tight, limit=31) == want
    scan = Scan(tight.source, Scope(tight.tenant), Position(10), tight.end_ts, budget)
    sizes = [len(b"".join(NdjsonEncoder().events(batch.events))) for batch in scan.batches()]
    assert max(sizes) <= 2 * budget.decoded_bytes
    assert sum(sizes) > 300 * 20_000
