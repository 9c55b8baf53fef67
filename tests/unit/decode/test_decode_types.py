"""The bytes of every type, as TiDB prints them (upstream-formats 4.4)."""

from __future__ import annotations

import math
import struct
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.effort import examples
from support.row_bytes import column, compact, comparable_float, packed_time, record_key, row_v2, table
from tistream.decode.json_text import render_objects
from tistream.decode.rows import decode_rows
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column

UNSIGNED = t.FLAG_UNSIGNED


def cells(of: Column, *raw: bytes) -> tuple[list[Any], dict[int, str]]:
    keys = pa.array([record_key(1, 1)] * len(raw), pa.binary())
    values = pa.array([row_v2({of.id: cell}) for cell in raw], pa.binary())
    decoded = decode_rows(table(of), [of], keys, values)
    return decoded.batch.column(0).to_pylist(), decoded.errors


def one(of: Column, raw: bytes) -> Any:
    values, errors = cells(of, raw)
    assert errors == {}
    return values[0]


def printed(of: Column, *raw: bytes) -> list[str]:
    keys = pa.array([record_key(1, 1)] * len(raw), pa.binary())
    decoded = decode_rows(table(of), [of], keys, pa.array([row_v2({of.id: cell}) for cell in raw], pa.binary()))
    return [text[len('{"c":') : -1] for text in render_objects([of], decoded.batch).to_pylist()]


def decimal_cell(value: Decimal, precision: int, fraction: int) -> bytes:
    """MySQL's binary decimal."""
    with localcontext(prec=130):
        digits = f"{abs(value.scaleb(fraction)):.0f}".rjust(precision, "0")
    whole = digits[: precision - fraction]
    parts = digits[precision - fraction :]
    out = b""
    head = len(whole) % 9
    groups = ([whole[:head]] if head else []) + [whole[at : at + 9] for at in range(head, len(whole), 9)]
    groups += [parts[at : at + 9] for at in range(0, len(parts), 9)]
    for group in groups:
        out += int(group).to_bytes([0, 1, 1, 2, 2, 3, 3, 4, 4, 4][len(group)], "big")
    if value.is_signed():
        out = bytes(byte ^ 0xFF for byte in out)
    return bytes([precision, fraction, out[0] ^ 0x80]) + out[1:]


@pytest.mark.parametrize(
    ("scale", "cell", "text"),
    [
        (4, "0e04810dfb38d204d2", "1234567890.1234"),
        (4, "0e047ef204c72dfb2d", "-1234567890.1234"),
        (2, "040275c8", "-10.55"),
        (0, "010081", "1"),
        (3, "010081", "1.000"),
        (1, "040275c8", "-10.6"),
        (0, "040275c8", "-11"),
        (-1, "040275c8", "-10.55"),
        (2, "0101" + "84", "0.40"),
        (0, "0101" + "85", "1"),
        (0, "0101" + "84", "0"),
        (0, "0101" + "7b", "0"),  # -0.4
    ],
)
def test_decimals(scale: int, cell: str, text: str) -> None:
    assert one(column(t.DECIMAL, decimal=scale), bytes.fromhex(cell)) == text


@given(st.data())
def test_any_decimal(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 65))
    fraction = data.draw(st.integers(0, min(precision, 30)))
    scale = data.draw(st.integers(0, 30))
    digits = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    with localcontext(prec=130):
        value = Decimal(digits).scaleb(-fraction)
        shown = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        text = format(abs(shown) if shown.is_zero() else shown, "f")
    assert one(column(t.DECIMAL, decimal=scale), decimal_cell(value, precision, fraction)) == text


@pytest.mark.parametrize(
    "cell", ["", "01", "0000", "420000", "0102" + "80", "0100", "01008100", "4200" + "80" * 30, "0100" + "8a"]
)
def test_what_is_no_decimal(cell: str) -> None:
    _, errors = cells(column(t.DECIMAL, decimal=2), bytes.fromhex(cell))
    assert errors == {0: "column c: not a decimal"}


@pytest.mark.parametrize(
    ("tp", "fsp", "parts", "text"),
    [
        (t.DATETIME, 0, (2018, 1, 19, 3, 14, 7), "2018-01-19 03:14:07"),
        (t.DATETIME, 3, (2018, 1, 19, 3, 14, 7, 123_999), "2018-01-19 03:14:07.123"),
        (t.TIMESTAMP, 6, (2038, 1, 19, 3, 14, 7, 5), "2038-01-19 03:14:07.000005"),
        (t.DATETIME, -1, (9999, 12, 31, 23, 59, 59), "9999-12-31 23:59:59"),
        (t.DATE, 0, (1000, 1, 1), "1000-01-01"),
        (t.DATE, 0, (2024, 0, 0), "2024-00-00"),
        (t.DATETIME, 1, (0, 0, 0), "0000-00-00 00:00:00.0"),
        (t.NEWDATE, 0, (0, 0, 0), "0000-00-00"),
    ],
)
def test_times(tp: int, fsp: int, parts: tuple[int, ...], text: str) -> None:
    assert one(column(tp, decimal=fsp), compact(packed_time(*parts), unsigned=True)) == text


def test_the_published_packed_time() -> None:
    assert packed_time(2018, 1, 19, 3, 14, 7) == 0x199EE63387000000


@pytest.mark.parametrize(
    "parts",
    [(10_000, 1, 1), (1, 1, 1, 24), (1, 1, 1, 0, 60), (1, 1, 1, 0, 0, 60), (1, 1, 1, 0, 0, 0, 1_000_000)],
)
def test_what_is_no_time(parts: tuple[int, ...]) -> None:
    _, errors = cells(column(t.DATETIME), compact(packed_time(*parts), unsigned=True))
    assert errors == {0: "column c: not a date or time"}


@pytest.mark.parametrize(
    ("nanos", "fsp", "text"),
    [
        (1_000_000_000, 0, "00:00:01"),
        (0, 0, "00:00:00"),
        (-500_000_000, 6, "-00:00:00.500000"),
        (-(838 * 3600 + 59 * 60 + 58) * 10**9 - 999_999_000, 6, "-838:59:58.999999"),
        ((838 * 3600 + 59 * 60 + 59) * 10**9, 2, "838:59:59.00"),
        ((1 << 63) - 1, 0, "2562047:47:16"),
    ],
)
def test_durations(nanos: int, fsp: int, text: str) -> None:
    assert one(column(t.DURATION, decimal=fsp), compact(nanos)) == text


def test_the_least_duration_has_no_text() -> None:
    assert cells(column(t.DURATION), compact(-(1 << 63)))[1] == {0: "column c: not a date or time"}


def test_enums() -> None:
    of = column(t.ENUM, elems=("small", "große", 'qu"ote'))
    assert cells(of, b"\0", b"\1", b"\2", b"\3", b"\4", b"\xff") == (["", "small", "große", 'qu"ote', "", ""], {})
    assert printed(of, b"\3") == ['"qu\\"ote"']


def test_sets() -> None:
    of = column(t.SET, elems=("a", "b", "c", "d"))
    texts, errors = cells(of, b"\0", b"\1", b"\x0a", b"\x0f", b"\x10")
    assert texts == ["", "a", "b,d", "a,b,c,d", None]
    assert errors == {4: "column c: not a set of the column's elements"}
    full = column(t.SET, elems=tuple(f"e{n}" for n in range(64)))
    assert one(full, b"\xff" * 8) == ",".join(full.elems)
    assert one(full, bytes(7) + b"\x80") == "e63"


def test_strings_and_bytes() -> None:
    assert one(column(t.VARCHAR), "zürich 日本 😀".encode()) == "zürich 日本 😀"
    assert one(column(t.BLOB, charset="binary"), b"\x00\xff") == b"\x00\xff"
    assert printed(column(t.BLOB, charset="binary"), b"", b"a", b"ab", b"abc", b"\xff\xfe") == [
        '""', '"YQ=="', '"YWI="', '"YWJj"', '"//4="',
    ]  # fmt: skip


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=12))
def test_what_is_no_utf8_is_replaced(raw: list[bytes]) -> None:
    assert cells(column(t.VARCHAR), *raw) == ([value.decode("utf-8", "replace") for value in raw], {})


def test_bits_and_years() -> None:
    assert printed(column(t.BIT, flag=UNSIGNED), b"\xff" * 8) == ['"18446744073709551615"']
    assert printed(column(t.YEAR), compact(2155), b"\0") == ["2155", "0"]


def test_which_integers_are_strings() -> None:
    assert printed(column(t.LONGLONG), compact(-5)) == ['"-5"']
    assert printed(column(t.LONGLONG, flag=UNSIGNED), b"\xff" * 8) == ['"18446744073709551615"']
    assert printed(column(t.LONG), compact(-(1 << 31)), b"\0") == ["-2147483648", "0"]
    assert printed(column(t.LONG, flag=UNSIGNED), b"\xff" * 4) == ["4294967295"]


@pytest.mark.parametrize("cell", [b"", b"abc", b"12345", bytes(9)])
def test_what_is_no_integer(cell: bytes) -> None:
    assert cells(column(t.LONG), cell)[1] == {0: "column c: not an integer"}


DOUBLES = [
    (0.0, "0"), (1.0, "1"), (-1.5, "-1.5"), (0.1, "0.1"), (1e15, "1e15"), (999999999999999.0, "999999999999999"),
    (1e-15, "0.000000000000001"), (1e-16, "1e-16"), (1.7976931348623157e308, "1.7976931348623157e308"),
    (5e-324, "5e-324"), (2.2250738585072014e-308, "2.2250738585072014e-308"), (123456.789, "123456.789"),
    (9007199254740993.0, "9.007199254740992e15"), (100.0, "100"), (0.00012, "0.00012"), (1e22, "1e22"), (1e23, "1e23"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), DOUBLES)
def test_doubles(value: float, text: str) -> None:
    assert printed(column(t.DOUBLE), comparable_float(value)) == [text]


def test_floats_have_the_digits_of_a_float32() -> None:
    values = [0.1, 3.4e38, 16777216.0, 1.17549435e-38, 1e-45, -2.5]
    raw = [comparable_float(float(np.float32(value))) for value in values]
    assert printed(column(t.FLOAT), *raw) == ["0.1", "3.4e38", "16777216", "1.1754944e-38", "1e-45", "-2.5"]


def test_what_is_not_finite_is_null() -> None:
    raw = [comparable_float(math.inf), comparable_float(-math.inf), b"\xff" * 8]
    assert printed(column(t.DOUBLE), *raw) == ["null"] * 3
    assert printed(column(t.FLOAT), *raw, comparable_float(1e300)) == ["null"] * 4


def test_any_double_prints_as_the_shortest_that_reads_back() -> None:
    rng = np.random.default_rng(20)
    count = examples(100_000)
    values = rng.integers(0, 1 << 63, 2 * count).view(np.float64)
    values = np.concatenate([values[np.isfinite(values)], rng.random(count) * 10.0 ** rng.integers(-5, 12, count)])
    values = np.concatenate([values, np.ldexp(1.0, np.arange(-1074, 1024)), np.ldexp(3.0, np.arange(-1074, 1022))])
    texts = printed(column(t.DOUBLE), *map(comparable_float, values.tolist()))
    for value, text in zip(values.tolist(), texts, strict=True):
        assert float(text) == value
        assert significant(text) == significant(repr(value)), value


def test_any_float_prints_as_the_shortest_that_reads_back() -> None:
    rng = np.random.default_rng(21)
    values = rng.integers(0, 0x7F800000, examples(100_000)).astype(np.uint32).view(np.float32)
    texts = printed(column(t.FLOAT), *(comparable_float(float(value)) for value in values))
    for value, text in zip(values, texts, strict=True):
        assert np.float32(text) == value
        assert significant(text) == significant(np.format_float_scientific(value)), value


def significant(text: str) -> str:
    digits = text.lower().split("e")[0].replace(".", "").replace("-", "")
    return digits.strip("0") or "0"


def test_vectors() -> None:
    cell = bytes.fromhex("020000000000803f00000040")
    assert one(column(t.VECTOR), cell) == "[1,2]"
    assert printed(column(t.VECTOR), bytes(4), cell[:4] + struct.pack("<ff", 0.1, -2.5)) == ["[]", "[0.1,-2.5]"]
    for bad in (b"", bytes(3), cell[:-1], cell + b"\0", cell[:4] + struct.pack("<ff", 1, math.nan)):
        assert cells(column(t.VECTOR), bad)[1] == {0: "column c: not a vector"}


def test_the_numbers_of_vectors_have_no_exponents() -> None:
    values = [-1e20, 3.4028235e38, 1e15, 3.2e-05, 1e-16, 1.1754944e-38, -1e-45, -0.0, 0.0]
    cell = struct.pack(f"<I{len(values)}f", len(values), *values)
    plain = [np.format_float_positional(np.float32(value), trim="-") for value in values]
    assert one(column(t.VECTOR), cell) == f"[{','.join(plain)}]"
    longest = struct.pack("<1001f", *[-1.2345678e-38] * 1_001)  # the buffer has room for the longest numbers
    shown = np.format_float_positional(np.float32(-1.2345678e-38), trim="-")
    assert one(column(t.VECTOR), struct.pack("<I", 1_001) + longest) == f"[{','.join([shown] * 1_001)}]"


def test_a_multi_valued_columns_cell_is_json() -> None:
    assert one(column(t.LONG, array=True), bytes.fromhex("0401")) == "true"
