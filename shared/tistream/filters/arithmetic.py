"""Computes with numbers as MySQL does, whole columns at a time. Pure. Integers and decimals are exact. Where MySQL
stops with "out of range", the exact result is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.kernels.arrow_buffers import number_array, numbers_of, validity
from tistream.errors import InvalidRequest
from tistream.filters.comparison import decimal, double, numeric
from tistream.filters.operand import NULL, Operand, OperandType

_INT64, _UINT64 = pa.int64(), pa.uint64()


def add(left: Operand, right: Operand) -> Operand:
    """`left + right`. Raises InvalidRequest if an operand is not a number."""
    return _calculated("+", pc.add, left, right)


def subtract(left: Operand, right: Operand) -> Operand:
    """`left - right`. Raises InvalidRequest if an operand is not a number."""
    return _calculated("-", pc.subtract, left, right)


def multiply(left: Operand, right: Operand) -> Operand:
    """`left * right`. Raises InvalidRequest if an operand is not a number."""
    return _calculated("*", pc.multiply, left, right)


def divide(left: Operand, right: Operand) -> Operand:
    """`left / right` of floating-point numbers; NULL where `right` is 0. Raises InvalidRequest for exact numbers: how
    MySQL rounds their quotient depends on the digits of both."""
    if OperandType.NULL in (left.sort, right.sort):
        return NULL
    one, other = numeric(left), numeric(right)
    if OperandType.DOUBLE not in (one.sort, other.sort):
        raise InvalidRequest(f"{left.name} / {right.name}: `/` needs a floating-point number: use DIV, or multiply")
    below = double(other.values)
    below = pc.if_else(pc.equal(below, 0.0), pa.scalar(None, pa.float64()), below)
    return Operand(OperandType.DOUBLE, pc.divide(double(one.values), below), f"{left.name} / {right.name}")


def quotient(left: Operand, right: Operand) -> Operand:
    """`left DIV right` of integers, cut toward 0; NULL where `right` is 0. Raises InvalidRequest for other numbers."""
    return _integers("DIV", left, right)


def remainder(left: Operand, right: Operand) -> Operand:
    """`left % right` of integers, with the sign of `left`; NULL where `right` is 0. Raises InvalidRequest for other
    numbers."""
    return _integers("%", left, right)


def negate(operand: Operand) -> Operand:
    """`-operand`. Raises InvalidRequest if the operand is not a number."""
    if operand.sort is OperandType.NULL:
        return NULL
    one = numeric(operand)
    values = one.values if one.sort is OperandType.DOUBLE else decimal(one.values)
    return Operand(one.sort, pc.negate(values), f"-{operand.name}")


def _calculated(sign: str, calculate: Callable[[Any, Any], Any], left: Operand, right: Operand) -> Operand:
    if OperandType.NULL in (left.sort, right.sort):
        return NULL
    one, other = numeric(left), numeric(right)
    name = f"{left.name} {sign} {right.name}"
    if OperandType.DOUBLE in (one.sort, other.sort):
        return Operand(OperandType.DOUBLE, calculate(double(one.values), double(other.values)), name)
    return Operand(OperandType.EXACT, calculate(decimal(one.values), decimal(other.values)), name)


def _integers(sign: str, left: Operand, right: Operand) -> Operand:
    if OperandType.NULL in (left.sort, right.sort):
        return NULL
    one, other = numeric(left), numeric(right)
    name = f"{left.name} {sign} {right.name}"
    for kind in (_INT64, _UINT64):
        pair = [_as_integers(operand, kind) for operand in (one, other)]
        if None not in pair:
            rows = max((len(values) for values in pair if not isinstance(values, pa.Scalar)), default=1)
            found = _divided(sign, *(_spread(values, rows) for values in pair))
            constant = one.constant and other.constant
            return Operand(OperandType.EXACT, found[0] if constant else found, name)
    raise InvalidRequest(f"{name}: {sign} needs two integers, both signed or both unsigned: compare such columns only")


def _as_integers(operand: Operand, kind: Any) -> Any:
    """The values as integers of the type `kind`; None if they are of another type."""
    if operand.values.type == kind:
        return operand.values
    if operand.sort is OperandType.EXACT and operand.constant:
        try:
            return operand.values.cast(kind)
        except pa.ArrowInvalid:  # a fraction, or out of range
            return None
    return None


def _spread(values: Any, rows: int) -> Any:
    return pa.array([values.as_py()] * rows, values.type) if isinstance(values, pa.Scalar) else values


def _divided(sign: str, left: Any, right: Any) -> Any:
    above, below = numbers_of(left), numbers_of(right)
    valid = validity(left) & validity(right) & (below != 0)
    below = np.where(valid, below, 1)
    rest = np.fmod(above, below)
    return number_array(rest if sign == "%" else (above - rest) // below, valid)
