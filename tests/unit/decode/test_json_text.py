"""Columns to JSON objects and strings."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.row_bytes import column
from tistream.decode.json_text import render_objects
from tistream.schema.tidb import table as t


def test_names_are_escaped_and_nulls_are_null() -> None:
    columns = (column(t.LONGLONG, name='we"ird\n名'), column(t.VARCHAR, name="v"))
    batch = pa.RecordBatch.from_arrays([pa.array([1, None]), pa.array(["x", None], pa.large_string())], ["0", "1"])
    assert render_objects(columns, batch).to_pylist() == [
        '{"we\\"ird\\n名":"1","v":"x"}',
        '{"we\\"ird\\n名":null,"v":null}',
    ]


def test_a_slice_of_a_batch_and_nothing() -> None:
    columns = (column(t.LONG, name="n"), column(t.BLOB, name="b", charset="binary"))
    arrays = [pa.array([None, 1, 2, None, 4]), pa.array([b"a", None, b"c", b"d", b"e"])]
    batch = pa.RecordBatch.from_arrays(arrays, ["0", "1"])
    assert render_objects(columns, batch.slice(2, 2)).to_pylist() == ['{"n":2,"b":"Yw=="}', '{"n":null,"b":"ZA=="}']
    assert render_objects(columns, batch.slice(0, 0)).to_pylist() == []
    assert render_objects((), batch.select([])).to_pylist() == ["{}"] * 5


def strings(texts: list[str | None]) -> list[dict[str, str | None]]:
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], ["0"])
    return [json.loads(text) for text in render_objects([column(t.VARCHAR)], batch).to_pylist()]


@given(st.lists(st.none() | st.text(), max_size=20))
def test_json_strings_are_json(texts: list[str | None]) -> None:
    assert strings(texts) == [{"c": text} for text in texts]


@given(st.integers(0, 40), st.integers(0, 255), st.integers(0, 40))
def test_every_byte_at_every_place_of_a_word(before: int, byte: int, after: int) -> None:
    text = "a" * before + chr(byte) + "é" * after
    assert strings([text]) == [{"c": text}]


@pytest.mark.parametrize("size", [174_000, 175_000, 1 << 20, 6 << 20])
@pytest.mark.parametrize("tp", [t.VARCHAR, t.JSON, t.BLOB])
def test_a_value_that_no_buffer_holds_is_written_whole_and_those_beside_it(tp: int, size: int) -> None:
    charset = "binary" if tp == t.BLOB else "utf8mb4"
    columns = [column(t.LONG, name="id"), column(tp, name="v", charset=charset), column(t.LONG, name="n")]
    long, short = ("\x1f" * size, "s") if tp == t.VARCHAR else ("7" * size, "7")
    texts = [short, long, short, long, long]
    kind = pa.large_binary() if tp == t.BLOB else pa.large_string()
    values = pa.array([text.encode() for text in texts], pa.large_binary()).cast(kind)
    batch = pa.record_batch([pa.array([1] * 5), values, pa.array([2] * 5)], names=["0", "1", "2"])
    if tp == t.BLOB:
        texts = [base64.b64encode(text.encode()).decode() for text in texts]
    shown = texts if tp == t.JSON else [json.dumps(text) for text in texts]
    found = render_objects(columns, batch).to_pylist()
    assert found == [f'{{"id":1,"v":{text},"n":2}}' for text in shown]
