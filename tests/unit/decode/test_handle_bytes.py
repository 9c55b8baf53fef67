"""Keys of events back to raw keys: they are those from which the keys are decoded."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.row_bytes import bytes_datum, column, comparable_int, row_v2, table
from tistream.decode.handle_bytes import (
    ROWID,
    NotAKey,
    handle_bound,
    handle_columns,
    handle_spans,
    handles_of,
    key_text,
    key_texts,
)
from tistream.decode.json_text import render_objects
from tistream.decode.rows import decode_rows
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import FLAG_PRIMARY, FLAG_UNSIGNED, Column, Table

BIG = column(t.LONGLONG, id=1, name="a", flag=FLAG_PRIMARY)
UNSIGNED = column(t.LONGLONG, id=1, name="a", flag=FLAG_PRIMARY | FLAG_UNSIGNED)
SMALL = column(t.LONG, id=1, name="a", flag=FLAG_PRIMARY)
TEXT = column(t.VARCHAR, id=2, name="b", offset=1, flag=FLAG_PRIMARY)
BYTES = column(t.VARCHAR, id=2, name="b", offset=1, charset="binary", collate="binary", flag=FLAG_PRIMARY)
EITHER_CASE = column(t.VARCHAR, id=2, name="b", offset=1, collate="utf8mb4_general_ci", flag=FLAG_PRIMARY)


def decoded(shape: Table, handle: bytes) -> str:
    """The key in events of a row with this handle."""
    raw = b"t" + comparable_int(104) + b"_r" + handle
    columns = shape.key_columns
    found = decode_rows(shape, columns, pa.array([raw], pa.binary()), pa.array([row_v2({})], pa.binary()))
    assert found.errors == {}
    text: str = render_objects(columns, found.batch)[0].as_py()
    return text


def check(shape: Table, key: dict[str, Any]) -> None:
    (handle,) = handles_of(shape, key)
    assert decoded(shape, handle) == key_text(shape, key)


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, (1 << 64) - 1))
def test_an_integer_key_is_its_handle(signed: int, unsigned: int) -> None:
    check(table(BIG, pk_is_handle=True), {"a": str(signed)})
    check(table(UNSIGNED, pk_is_handle=True), {"a": str(unsigned)})
    assert key_text(table(SMALL, pk_is_handle=True), {"a": "7"}) == '{"a":7}'


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.text(max_size=20), st.binary(max_size=20))
def test_a_key_of_several_columns_is_its_datums(number: int, text: str, data: bytes) -> None:
    if not text.endswith(" "):
        check(table(BIG, TEXT, primary=(0, 1)), {"b": text, "a": str(number)} if number % 2 else
              {"a": str(number), "b": text})  # fmt: skip
    check(table(UNSIGNED, BYTES, primary=(1, 0)), {"b": base64.b64encode(data).decode(), "a": str(abs(number))})


def test_a_text_that_ends_with_spaces_is_kept_with_or_without_them() -> None:
    shape = table(BIG, TEXT, primary=(1,))
    assert handles_of(shape, {"b": "x  "}) == [bytes_datum(b"x"), bytes_datum(b"x  ")]
    assert handle_bound(shape, {"b": "x  "}) == bytes_datum(b"x")


def test_a_bound_has_the_first_columns_of_the_key() -> None:
    shape = table(BIG, TEXT, primary=(0, 1))
    low = handle_bound(shape, {"a": 5})
    assert low < handles_of(shape, {"a": 5, "b": ""})[0] < handle_bound(shape, {"a": 5, "b": "x"})
    assert handles_of(shape, {"a": 4, "b": "zzz"})[0] < low
    with pytest.raises(NotAKey, match="names the columns b"):
        handle_bound(shape, {"b": "x"})


ANY_ID = st.sampled_from([0, 1, 5, 6, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1]) | st.integers(
    0, (1 << 64) - 1
)


@given(ANY_ID | st.none(), ANY_ID | st.none(), ANY_ID)
def test_the_spans_of_two_bounds_have_the_keys_between_them(low: int | None, high: int | None, one: int) -> None:
    for shape, shift in (
        (table(UNSIGNED, pk_is_handle=True), 0),
        (table(BIG, pk_is_handle=True), 1 << 63),
        (table(UNSIGNED, TEXT, primary=(0, 1)), 0),
        (table(column(t.LONG, name="v")), 1 << 63),
    ):
        name = shape.key_columns[0].name if shape.key_columns else ROWID
        begin = b"" if low is None else handle_bound(shape, {name: low - shift})
        spans = handle_spans(shape, begin, None if high is None else handle_bound(shape, {name: high - shift}))
        (handle,) = handles_of(shape, {column.name: one - shift for column in shape.key_columns[:1]} | (
            {"b": "x"} if len(shape.key_columns) > 1 else {}) or {ROWID: one - shift})  # fmt: skip
        hits = sum(first <= handle and (last is None or handle < last) for first, last in spans)
        assert hits == ((low or 0) <= one and (high is None or one < high))
        ends = [edge for span in spans for edge in span]
        assert all(first is not None and (last is None or first < last) for first, last in pairwise(ends))


def test_a_row_without_a_key_has_its_rowid() -> None:
    shape = table(column(t.LONG, name="v"))
    assert handle_columns(shape) == ()
    assert handles_of(shape, {ROWID: "-3"}) == [comparable_int(-3)]
    assert orjson.loads(key_text(shape, {ROWID: -3})) == {ROWID: "-3"}


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False, width=32))
@example(1e300, 1e30)
@example(1.0, 0.1)
@example(-0.0, -0.0)
@example(0.0, -0.0)
def test_a_float_of_a_key_is_written_as_events_write_it(double: float, single: float) -> None:
    columns = [column(t.DOUBLE, id=1, name="d", flag=FLAG_PRIMARY), column(t.FLOAT, id=2, name="f", offset=1)]
    shape = table(*columns, primary=(0, 1))
    arrays = [pa.array([double]), pa.array([single], pa.float32())]
    shown = render_objects(shape.key_columns, pa.record_batch(arrays, ["d", "f"]))[0].as_py()
    (compared,) = key_texts(shape.key_columns, arrays).to_pylist()
    assert key_text(shape, {"d": double, "f": single}) == compared
    assert key_text(shape, orjson.loads(shown)) == compared
    if double and single:
        assert compared == shown


@pytest.mark.parametrize("value", [0, 0.0, -0.0, "0", "-0", "-0.0"])
def test_the_two_zeros_of_a_float_are_one_key(value: object) -> None:
    shape = table(column(t.DOUBLE, id=1, name="d", flag=FLAG_PRIMARY), primary=(0,))
    assert key_text(shape, {"d": value}) == '{"d":0}'
    assert key_texts(shape.key_columns, [pa.array([0.0, -0.0])]).to_pylist() == ['{"d":0}'] * 2


@pytest.mark.parametrize("value", [1e39, "x", "inf"])
def test_a_float_that_the_column_cannot_hold_is_no_key(value: object) -> None:
    shape = table(column(t.FLOAT, id=1, name="f", flag=FLAG_PRIMARY), primary=(0,))
    with pytest.raises(NotAKey, match="is not a number that the column can hold"):
        key_text(shape, {"f": value})


@pytest.mark.parametrize("other", [EITHER_CASE, column(t.DATETIME, id=2, name="b", offset=1, flag=FLAG_PRIMARY)])
def test_keys_that_are_stored_by_another_value_cannot_be_encoded(other: Column) -> None:
    assert handle_columns(table(BIG, other, primary=(0, 1))) is None


@pytest.mark.parametrize(
    "key",
    [{}, {"a": 1}, {"a": 1, "b": "x", "c": 1}, {"A": 1, "b": "x"}, {"a": "x", "b": "x"}, {"a": 1.5, "b": "x"},
     {"a": 1, "b": 2}, {"a": 1 << 63, "b": "x"}, {"a": "1" * 30, "b": ""}],
)  # fmt: skip
def test_other_values_are_no_key(key: dict[str, Any]) -> None:
    with pytest.raises(NotAKey):
        handles_of(table(BIG, TEXT, primary=(0, 1)), key)


def test_bytes_are_base64() -> None:
    with pytest.raises(NotAKey, match="base64"):
        handles_of(table(BIG, BYTES, primary=(1,)), {"b": "*"})
    with pytest.raises(NotAKey, match="unsigned"):
        handles_of(table(UNSIGNED, pk_is_handle=True), {"a": -1})
