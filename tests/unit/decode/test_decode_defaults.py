"""Rows older than a column show its origin default (upstream-formats 4.5, 7)."""
# Attack: column defaults such as `1e9999999`

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from support.row_bytes import column, record_key, row_v2, table
from tistream.decode.cells.defaults import origin_default
from tistream.decode.rows import decode_rows
from tistream.schema.tidb import table as t

NOT_NULL = t.FLAG_NOT_NULL
UNSIGNED = t.FLAG_UNSIGNED


@pytest.mark.parametrize(
    ("tp", "facts", "default", "value"),
    [
        (t.LONG, {}, "7", 7),
        (t.LONG, {}, 7, 7),
        (t.LONG, {}, "1.5", 2),
        (t.LONGLONG, {"flag": UNSIGNED}, "18446744073709551615", (1 << 64) - 1),
        (t.DOUBLE, {}, "-10000000000", -1e10),
        (t.FLOAT, {}, "0.1", 0.1),
        (t.DECIMAL, {"decimal": 3}, "1.5", "1.500"),
        (t.DECIMAL, {"decimal": 0}, "0.5", "1"),
        (t.DECIMAL, {"decimal": 2}, "-0.001", "0.00"),
        (t.DATETIME, {"decimal": 0}, "2026-11-20 17:04:38", "2026-11-20 17:04:38"),
        (t.DATETIME, {"decimal": 6}, "2026-11-20 17:04:39.919914", "2026-11-20 17:04:39.919914"),
        (t.TIMESTAMP, {"decimal": 3}, "2020-12-31 21:00:00", "2020-12-31 21:00:00.000"),
        (t.DATE, {}, "1999-01-01", "1999-01-01"),
        (t.DATE, {}, "0000-00-00 00:00:00", "0000-00-00"),
        (t.DATETIME, {}, "0000-00-00", "0000-00-00 00:00:00"),
        (t.DURATION, {"decimal": 3}, "-10:00:00.500", "-10:00:00.500"),
        (t.DURATION, {"decimal": 0}, "838:59:59", "838:59:59"),
        (t.YEAR, {}, "2000", 2000),
        (t.YEAR, {}, "70", 1970),
        (t.YEAR, {}, "69", 2069),
        (t.YEAR, {}, "0", 2000),
        (t.YEAR, {}, "0000", 0),
        (t.ENUM, {"elems": ("x", "y")}, "y", "y"),
        (t.SET, {"elems": ("m", "n", "o")}, "o,m", "m,o"),
        (t.VARCHAR, {}, "fst", "fst"),
        (t.STRING, {"charset": "binary", "flen": 3}, "ab\0", b"ab\0"),
        (t.STRING, {"charset": "binary", "flen": 4}, "\0\x12\x34", b"\0\x12\x34\0"),
        (t.STRING, {"charset": "binary", "flen": 3}, "\0\x12\x34", b"\0\x12\x34"),
        (t.VARCHAR, {"charset": "binary", "flen": 9}, "ab", b"ab"),
        (t.BIT, {"origin_default_bit": b"\5"}, "\5", 5),
        (t.BIT, {}, "\5\1", 1281),
        (t.JSON, {}, '{"a": [1, 2.0]}', '{"a":[1,2.0]}'),
        (t.JSON, {}, '{"é": 1, "b": {"d": 2, "c": 3}}', '{"b":{"c":3,"d":2},"é":1}'),
        (t.VECTOR, {}, "[1, 2]", "[1,2]"),
        (t.VECTOR, {}, "[1.0, 2.50, 0.1, -1e16, 3.2e-5]", f"[1,2.5,0.1,-1{'0' * 16},0.000032]"),
    ],
)
def test_defaults(tp: int, facts: dict[str, Any], default: Any, value: Any) -> None:
    assert origin_default(column(tp, origin_default=default, **facts)) == value


@pytest.mark.parametrize(
    ("tp", "facts", "value"),
    [
        (t.LONG, {}, 0),
        (t.YEAR, {}, 0),
        (t.BIT, {}, 0),
        (t.DOUBLE, {}, 0.0),
        (t.DECIMAL, {"decimal": 2}, "0.00"),
        (t.DATE, {}, "0000-00-00"),
        (t.DATETIME, {"decimal": 1}, "0000-00-00 00:00:00.0"),
        (t.DURATION, {"decimal": 0}, "00:00:00"),
        (t.ENUM, {"elems": ("x", "y")}, "x"),
        (t.SET, {"elems": ("x",)}, ""),
        (t.VARCHAR, {}, ""),
        (t.STRING, {"charset": "binary", "flen": 2}, b"\0\0"),
        (t.BLOB, {"charset": "binary", "flen": 65535}, b""),
        (t.JSON, {}, "null"),
        (t.VECTOR, {}, "[]"),
    ],
)
def test_zero_values_where_there_is_no_default(tp: int, facts: dict[str, Any], value: Any) -> None:
    assert origin_default(column(tp, flag=NOT_NULL, **facts)) == value
    assert origin_default(column(tp, **facts)) is None


def test_absent_null_and_present() -> None:
    old = column(t.LONGLONG, id=1)
    added = column(t.VARCHAR, id=2, name="added", origin_default="fst")
    of = table(old, added)
    values = [row_v2({1: b"\1"}), row_v2({1: b"\2", 2: None}), row_v2({1: b"\3", 2: b"own"})]
    keys = [record_key(1, n) for n in range(3)]
    decoded = decode_rows(of, of.columns, pa.array(keys), pa.array(values))
    assert decoded.batch.column(1).to_pylist() == ["fst", None, "own"]


@pytest.mark.parametrize(
    ("tp", "default"),
    [(t.LONG, "x"), (t.LONG, "1e30"), (t.DATETIME, "yesterday"), (t.DECIMAL, ""), (t.JSON, "{"), (t.YEAR, "y")],
)
def test_a_default_that_does_not_fit_fails_the_rows_that_need_it(tp: int, default: str) -> None:
    of = table(column(t.LONGLONG, id=1), column(tp, id=2, name="bad", origin_default=default))
    values = [row_v2({1: b"\1"}), row_v2({1: b"\2", 2: None})]
    decoded = decode_rows(of, of.columns, pa.array([record_key(1, 1)] * 2), pa.array(values))
    assert decoded.errors == {0: "column bad: the origin default does not fit the column's type"}
    assert decoded.batch.column(0).to_pylist() == [None, 2]


NINES = "9" * 65


@pytest.mark.parametrize(
    ("tp", "facts", "default", "value"),
    [
        (t.DECIMAL, {"decimal": 0}, f"-{NINES}.0", f"-{NINES}"),
        (t.DECIMAL, {"decimal": 30}, f"-{NINES[30:]}.{NINES[35:]}", f"-{NINES[30:]}.{NINES[35:]}"),
        (t.DECIMAL, {"decimal": 30}, f"-0.{'0' * 29}1", f"-0.{'0' * 29}1"),
        (t.DECIMAL, {"decimal": 30}, f"0{NINES[30:]}.{'0' * 900}", f"{NINES[30:]}.{'0' * 30}"),
        (t.DECIMAL, {"decimal": 2}, "1e-9999999", "0.00"),
        (t.DECIMAL, {"decimal": 2}, "0e9999999", "0.00"),
        (t.DECIMAL, {"decimal": -1}, "1.50", "1.50"),
        (t.DECIMAL, {"decimal": -1}, "1e2", "100"),
        (t.LONGLONG, {}, "-9223372036854775808.00", -(1 << 63)),
        (t.LONGLONG, {}, "9.223372036854775807e18", (1 << 63) - 1),
        (t.LONGLONG, {"flag": UNSIGNED}, "0" * 900 + "18446744073709551615", (1 << 64) - 1),
        (t.LONGLONG, {}, "1e-9999999", 0),
        (t.LONGLONG, {}, "-0e9999999", 0),
        (t.DURATION, {"decimal": 6}, "-838:59:59.000000", "-838:59:59.000000"),
        (t.BIT, {"origin_default_bit": b"\xff" * 8}, None, (1 << 64) - 1),
        (t.BIT, {"origin_default_bit": b"\0" + b"\1" * 8}, None, 0x0101010101010101),
        (t.VARCHAR, {}, "\U0001f600" * 65_535, "\U0001f600" * 65_535),
    ],
)
def test_the_longest_that_a_type_can_hold_is_shown(tp: int, facts: dict[str, Any], default: Any, value: Any) -> None:
    assert origin_default(column(tp, origin_default=default, **facts)) == value


@pytest.mark.parametrize(
    ("tp", "facts", "default"),
    [
        (t.LONGLONG, {}, "1e300000"),
        (t.LONGLONG, {"flag": UNSIGNED}, "-1e300000"),
        (t.LONGLONG, {}, "1" * 300_000),
        (t.LONGLONG, {}, "Infinity"),
        (t.LONGLONG, {}, "NaN"),
        (t.DECIMAL, {"decimal": -1}, "1e3000000"),
        (t.DECIMAL, {"decimal": 2}, "1" * 300_000),
        (t.DECIMAL, {"decimal": 0}, NINES + "9"),
        (t.DECIMAL, {"decimal": 2}, "-Infinity"),
        (t.YEAR, {}, "1" * 4_000),
        (t.DURATION, {}, "1" * 4_000 + ":00:00"),
        (t.DOUBLE, {}, " " * 300_000 + "1"),
        (t.BIT, {}, "\1" * 300_000),
        (t.BIT, {"origin_default_bit": b"\1" * 9}, "x"),
        (t.VECTOR, {}, "[1e39]"),
        (t.VECTOR, {}, '{"a": 1}'),
        (t.JSON, {}, "[NaN]"),
        (t.JSON, {}, "[1e400]"),
        (t.JSON, {}, "1" * 300_000),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_default_that_claims_more_than_its_type_holds_is_refused_before_it_is_read(
    tp: int, facts: dict[str, Any], default: str
) -> None:
    bad = column(tp, id=2, name="bad", origin_default=default, **facts)
    of = table(column(t.LONGLONG, id=1), bad)
    tracemalloc.start()
    try:
        with contextlib.suppress(ValueError):  # pyarrow refuses some of them
            origin_default(bad)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < len(default) + 50_000, "the number that it spells was never made"
    decoded = decode_rows(of, of.columns, pa.array([record_key(1, 1)]), pa.array([row_v2({1: b"\1"})]))
    assert decoded.errors == {0: "column bad: the origin default does not fit the column's type"}


def test_a_default_that_is_no_text_and_nested_deeply_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ValueError, match="does not fit"):
        origin_default(column(t.JSON, origin_default=nested))


@pytest.mark.parametrize("decimal", [10**4, 10**6, 1 << 62])
def test_a_scale_that_no_decimal_has_writes_no_more_zeros_than_one_has(decimal: int) -> None:
    for facts in ({"origin_default": "0"}, {"flag": NOT_NULL}):
        assert origin_default(column(t.DECIMAL, decimal=decimal, **facts)) == "0." + "0" * 30


def test_a_set_of_many_names_is_looked_through_once() -> None:
    looks = 0

    class Name(str):
        """Counts how often it is looked at."""

        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal looks
            looks += 1
            return str.__eq__(self, other)

        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            return str.__hash__(self)

        def casefold(self) -> str:
            nonlocal looks
            looks += 1
            return str.casefold(self)

    elems = tuple(Name(f"Elem{number:02}" + "x" * 200) for number in range(64))
    default = ",".join([*(f"none{number}" for number in range(20_000)), elems[9].upper(), elems[3]])
    assert origin_default(column(t.SET, elems=elems, origin_default=default)) == f"{elems[3]},{elems[9]}"
    assert 0 < looks < 10 * len(elems), "not once for each of the names that the default has"
