"""ENUM and SET can be decoded as numbers: in rows, in defaults, and in the events of a scan."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from support.row_bytes import column, compact, record_key, row_v2, table
from tistream.decode.cells.defaults import origin_default
from tistream.decode.rows import decode_rows
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column

ENUM = column(t.ENUM, elems=("small", "big", "huge"))
SET = column(t.SET, elems=("a", "b", "c"))
FULL = column(t.SET, elems=tuple(f"e{number}" for number in range(64)))


def numbers(of: Column, *cells: int | None) -> tuple[list[int | None], dict[int, str]]:
    values = [row_v2({of.id: None if cell is None else compact(cell, unsigned=True)}) for cell in cells]
    keys = pa.array([record_key(1, 1)] * len(cells), pa.binary())
    found = decode_rows(table(of), [of], keys, pa.array(values, pa.binary()), numbered=True)
    assert found.batch.column(0).type == pa.uint64()
    return found.batch.column(0).to_pylist(), found.errors


def test_numbers_are_those_that_are_stored() -> None:
    assert numbers(ENUM, 1, 3, None) == ([1, 3, None], {})
    assert numbers(SET, 0, 5, 7, None) == ([0, 5, 7, None], {})
    assert numbers(FULL, (1 << 64) - 1) == ([(1 << 64) - 1], {})


def test_a_number_without_an_element_is_0_and_bits_without_one_are_an_error() -> None:
    assert numbers(ENUM, 0, 4) == ([0, 0], {})
    assert numbers(SET, 8) == ([None], {0: "column c: not a set of the column's elements"})


@pytest.mark.parametrize(
    ("of", "default", "value"),
    [
        (ENUM, "huge", 3),
        (ENUM, "HUGE", 3),
        (ENUM, "none", 0),
        (SET, "c,a", 5),
        (SET, "", 0),
        (replace(ENUM, flag=t.FLAG_NOT_NULL), None, 1),
        (replace(SET, flag=t.FLAG_NOT_NULL), None, 0),
        (SET, None, None),
    ],
)
def test_defaults_are_numbers(of: Column, default: str | None, value: int | None) -> None:
    column_ = replace(of, origin_default=default)
    assert origin_default(column_, numbered=True) == value
    keys, rows = pa.array([record_key(1, 1)], pa.binary()), pa.array([row_v2({})], pa.binary())
    found = decode_rows(table(column_), [column_], keys, rows, numbered=True)
    assert found.batch.column(0).to_pylist() == [value]
