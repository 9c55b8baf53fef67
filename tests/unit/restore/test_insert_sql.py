"""INSERT statements of decoded rows."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from support.schema_records import column, table_info
from tistream.restore.insert_sql import insert_statements
from tistream.schema.tidb.table import Column, parse_table


def columns(*infos: dict[str, Any]) -> tuple[Column, ...]:
    return parse_table(table_info(7, "t", list(infos))).columns


def batch(*arrays: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(arrays), names=[str(place) for place in range(len(arrays))])


def test_every_kind_of_column() -> None:
    rows = batch(
        pa.array([1, -2, None], pa.int64()),
        pa.array([2**64 - 1, 0, None], pa.uint64()),
        pa.array([0.1, 1e20, None], pa.float32()),
        pa.array([1.5, 1e300, None], pa.float64()),
        pa.array([b"\x00\xff", b"", None], pa.large_binary()),
        pa.array(["it's", "a\\b\n\x00", None], pa.large_string()),
    )
    found = list(insert_statements(rows, columns(*(column(at, f"c{at}") for at in range(1, 7))), ("d", "t`1")))
    assert found == [
        "INSERT INTO `d`.`t``1` (`c1`, `c2`, `c3`, `c4`, `c5`, `c6`) VALUES\n"
        "(1, 18446744073709551615, 0.1e0, 1.5e0, X'00ff', 'it''s'),\n"
        "(-2, 0, 1e+20, 1e+300, X'', 'a\\\\b\\n\\0'),\n"
        "(NULL, NULL, NULL, NULL, NULL, NULL)"
    ]


def test_generated_columns_are_left_to_the_server() -> None:
    rows = batch(pa.array([1], pa.int64()), pa.array([2], pa.int64()))
    shape = columns(column(1, "a"), column(2, "g", generated_expr_string="`a` + 1", generated_stored=True))
    assert list(insert_statements(rows, shape, ("d", "t"))) == ["INSERT INTO `d`.`t` (`a`) VALUES\n(1)"]


def test_no_rows_give_no_statement() -> None:
    assert list(insert_statements(batch(pa.array([], pa.int64())), columns(column(1, "a")), ("d", "t"))) == []


def test_a_row_that_is_larger_than_a_statement_has_one_of_its_own() -> None:
    texts = ["x" * 10, "y" * 500, "z" * 10, "z" * 10]
    found = list(insert_statements(batch(pa.array(texts, pa.large_string())), columns(column(1, "a")), ("d", "t"), 100))
    assert [re.findall("[xyz]+", one.split("VALUES")[1]) for one in found] == [texts[:1], texts[1:2], texts[2:]]


@given(st.lists(st.one_of(st.none(), st.text(max_size=20)), min_size=1, max_size=30), st.integers(1, 200))
def test_any_text_stays_inside_its_literal_and_every_row_is_there_once(texts: list[str | None], limit: int) -> None:
    rows = batch(pa.array(texts, pa.large_string()))
    literal = re.compile(r"\(('(?:[^'\\]|''|\\[\\0nrZ])*'|NULL)\)(,\n)?", re.DOTALL)
    found: list[str | None] = []
    for statement in insert_statements(rows, columns(column(1, "a")), ("d", "t"), limit):
        values = statement.split("VALUES\n", 1)[1]
        at = 0
        while at < len(values):
            match = literal.match(values, at)
            assert match is not None, values[at:]
            found.append(None if match[1] == "NULL" else _read(match[1][1:-1]))
            at = match.end()
    assert found == texts


def _read(text: str) -> str:
    plain = {"\\": "\\", "0": "\x00", "n": "\n", "r": "\r", "Z": "\x1a"}
    return re.sub(r"''|\\(.)", lambda found: plain[found[1]] if found[1] else "'", text, flags=re.DOTALL)
