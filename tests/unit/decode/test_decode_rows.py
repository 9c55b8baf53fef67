"""Row values of both formats: which cell is whose, and what is refused (upstream-formats 4.1 to 4.3)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.row_bytes import (
    bytes_datum,
    column,
    common_key,
    compact,
    comparable_float,
    comparable_int,
    record_key,
    row_v1,
    row_v2,
    table,
    uvarint,
    varint,
)
from tistream.decode.rows import Decoded, decode_rows
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column, Table

SMALL = bytes.fromhex(
    "80000b000100 0103060708090c0d0e0f10 21 020003000b000e00100018001900210024004100 4500"
    "e803 03 4003333333333332 616263 ff7f bffccccccccccccd 02 0000008733e69e19 010081"
    "01010000001c0000001300000003000c160000006b65790576616c7565 00ca9a3b".replace(" ", "")
)
LARGE = bytes.fromhex(
    "800104000100 0100000003000000080000000c000000 4f010000 02000000030000000500000006000000 e803 03 ff7f 02".replace(
        " ", ""
    )
)
UNSIGNED = t.FLAG_UNSIGNED


def decode(of: Table, *values: bytes, keys: list[bytes] | None = None) -> Decoded:
    raw = keys if keys is not None else [record_key(104, 1)] * len(values)
    return decode_rows(of, of.columns, pa.array(raw, pa.binary()), pa.array(values, pa.binary()))


def lists(decoded: Decoded) -> list[list[Any]]:
    return [array.to_pylist() for array in decoded.batch.columns]


def ints(*ids: int) -> tuple[Column, ...]:
    return tuple(column(t.LONGLONG, id=id_, name=f"c{id_}", offset=at) for at, id_ in enumerate(ids))


def test_the_published_small_row() -> None:
    wide = table(
        column(t.LONGLONG, id=1),
        column(t.LONGLONG, id=3, flag=UNSIGNED),
        column(t.DOUBLE, id=6),
        column(t.VARCHAR, id=7),
        column(t.LONGLONG, id=8),
        column(t.FLOAT, id=9),
        column(t.LONG, id=12),
        column(t.DATETIME, id=13),
        column(t.DECIMAL, id=14, decimal=2),
        column(t.JSON, id=15),
        column(t.DURATION, id=16),
        column(t.LONGLONG, id=33),
        column(t.LONGLONG, id=34),
    )
    assert len(SMALL) == 109
    decoded = decode(wide, SMALL)
    assert decoded.errors == {}
    expected = [1000, 3, -1.8, "abc", 32767, pytest.approx(1.8), 2, "2018-01-19 03:14:07", "1.00", '{"key":"value"}']
    assert [values[0] for values in lists(decoded)] == [*expected, "00:00:01", None, None]
    assert decoded.batch.schema.names == [str(place) for place in range(13)]


def test_the_published_large_row() -> None:
    assert lists(decode(table(*ints(1, 3, 8, 12, 335, 400)), LARGE)) == [[1000], [3], [32767], [2], [None], [None]]


def test_headers_may_differ_from_row_to_row() -> None:
    rows = [
        row_v2({1: b"\x01", 2: b"\x02"}),
        row_v2({1: b"\x03", 2: b"\x04"}),
        row_v2({1: None, 2: b"\x05"}),
        row_v2({2: b"\x06"}),
        row_v2({2: b"\x07", 300: b"\x08"}),
        row_v2({}),
        row_v2({1: b"\x09", 2: None}, checksum=bytes(5)),
    ]
    first, second, third = lists(decode(table(*ints(1, 2, 300)), *rows))
    assert first == [1, 3, None, None, None, None, 9]
    assert second == [2, 4, 5, 6, 7, None, None]
    assert third == [None, None, None, None, 8, None, None]


def test_a_value_area_above_64_kib_is_large() -> None:
    value = row_v2({1: b"\x05", 2: b"x" * 70_000})
    wide = table(column(t.LONGLONG, id=1), column(t.BLOB, id=2, charset="binary"))
    assert lists(decode(wide, value)) == [[5], [b"x" * 70_000]]


def test_columns_in_any_order_and_twice() -> None:
    of = table(*ints(1, 2))
    wanted = (of.columns[1], of.columns[0], of.columns[1])
    value = row_v2({1: b"\x01", 2: b"\x02"})
    decoded = decode_rows(of, wanted, pa.array([record_key(1, 1)]), pa.array([value]))
    assert lists(decoded) == [[2], [1], [2]]


def test_the_published_row_of_format_1() -> None:
    value = bytes.fromhex("080208020804080408060806080800")
    assert lists(decode(table(*ints(1, 2, 3, 4, 5)), value)) == [[1], [2], [3], [None], [None]]
    assert lists(decode(table(*ints(1)), b"\0")) == [[None]]


def test_every_datum_of_format_1() -> None:
    of = table(
        column(t.LONGLONG, id=1),
        column(t.LONGLONG, id=2, flag=UNSIGNED),
        column(t.DOUBLE, id=3),
        column(t.VARCHAR, id=4),
        column(t.DECIMAL, id=5, decimal=2),
        column(t.JSON, id=6),
        column(t.VECTOR, id=7),
        column(t.DATETIME, id=8),
        column(t.DURATION, id=9, decimal=3),
        column(t.LONGLONG, id=10),
    )
    document = bytes.fromhex("01010000001c0000001300000003000c160000006b65790576616c7565")
    value = row_v1(
        {
            1: b"\x08" + varint(-(1 << 63)),
            2: b"\x09" + uvarint((1 << 64) - 1),
            3: b"\x05" + comparable_float(-2.5),
            4: b"\x02" + varint(3) + b"abc",
            5: b"\x06" + bytes.fromhex("040275c8"),
            6: b"\x0a" + document,
            7: b"\x14" + bytes.fromhex("020000000000803f00000040"),
            8: b"\x09" + uvarint(0x199EE63387000000),
            9: b"\x08" + varint(-1_500_000_000),
            10: b"\0",
        }
    )
    decoded = decode(of, value)
    assert decoded.errors == {}
    assert [column[0] for column in lists(decoded)] == [
        -(1 << 63), (1 << 64) - 1, -2.5, "abc", "-10.55", '{"key":"value"}', "[1,2]", "2018-01-19 03:14:07",
        "-00:00:01.500", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("0400", "null"),
        ("0401", "true"),
        ("090500000000000000", "5"),
        ("0c03616263", '"abc"'),
        ("0dfd03616263", '"base64:type253:YWJj"'),
        ("1100ca9a3b0000000006000000", '"00:00:01.000000"'),
        ("03000000000800000000"[:18], "[]"),
    ],
)
def test_json_of_each_length_in_format_1(document: str, text: str) -> None:
    of = table(column(t.JSON, id=1), column(t.LONGLONG, id=2))
    value = row_v1({1: b"\x0a" + bytes.fromhex(document), 2: b"\x08" + varint(7)})
    assert lists(decode(of, value)) == [[text], [7]]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "truncated"),
        (b"\x80", "truncated"),
        (SMALL[:20], "truncated"),
        (SMALL[:-1], "offsets"),
        (SMALL + b"\0", "follow"),
        (b"\x81" + SMALL[1:], "format"),
        (b"\0\0", "format"),
        (bytes.fromhex("800002000000 0101 01000200 0102".replace(" ", "")), "ascending"),
        (bytes.fromhex("800000000200 0201".replace(" ", "")), "ascending"),
        (bytes.fromhex("800002000000 0102 02000100 0102".replace(" ", "")), "offsets"),
        (bytes.fromhex("0802"), "datum"),
        (bytes.fromhex("080208"), "datum"),
        (bytes.fromhex("08020b01"), "datum"),
        (bytes.fromhex("0802020aff"), "datum"),
        (bytes.fromhex("08ffffffffffffffffffff01"), "datum"),
    ],
)
def test_a_broken_row_is_reported_and_the_others_go_on(value: bytes, reason: str) -> None:
    good = row_v2({1: b"\x01"})
    decoded = decode(table(*ints(1)), good, value, good)
    assert list(decoded.errors) == [1]
    assert reason in decoded.errors[1]
    assert lists(decoded) == [[1, None, 1]]


def test_a_bad_cell_nulls_the_whole_row_and_names_its_column() -> None:
    decoded = decode(table(*ints(1, 2)), row_v2({1: b"\x01", 2: b"abc"}), row_v2({1: b"\x01", 2: b"\x02"}))
    assert decoded.errors == {0: "column c2: not an integer"}
    assert lists(decoded) == [[None, 1], [None, 2]]


def test_an_integer_primary_key_is_in_the_key() -> None:
    signed = table(column(t.LONG, id=1, flag=t.FLAG_PRIMARY), column(t.LONGLONG, id=2), pk_is_handle=True)
    raw = [record_key(104, -7), record_key(104, 8), record_key(104, 9) + b"\0"]
    values = [row_v2({2: b"\x01"}), row_v2({1: b"\x05", 2: b"\x02"}), row_v2({2: b"\x03"})]
    decoded = decode(signed, *values, keys=raw)
    assert lists(decoded) == [[-7, 5, None], [1, 2, None]]
    assert "key" in decoded.errors[2]
    unsigned = table(column(t.LONGLONG, id=1, flag=t.FLAG_PRIMARY | UNSIGNED), pk_is_handle=True)
    assert lists(decode(unsigned, row_v2({}), keys=[record_key(104, -1)])) == [[(1 << 64) - 1]]


def clustered() -> Table:
    return table(
        column(t.VARCHAR, id=1, name="s"),
        column(t.LONGLONG, id=2, name="i"),
        column(t.DOUBLE, id=3, name="f"),
        column(t.DECIMAL, id=4, name="d", decimal=2),
        column(t.DATETIME, id=5, name="t"),
        column(t.DURATION, id=6, name="u"),
        column(t.LONG, id=7, name="v"),
        primary=(0, 1, 2, 3, 4, 5),
    )


DATUMS = (
    bytes_datum(b"12345678"),
    b"\x03" + comparable_int(-3),
    b"\x05" + comparable_float(-1.5),
    b"\x06" + bytes.fromhex("040275c8"),
    b"\x04" + (0x199EE63387000000).to_bytes(8, "big"),
    b"\x07" + comparable_int(-1_000_000_000),
)


def test_a_clustered_key_of_every_datum() -> None:
    decoded = decode(clustered(), row_v2({7: b"\x09"}), keys=[common_key(104, *DATUMS)])
    assert decoded.errors == {}
    expected = ["12345678", -3, -1.5, "-10.55", "2018-01-19 03:14:07", "-00:00:01", 9]
    assert [values[0] for values in lists(decoded)] == expected


def test_the_value_goes_before_the_key() -> None:
    decoded = decode(clustered(), row_v2({1: b"Real", 7: b"\x09"}), keys=[common_key(104, *DATUMS)])
    assert lists(decoded)[0] == ["Real"]


def test_a_short_handle_is_padded() -> None:
    short = table(column(t.DECIMAL, id=1, decimal=0), primary=(0,))
    key = common_key(104, b"\x06" + bytes.fromhex("010081"))
    assert len(key) == 20
    assert lists(decode(short, row_v2({}), keys=[key])) == [["1"]]


@pytest.mark.parametrize(
    "key",
    [
        b"",
        record_key(104, 1),
        common_key(104, *DATUMS)[:-1],
        common_key(104, *DATUMS) + b"\x01",
        common_key(104, *DATUMS[:3]),
        common_key(104, *reversed(DATUMS)),
        common_key(104, b"\x01" + b"abcdefgh" + b"\x00", *DATUMS[1:]),
        b"m" + common_key(104, *DATUMS)[1:],
    ],
)
def test_a_handle_that_does_not_fit(key: bytes) -> None:
    decoded = decode(clustered(), row_v2({7: b"\x09"}), keys=[key])
    assert list(decoded.errors) == [0]
    assert lists(decoded) == [[None]] * 7


def test_slices_chunks_and_nothing() -> None:
    of = table(*ints(1))
    values = pa.array([row_v2({1: bytes([n])}) for n in range(9)], pa.binary())
    keys = pa.array([record_key(1, n) for n in range(9)], pa.binary())
    sliced = decode_rows(of, of.columns, keys.slice(3, 4), values.slice(3, 4))
    assert lists(sliced) == [[3, 4, 5, 6]]
    chunked = pa.chunked_array([values.slice(0, 2), values.slice(5)])
    keys = pa.chunked_array([keys.slice(0, 2), keys.slice(5)])
    assert lists(decode_rows(of, of.columns, keys, chunked)) == [[0, 1, 5, 6, 7, 8]]
    assert lists(decode(of)) == [[]]
    assert decode_rows(of, (), keys, chunked).batch.num_rows == 6
    with pytest.raises(ValueError, match="6 keys for 9 values"):
        decode_rows(of, of.columns, keys, values)


def test_integers_are_as_wide_as_their_bytes() -> None:
    numbers = [0, -1, 127, -128, 128, 32767, -32769, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63)]
    assert lists(decode(table(*ints(1)), *(row_v2({1: compact(n)}) for n in numbers))) == [numbers]
    whole = [0, 200, 65535, 1 << 31, (1 << 64) - 1]
    of = table(column(t.LONGLONG, flag=UNSIGNED))
    assert lists(decode(of, *(row_v2({1: compact(n, unsigned=True)}) for n in whole))) == [whole]
