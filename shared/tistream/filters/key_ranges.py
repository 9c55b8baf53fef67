"""The rows, by their handles, for which an expression can be true. Pure.

Only comparisons of an integer column with exact numbers are used, if the handle begins with that column. Every other
part of an expression may be true for any row, so the ranges contain all rows that the filter selects, and others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

from sqlglot import exp

from tistream.decode.cells.handle import FLAG_INT, FLAG_UINT
from tistream.decode.cells.kinds import Kind, kind_of
from tistream.filters.expression import Expression
from tistream.filters.operand import exact_number
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column, Table
from tistream.schema.visible import fold

Bounds = tuple[int, int]
"""The numbers from the first to the last, both inclusive."""

RANGES_MAX = 32
_SIGN = 1 << 63
_OPPOSITE = {exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT, exp.EQ: exp.NEQ, exp.NEQ: exp.EQ}
_TURNED = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ, exp.NEQ: exp.NEQ}


@dataclass(frozen=True, slots=True)
class HandleRange:
    """The handles `low <= handle < high`; `high` None has no upper bound. A handle is what follows `t{id}_r` in a raw
    key."""

    low: bytes
    high: bytes | None


def handle_ranges(expression: Expression, table: Table) -> tuple[HandleRange, ...] | None:
    """The handles of the rows of a table for which the expression can be true, ascending and disjoint: at most
    RANGES_MAX ranges; empty if it can be true for no row. None: for any row."""
    columns = table.handle_columns
    if not columns or columns[0].tp not in t.INTEGERS or kind_of(columns[0]) not in (Kind.INT, Kind.UINT):
        return None
    bounds = _Bounds(columns[0])
    found = bounds.of(expression.tree, truth=True)
    if found == [bounds.every]:
        return None
    encode = _clustered if table.is_common_handle else _integer
    return _fewer(_by_handle(one for low, high in found for one in encode(columns[0], low, high)))


def _by_handle(some: Iterable[HandleRange]) -> list[HandleRange]:
    """Sort disjoint ranges, and join those that follow one another. The order of handles is not that of the numbers: an
    unsigned number from 2^63 on is stored below the smaller ones."""
    out: list[HandleRange] = []
    for one in sorted(some, key=lambda found: found.low):
        if out and out[-1].high == one.low:
            out[-1] = HandleRange(out[-1].low, one.high)
        else:
            out.append(one)
    return out


def _fewer(ranges: list[HandleRange]) -> tuple[HandleRange, ...]:
    """At most RANGES_MAX ranges that contain all of these. The narrowest gaps are closed, because a read of a range has
    a cost of its own, and near rows are mostly in one row group."""
    gaps = [_distance(one.high, other.low) for one, other in pairwise(ranges)]
    kept = sorted(sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[: RANGES_MAX - 1])
    edges = [0, *(at + 1 for at in kept), len(ranges)]
    return tuple(HandleRange(ranges[low].low, ranges[high - 1].high) for low, high in pairwise(edges) if low < high)


def _distance(high: bytes | None, low: bytes) -> int:
    assert high is not None  # only the last range may be unbounded
    return int.from_bytes(low, "big") - int.from_bytes(high, "big")


def _integer(column: Column, low: int, high: int) -> Iterable[HandleRange]:
    """The handles of the values `low` to `high` (both inclusive) of an integer primary key. Handles are compared as
    signed numbers, also if the column is unsigned."""
    parts = [(low, high)] if not column.unsigned else [(max(low, _SIGN), high), (low, min(high, _SIGN - 1))]
    for first, last in parts:
        if first <= last:
            begin, end = ((one + _SIGN) % (2 * _SIGN) for one in (first, last))
            yield HandleRange(begin.to_bytes(8, "big"), None if end + 1 == 2 * _SIGN else (end + 1).to_bytes(8, "big"))


def _clustered(column: Column, low: int, high: int) -> Iterable[HandleRange]:
    """The handles of a clustered key whose first column is an integer from `low` to `high`, both inclusive."""
    flag, shift = (FLAG_UINT, 0) if column.unsigned else (FLAG_INT, _SIGN)
    begin, end = ((flag << 64) + one + shift for one in (low, high + 1))
    yield HandleRange(begin.to_bytes(9, "big"), end.to_bytes(9, "big"))


class _Bounds:
    """Finds the values of one integer column for which a condition can be true, or false."""

    def __init__(self, column: Column) -> None:
        self._name = fold(column.name)
        self.every: Bounds = (0, 2 * _SIGN - 1) if column.unsigned else (-_SIGN, _SIGN - 1)

    def of(self, node: Any, *, truth: bool) -> list[Bounds]:
        """The values with which `node` can be true (`truth`) or false: ascending, disjoint ranges."""
        found = [self.every]
        match node:
            case exp.Paren():
                found = self.of(node.this, truth=truth)
            case exp.Not():
                found = self.of(node.this, truth=not truth)
            case exp.And() | exp.Or():
                parts = [self.of(one, truth=truth) for one in node.flatten(unnest=False)]
                both = isinstance(node, exp.And) == truth
                found = _common(parts) if both else _joined(one for each in parts for one in each)
            case exp.Between() if truth and self._mine(node.this):
                low = self._compared(exp.GTE, _number(node.args["low"]))
                found = _common([low, self._compared(exp.LTE, _number(node.args["high"]))])
            case exp.In() if truth and self._mine(node.this):
                found = _joined(one for each in node.expressions for one in self._equal(each))
            case exp.Is() if truth and isinstance(node.expression, exp.Boolean):
                found = self.of(node.this, truth=bool(node.expression.this))
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                found = self._comparison(node, truth=truth)
        return found

    def _comparison(self, node: Any, *, truth: bool) -> list[Bounds]:
        how, left, right = type(node), node.this, node.expression
        if self._mine(right):
            how, left, right = _TURNED[how], right, left
        if not self._mine(left):
            return [self.every]
        return self._compared(how if truth else _OPPOSITE[how], _number(right))

    def _equal(self, node: Any) -> list[Bounds]:
        return [] if isinstance(node, exp.Null) else self._compared(exp.EQ, _number(node))

    def _compared(self, how: type[exp.Expr], number: Decimal | None) -> list[Bounds]:
        low, high = self.every
        if number is None or how is exp.NEQ:
            return [self.every]
        if how in (exp.EQ, exp.GTE):
            low = max(low, math.ceil(number))
        elif how is exp.GT:
            low = max(low, math.floor(number) + 1)
        if how in (exp.EQ, exp.LTE):
            high = min(high, math.floor(number))
        elif how is exp.LT:
            high = min(high, math.ceil(number) - 1)
        return [(low, high)] if low <= high else []

    def _mine(self, node: Any) -> bool:
        return isinstance(node, exp.Column) and fold(node.name) == self._name


def _number(node: Any) -> Decimal | None:
    """The value of an exact number, perhaps with a sign. None for anything else: a text, a number with an exponent."""
    if isinstance(node, exp.Paren):
        return _number(node.this)
    if isinstance(node, exp.Neg):
        found = _number(node.this)
        return None if found is None else -found
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    exact = exact_number(node.this)
    return None if exact is None else exact.as_py()


def _joined(some: Iterable[Bounds]) -> list[Bounds]:
    """The union of ranges."""
    out: list[Bounds] = []
    for low, high in sorted(some):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return out


def _common(several: Iterable[list[Bounds]]) -> list[Bounds]:
    """The numbers that are in each of several unions of ranges."""
    first, *rest = several
    for other in rest:
        first = _intersection(first, other)
    return first


def _intersection(one: list[Bounds], other: list[Bounds]) -> list[Bounds]:
    """The numbers that are in both of two unions of ranges, each ascending and disjoint."""
    out: list[Bounds] = []
    at = beside = 0
    while at < len(one) and beside < len(other):
        low, high = max(one[at][0], other[beside][0]), min(one[at][1], other[beside][1])
        if low <= high:
            out.append((low, high))
        if one[at][1] < other[beside][1]:
            at += 1
        else:
            beside += 1
    return out
