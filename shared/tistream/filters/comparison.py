"""Compares operands as MySQL does, whole columns at a time. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tistream.errors import InvalidRequest
from tistream.filters.collation import comparable, folded
from tistream.filters.operand import NULL, Operand, OperandType, exact_number, moment, span

Compare = Callable[[Any, Any], Any]

EQUAL, UNEQUAL = "equal", "not_equal"
_COMPARE: dict[str, Compare] = {
    EQUAL: pc.equal,
    UNEQUAL: pc.not_equal,
    "less": pc.less,
    "less_equal": pc.less_equal,
    "greater": pc.greater,
    "greater_equal": pc.greater_equal,
}
_NUMBERS = frozenset({OperandType.BOOL, OperandType.EXACT, OperandType.DOUBLE})
_INT64, _UINT64 = pa.int64(), pa.uint64()
_INTEGER_DIGITS = 20
LIKE_CHARS_MAX = 1_024


def compare(how: str, left: Operand, right: Operand) -> Operand:
    """Compare two operands by the operator `how`, a key of _COMPARE. Returns a BOOL operand; NULL where one side is
    NULL. Raises InvalidRequest for operands that MySQL would compare by converting one of them in a way that is not
    supported."""
    if OperandType.NULL in (left.sort, right.sort):
        return NULL
    ordered = how not in (EQUAL, UNEQUAL)
    a, b = _alike(left, right, ordered=ordered)
    return Operand(OperandType.BOOL, _COMPARE[how](a, b), f"{left.name} {how} {right.name}")


def member_of(left: Operand, members: Sequence[Operand]) -> Operand:
    """Whether each value of `left` equals one of `members`, as by SQL's `IN`. Returns a BOOL operand. Raises the errors
    of `compare`."""
    alike = [_like_a_column(left, one) for one in members]
    found: Any = pa.scalar(False)
    if some := [one.as_py() for one in alike if one is not None]:
        values = _column_values(left)
        among = pc.is_in(values, value_set=pa.array(some, values.type))
        found = pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), among)
    others = [one for one, constant in zip(members, alike, strict=True) if constant is None]
    for one in others:
        found = pc.or_kleene(found, compare(EQUAL, left, one).values)
    return Operand(OperandType.BOOL, found, f"{left.name} IN")


def null_safe_equal(left: Operand, right: Operand) -> Operand:
    """`left <=> right`: like `=`, but NULL equals NULL, and the result is never NULL. Raises the errors of
    `compare`."""
    both = pc.and_(is_null(left).values, is_null(right).values)
    equal = compare(EQUAL, left, right).values
    return Operand(OperandType.BOOL, pc.or_(pc.fill_null(equal, False), both), f"{left.name} <=> {right.name}")


def is_null(operand: Operand) -> Operand:
    """Whether each value is NULL."""
    return Operand(OperandType.BOOL, pc.is_null(operand.values), f"{operand.name} IS NULL")


def truth(operand: Operand) -> Any:
    """Return whether each value of an operand is true, as a boolean array or scalar; NULL where the value is NULL.
    Raises InvalidRequest for texts and dates."""
    match operand.sort:
        case OperandType.BOOL | OperandType.NULL:
            return operand.values
        case OperandType.EXACT | OperandType.DOUBLE:
            return pc.not_equal(operand.values, pa.scalar(0).cast(operand.values.type))
    raise InvalidRequest(f"{operand.name} is not a condition: compare it with a value, such as `id > 5`")


def like(operand: Operand, pattern: str, escape: str) -> Operand:
    """`operand LIKE pattern ESCAPE escape`, with a constant pattern. Raises InvalidRequest if the operand is not a
    text, or if the pattern has more than LIKE_CHARS_MAX characters."""
    if operand.sort is OperandType.NULL:
        return NULL
    if operand.sort not in (OperandType.TEXT, OperandType.ENUM):
        raise InvalidRequest(f"{operand.name} is not a text, and LIKE needs one: use = or <")
    if len(pattern) > LIKE_CHARS_MAX:
        raise InvalidRequest(f"a LIKE pattern has {len(pattern)} characters: at most {LIKE_CHARS_MAX} are accepted")
    collation = operand.collation or "utf8mb4_bin"
    regex: list[str] = []
    escaped = False
    for char in pattern:
        if escaped or char not in {"%", "_", escape}:
            shown = folded(pa.scalar(char, pa.large_string()), collation).as_py()
            regex.append(re.escape(shown))
            escaped = False
        elif char == escape:
            escaped = True
        else:
            regex.append(".*" if char == "%" else ".")
    if escaped:
        regex.append(re.escape(escape))
    texts = folded(operand.values, collation)
    found = pc.match_substring_regex(texts, f"(?s)^{''.join(regex)}$")
    return Operand(OperandType.BOOL, found, f"{operand.name} LIKE {pattern!r}")


def numeric(operand: Operand) -> Operand:
    """Convert an operand to a number. Raises InvalidRequest for a text or a time, which MySQL would convert to a
    number."""
    if operand.sort is OperandType.BOOL:
        return Operand(OperandType.EXACT, operand.values.cast(_INT64), operand.name)
    if operand.sort is OperandType.ENUM:
        return Operand(OperandType.EXACT, operand.numbers, operand.name)
    if operand.sort is OperandType.TEXT and operand.constant:
        exact = exact_number(operand.values.as_py())
        if exact is not None:
            return Operand(OperandType.EXACT, exact, operand.name)
    if operand.sort not in _NUMBERS:
        raise InvalidRequest(f"{operand.name} is not a number: compare it with a text or a column of its own type")
    return operand


def decimal(values: Any) -> Any:
    """Convert exact values to decimal256."""
    if pa.types.is_decimal(values.type):
        return values
    return values.cast(pa.decimal256(_INTEGER_DIGITS, 0))


def double(values: Any) -> Any:
    """Convert numbers to float64; large integers are rounded."""
    return values.cast(pa.float64(), safe=False)


def _alike(left: Operand, right: Operand, *, ordered: bool) -> tuple[Any, Any]:
    """Convert both operands to one type in which they can be compared; with `ordered` also by less and greater. Returns
    (the left values, the right values). Raises InvalidRequest if no such type is supported."""
    sorts = {left.sort, right.sort}
    if OperandType.OPAQUE in sorts:
        name = left.name if left.sort is OperandType.OPAQUE else right.name
        raise InvalidRequest(f"{name} is JSON or a vector: it can be tested by IS NULL only")
    if sorts & _NUMBERS:
        return _numbers(numeric(left), numeric(right))
    if OperandType.MOMENT in sorts:
        return _converted(left, right, OperandType.MOMENT, moment)
    if OperandType.SPAN in sorts:
        return _converted(left, right, OperandType.SPAN, span)
    if OperandType.BINARY in sorts:
        return _bytes(left), _bytes(right)
    return _texts(left, right, ordered=ordered)


def _numbers(left: Operand, right: Operand) -> tuple[Any, Any]:
    if OperandType.DOUBLE in (left.sort, right.sort):
        return double(left.values), double(right.values)
    for kind in (_INT64, _UINT64):
        for one, other in ((left, right), (right, left)):
            if one.values.type == kind and other.constant:
                same = _integer(other.values, kind)
                if same is not None:
                    return (left.values, same) if one is left else (same, right.values)
        if left.values.type == right.values.type == kind:
            return left.values, right.values
    return decimal(left.values), decimal(right.values)


def _integer(constant: Any, kind: Any) -> Any:
    """Convert a constant to an integer of the type `kind`; None if it is NULL or does not fit."""
    value = constant.as_py()
    if value is None or value != int(value):
        return None
    low, high = (-(1 << 63), (1 << 63) - 1) if kind == _INT64 else (0, (1 << 64) - 1)
    return pa.scalar(int(value), kind) if low <= value <= high else None


def _converted(left: Operand, right: Operand, sort: OperandType, convert: Callable[[str], Any]) -> tuple[Any, Any]:
    """Convert both operands to the type `sort`, a sort of dates or times. Returns (the left values, the right values).
    A constant text is converted by `convert`; an operand of any other type raises InvalidRequest."""

    def one(operand: Operand, other: Operand) -> Any:
        if operand.sort is sort:
            return operand.values
        if operand.sort is OperandType.TEXT and operand.constant:
            return convert(operand.values.as_py())
        raise InvalidRequest(
            f"{operand.name} cannot be compared with {other.name}, because their types differ: compare it with its "
            "own type"
        )

    return one(left, right), one(right, left)


def _bytes(operand: Operand) -> Any:
    if operand.sort in (OperandType.BINARY, OperandType.TEXT, OperandType.ENUM):
        return operand.values.cast(pa.large_binary())
    raise InvalidRequest(f"{operand.name} cannot be compared with bytes: compare it with a quoted text")


def _texts(left: Operand, right: Operand, *, ordered: bool) -> tuple[Any, Any]:
    collations = {operand.collation for operand in (left, right)} - {None}
    if len(collations) > 1:
        raise InvalidRequest(
            f"{left.name} and {right.name} have different collations, {' and '.join(sorted(map(str, collations)))}:"
            " compare each with a text"
        )
    collation = next(iter(collations), None) or "utf8mb4_bin"
    return _folded(left, collation, ordered=ordered), _folded(right, collation, ordered=ordered)


def _folded(operand: Operand, collation: str, *, ordered: bool) -> Any:
    """The texts of an operand as collation.comparable converts them. An operand is converted once, however often an
    expression names it."""
    key = collation, ordered
    if key not in operand.folded:
        operand.folded[key] = comparable(operand.values, collation, ordered=ordered)
    return operand.folded[key]


def _like_a_column(column: Operand, constant: Operand) -> Any:
    """Convert a constant to the type of `_column_values(column)`, so that one look-up finds it among all values.
    Returns None if it cannot be converted; `compare` must then compare it."""
    if column.constant or not constant.constant:
        return None
    if column.sort is OperandType.EXACT and column.values.type in (_INT64, _UINT64):
        number = constant.sort in (OperandType.EXACT, OperandType.TEXT)
        return _integer(numeric(constant).values, column.values.type) if number else None
    texts = column.sort in (OperandType.TEXT, OperandType.ENUM) and constant.sort is OperandType.TEXT
    return _folded(constant, column.collation or "utf8mb4_bin", ordered=False) if texts else None


def _column_values(column: Operand) -> Any:
    if column.sort in (OperandType.TEXT, OperandType.ENUM):
        return _folded(column, column.collation or "utf8mb4_bin", ordered=False)
    return column.values
