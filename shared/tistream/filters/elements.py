"""Converts ENUM and SET values to names or to numbers, whichever form they were decoded in. Pure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column


def numbers(column: Column, array: Any) -> Any:
    """The number of each value as uint64: for an ENUM the position of its element, counted from 1 (0 if it has none),
    and for a SET the bits of its elements."""
    if pa.types.is_integer(array.type):
        return array
    distinct = array.dictionary_encode()
    found = [_number(column, name) for name in distinct.dictionary.to_pylist()]
    return pa.array(found, pa.uint64()).take(distinct.indices)


def names(column: Column, array: Any) -> Any:
    """The name of each value, large_string: for an ENUM the name of its element (empty if it has none), and for a SET
    the names of its elements, joined by commas."""
    if not pa.types.is_integer(array.type):
        return array
    distinct = array.dictionary_encode()
    found = [_name(column, number) for number in distinct.dictionary.to_pylist()]
    return pa.array(found, pa.large_string()).take(distinct.indices)


def _number(column: Column, name: str) -> int:
    if column.tp == t.SET:
        return sum(1 << column.elems.index(one) for one in name.split(",")) if name else 0
    return column.elems.index(name) + 1 if name in column.elems else 0


def _name(column: Column, number: int) -> str:
    if column.tp == t.SET:
        return ",".join(elem for bit, elem in enumerate(column.elems) if number >> bit & 1)
    return column.elems[number - 1] if 0 < number <= len(column.elems) else ""
