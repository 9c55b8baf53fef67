"""What no TiDB writes of a table is refused by name; what any does is taken, however large. (limits.py)"""
# Attack: elements of a megabyte, thousands of columns: refused by name and limit

from __future__ import annotations

from typing import Any

import orjson
import pytest

from support.row_bytes import column as table_column
from support.row_bytes import table as parsed
from support.schema_records import WRITE_ONLY, column, name, table_info
from tistream.errors import CorruptObject
from tistream.schema.records import TableText
from tistream.schema.tidb import table as t
from tistream.schema.tidb.limits import check_info, shown_bytes
from tistream.schema.tidb.meta_change import META_TABLE_ID, MetaDecoder, MetaRow, UndecodableMeta
from tistream.schema.tidb.meta_key import encode_key
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.schema.visible import StoredTable

Info = dict[str, Any]
FACE = "\U0001f600"


def listed(tp: int, *elems: str, **more: Any) -> Info:
    info = column(2, "size", tp=tp, **more)
    info["type"]["Elems"] = list(elems)
    return info


def of(*columns: Info, **more: Any) -> Info:
    return table_info(100, "shirts", ["id", *columns]) | more


def default(text: Any, tp: int = t.VARCHAR, field: str = "origin_default") -> Info:
    return column(2, "note", tp=tp, **{field: text})


def many(count: int, **more: Any) -> list[Info]:
    return [column(number, f"c{number}", **more) for number in range(2, 2 + count)]


def indexed(parts: int) -> Info:
    part = {"name": name("id"), "offset": 0, "length": -1}
    return {"index_info": [{"id": 1, "idx_name": name("wide"), "state": 5, "idx_cols": [part] * parts}]}


@pytest.mark.parametrize(
    "info",
    [
        of(listed(t.ENUM, *(f"{number:05}" for number in range(65_535)))),
        of(listed(t.ENUM, *(FACE * 250 + f"{number:05}" for number in range(4_000)))),
        of(listed(t.ENUM, "x" * (1 << 20))),  # the length limit is a setting of TiDB
        of(listed(t.SET, *(FACE * 253 + f"{number:02}" for number in range(64)))),
        of(listed(t.SET, *("x" * (64 << 10) for _ in range(64)), origin_default=",".join(["x" * (64 << 10)] * 64))),
        of(default(FACE * 65_535)),
        of(default("\ufffd" * 65_535)),  # bytes that are no UTF-8, as Go's JSON has them
        of(default(7)),
        of(*many(4_095)),
        of(*many(4_095), *many(3_000, hidden=True), *many(3_000, state=WRITE_ONLY)),
        of(*many(4_095, tp=t.VARCHAR, origin_default="x" * 1_024)),
        of(**indexed(16)),
        of(*many(6_000), view={"view_algorithm": 0}),  # as many as it selects
    ],
    ids=range(13),
)
def test_whatever_tidb_writes_is_taken(info: Info) -> None:
    check_info(info)


TOO_MUCH = [
    (of(listed(t.ENUM, "s", "x" * 6_291_457)), "column 'size': bytes of element 2: 6291457; the limit is 6291456"),
    (of(listed(t.SET, FACE * 1_572_865)), "column 'size': bytes of element 1: 6291460; the limit is 6291456"),
    (of(listed(t.ENUM, *[""] * 65_536)), "column 'size': elements: 65536; the limit is 65535"),
    (of(listed(t.SET, *[""] * 65)), "column 'size': elements: 65; the limit is 64"),
    (of(default("x" * 262_145)), "column 'note': bytes of the default: 262145; the limit is 262144"),
    (of(default(["x" * 262_145])), "column 'note': bytes of the default: 262149; the limit is 262144"),
    (of(default("x" * 262_148, t.BIT, "origin_default_bit")), "bytes of the default: 262148; the limit is 262144"),
    (of(*many(4_096)), "table 'shirts': visible columns: 4097; the limit is 4096"),
    (
        of(*many(4_095, tp=t.VARCHAR, origin_default="x" * 16_384)),
        "table 'shirts', up to column 'c2050': bytes of a row: 33570816; the limit is 33554432",
    ),
    (of(**indexed(33)), "table 'shirts', index 'wide': columns: 33; the limit is 32"),
    (of(name=name("x" * 1_000), **indexed(33)), f"table '{'x' * 80}', index"),
]  # fmt: skip


@pytest.mark.parametrize(("info", "told"), TOO_MUCH, ids=range(len(TOO_MUCH)))
def test_what_no_tidb_writes_is_refused_by_table_column_and_limit(info: Info, told: str) -> None:
    key = encode_key(b"DB:1", b"Table:100")
    with pytest.raises(UndecodableMeta) as later:
        MetaDecoder().decode(MetaRow(META_TABLE_ID, 102, 101, key, orjson.dumps(info), None))
    databases = [{"db_info": {"id": 1, "db_name": name("shop"), "state": 5}, "tables": [info]}]
    with pytest.raises(CorruptObject) as first:
        parse_snapshot("k", orjson.dumps({"version": 1, "snapshot_ts": 42, "databases": databases}))
    for reason in (str(later.value), first.value.reason):
        assert told in reason
        assert len(reason) < 600


@pytest.mark.parametrize(
    "damage",
    [{"id": 1 << 63}, {"cols": [column(1 << 63, "a")]}, {"cols": [column(1, "a", offset=1 << 63)]}],
    ids=["table", "column", "offset"],
)
def test_numbers_that_fit_no_column_of_ids_are_refused(damage: Info) -> None:
    with pytest.raises(ValueError, match="more than 64 bits"):
        check_info(of() | damage)


@pytest.mark.parametrize("bits", [5, "ü", "x", [1], {}, "AQ==\n"])
def test_bits_that_are_no_base64_are_none(bits: Any) -> None:
    info = of(default(bits, t.BIT, "origin_default_bit"))
    check_info(info)
    assert t.parse_table(info).columns[1].origin_default_bit is None


@pytest.mark.parametrize(
    ("facts", "bytes_more"),
    [
        ({"tp": t.LONG}, 0),
        ({"tp": t.LONG, "origin_default": "1234"}, 4),
        ({"tp": t.ENUM, "elems": ("a", FACE * 2, "abc")}, 8),
        ({"tp": t.SET, "elems": ("a", "bc", FACE)}, 10),
        ({"tp": t.SET, "elems": ("a", "bc"), "origin_default": "bc"}, 5),
        ({"tp": t.ENUM, "elems": ("a",), "origin_default": "abc"}, 3),
        ({"tp": t.VARCHAR, "origin_default": FACE}, 4),
        ({"tp": t.VARCHAR, "elems": ("not shown",)}, 0),
        ({"tp": t.STRING, "charset": "binary", "flen": 99, "origin_default": "a"}, 99),
        ({"tp": t.STRING, "charset": "binary", "flen": 99, "flag": t.FLAG_NOT_NULL}, 99),
        ({"tp": t.STRING, "charset": "binary", "flen": 99}, 0),
        ({"tp": t.JSON, "origin_default": "[1e15]"}, 30),
    ],
)
def test_what_a_row_shows_beside_its_own_bytes(facts: Info, bytes_more: int) -> None:
    one = parsed(table_column(t.LONGLONG, id=1, name="id"), table_column(facts.pop("tp"), id=2, name="note", **facts))
    assert shown_bytes(one) == 32 + len("id") + 32 + len("note") + bytes_more


def test_it_is_found_out_once_for_a_version() -> None:
    info = of(listed(t.ENUM, "small", "x" * 300))
    one = StoredTable(TableText.pack(orjson.dumps(info)), info)
    assert one.shown_bytes == 32 + len("id") + 32 + len("size") + 300
    one._table = None
    one._text = TableText.pack(b"never read again")
    assert one.shown_bytes == 370
