"""Fingerprints: equal for the same rows in any order and from either side, different for any other value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.schema_records import column, table_info
from tistream.restore.fingerprint import Fingerprint, of_rows, of_selected, select_list
from tistream.schema.tidb import table as t
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.table import Column, parse_table


def one(tp: int, place: int = 1, **more: Any) -> Column:
    charset = more.pop("charset", None)
    info = column(place, f"c{place}", tp=tp, **more)
    if charset is not None:
        info["type"]["Charset"] = charset
    return parse_table(table_info(7, "t", [info])).columns[0]


TEXT, NUMBER = one(t.VARCHAR, charset="utf8mb4"), one(t.LONG, 2)
COLUMNS = (TEXT, NUMBER)


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    texts, numbers = zip(*rows, strict=True) if rows else ((), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(texts, pa.large_string()), pa.array(numbers, pa.int64())], names=["c1", "c2"]
    )


def of(rows: list[tuple[Any, ...]]) -> Fingerprint:
    return of_rows(batch(rows), COLUMNS, Dialect.MARIADB)


rows_of = st.lists(st.tuples(st.none() | st.text(max_size=4), st.none() | st.integers(-9, 9)), max_size=8)


@given(rows_of, st.randoms())
def test_the_order_and_the_cuts_do_not_matter(rows: list[tuple[Any, ...]], rng: Any) -> None:
    mixed = rng.sample(rows, len(rows))
    cut = rng.randint(0, len(rows))
    assert of(rows) == of(mixed[:cut]) + of(mixed[cut:]) == of_selected(rows, COLUMNS, Dialect.MARIADB)


@given(rows_of, rows_of)
def test_other_rows_have_another_fingerprint(rows: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> None:
    assert (of(rows) == of(others)) == (sorted(rows, key=repr) == sorted(others, key=repr))


def test_null_empty_text_and_neighbouring_cells_are_told_apart() -> None:
    columns = (TEXT, one(t.VARCHAR, 2, charset="utf8mb4"))
    rows = [(None, ""), ("", None), ("", ""), ("a", "bc"), ("ab", "c"), ("-", None), (None, "-"), ("1:a", "")]
    found = {of_selected([row], columns, Dialect.TIDB).total for row in rows}
    assert len(found) == len(rows)


@pytest.mark.parametrize(
    ("of_type", "array", "server"),
    [
        (one(t.LONGLONG, flag=32), pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
        (one(t.BIT), pa.array([5], pa.uint64()), 5),
        (one(t.YEAR), pa.array([0], pa.int64()), 0),
        (one(t.FLOAT), pa.array([0.1], pa.float32()), "0.10000000149011612"),
        (one(t.DOUBLE), pa.array([1e300], pa.float64()), "1e300"),
        (one(t.DECIMAL), pa.array(["1.50"], pa.large_string()), "1.50"),
        (one(t.BLOB, charset="binary"), pa.array([b"\x00\xff"], pa.large_binary()), "00ff"),
        (one(t.JSON), pa.array(['{"b":1,"a":[1.0]}'], pa.large_string()), '{"a": [1.0], "b": 1}'),
    ],
)
def test_each_type_is_the_same_from_the_server_and_from_the_pool(of_type: Column, array: pa.Array, server: Any) -> None:
    rows = pa.RecordBatch.from_arrays([array], names=["c"])
    assert of_rows(rows, (of_type,), Dialect.MYSQL) == of_selected([(server,)], (of_type,), Dialect.MYSQL)


def test_documents_differ_by_what_they_say_and_null_is_none() -> None:
    document = one(t.JSON)
    found = {of_selected([(text,)], (document,), Dialect.MYSQL).total for text in ('{"a":1}', '{"a":2}', "null", None)}
    assert len(found) == 4


def test_rows_without_a_column_that_can_be_read_are_counted() -> None:
    empty = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert of_selected([(), ()], (), Dialect.TIDB) == of_rows(empty, (), Dialect.TIDB)
    assert of_selected([()], (), Dialect.TIDB) != of_selected([(), ()], (), Dialect.TIDB)


def test_names_are_quoted_in_the_select_list() -> None:
    info = column(1, "a`b; DROP", tp=t.LONG)
    assert select_list(parse_table(table_info(7, "t", [info])).columns) == "`a``b; DROP`"
    assert select_list(()) == "1"


def parquet(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([rows]), sink)
    return list(pq.ParquetFile(pa.BufferReader(sink.getvalue())).iter_batches(2))


FILED = pa.RecordBatch.from_pydict(
    {
        "i": pa.array([1, 1, None, 2**63 - 1], pa.int64()),
        "f": pa.array([0.1, None, float("inf"), -0.0], pa.float32()),
        "t": pa.array(["a", "", None, '{"b":1,"a":[1.0]}'], pa.large_string()),
        "b": pa.array([b"", None, b"\x00\xff", b"a"], pa.large_binary()),
        "v": pa.array([[1.0], [], None, [1.0, 2.0]], pa.list_(pa.float32())),
    }
)


def test_rows_in_a_file_have_the_fingerprint_of_what_was_written() -> None:
    back = [of_rows(rows, COLUMNS, None) for rows in parquet(FILED)]
    assert len(back) == 2
    assert back[0] + back[1] == back[1] + back[0] == of_rows(FILED, COLUMNS, None)
    assert of_rows(FILED.slice(0, 0), COLUMNS, None) == of_rows(pa.RecordBatch.from_pydict({}), (), None)


@pytest.mark.parametrize(("at", "other"), [(0, 2), (1, 0.2), (2, None), (2, "b"), (3, b"\x00"), (3, None), (4, [2.0])])
def test_a_value_of_a_file_that_is_another_is_noticed(at: int, other: Any) -> None:
    field = FILED.schema.field(at)
    values = [other, *FILED.column(at).to_pylist()[1:]]
    changed = FILED.set_column(at, field, pa.array(values, field.type))
    assert of_rows(changed, COLUMNS, None) != of_rows(FILED, COLUMNS, None)


def test_values_of_a_file_that_change_places_are_noticed() -> None:
    left, right = (pa.RecordBatch.from_pydict({"a": [one], "b": [other]}) for one, other in ((1, 2), (2, 1)))
    assert of_rows(left, COLUMNS, None) != of_rows(right, COLUMNS, None)
