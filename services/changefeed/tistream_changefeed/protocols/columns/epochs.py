"""Converts DATE, DATETIME, TIMESTAMP and TIME columns, which the decoder returns as text, to Debezium's forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import (
    I64,
    U8,
    Bools,
    binary_array,
    flat_bytes,
    number_array,
    one_array,
    validity,
)
from tistream.decode.kernels.jit import i64, inline, kernel
from tistream.decode.kernels.memory import copy_bytes

DAY, MILLISECOND, MICROSECOND = 0, 1, 2  # units
_DATE_CHARS, _SECONDS_CHARS = 10, 19
_ZERO, _MINUS, _COLON, _POINT = 0x30, 0x2D, 0x3A, 0x2E
_MONTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_EPOCH = np.frombuffer(b"1970-01-01T00:00:00Z", np.uint8)
_T, _Z, _SPACE = 0x54, 0x5A, 0x20
_MICROS_DIGITS = 6
_FIRST_DAY = 719_468  # days from 0000-03-01 to 1970-01-01


def since_epoch(texts: Any, unit: int, *, not_null: bool) -> Any:
    """An int64 array of dates or datetimes as days, milliseconds or microseconds (`unit`) since 1970, as if they were
    UTC.

    A year below 70 counts from 2000, one from 70 to 99 from 1900. A text that is not a date, such as `0000-00-00` or
    the 31st of February, becomes null, or 0 in a column that is NOT NULL (`not_null`). Nulls stay null.
    """
    array = one_array(texts)
    flat = flat_bytes(array)
    out = np.zeros(len(flat), np.int64)
    valid = validity(array).copy()
    put_epochs(flat.data, flat.offsets, unit, not_null, out, valid)
    return number_array(out, None if valid.all() else valid)


def microseconds(durations: Any) -> Any:
    """An int64 array of a TIME column, such as `-838:59:59.5`, in microseconds. Nulls stay null."""
    array = one_array(durations)
    flat = flat_bytes(array)
    out = np.zeros(len(flat), np.int64)
    put_microseconds(flat.data, flat.offsets, out)
    return number_array(out, validity(array) if array.null_count else None)


def zoned(timestamps: Any) -> Any:
    """A large_string array of a TIMESTAMP column in UTC as `2006-01-02T15:04:05.123Z`. The zero timestamp becomes the
    start of 1970. Nulls stay null."""
    array = one_array(timestamps)
    flat = flat_bytes(array)
    out = np.empty(len(flat.data) + len(flat) * len(_EPOCH), np.uint8)
    offsets = np.empty(len(flat) + 1, np.int64)
    put_zoned(flat.data, flat.offsets, out, offsets)
    return binary_array(out[: offsets[-1]], offsets, validity(array) if array.null_count else None, text=True)


@kernel
def put_epochs(data: U8, starts: I64, unit: int, not_null: bool, out: I64, valid: Bools) -> None:
    """Convert each text `data[starts[i]:starts[i + 1]]` to days, milliseconds or microseconds since 1970 (`unit`),
    and write it into `out[i]`. Texts that are not `valid` are skipped. A text that is not a date is marked as not
    valid; with `not_null` it stays valid, and `out[i]`, which must be 0, is left."""
    for row in range(len(starts) - 1):
        if not valid[row]:
            continue
        at = starts[row]
        year, month, day = _number(data, at, 4), _number(data, at + 5, 2), _number(data, at + 8, 2)
        if not _is_date(year, month, day):
            valid[row] = not_null
            continue
        if year < 100:
            last = i64(28)
            year += 2000 if year < 70 else 1900
            if month == 2 and day > last and not _is_leap(year):
                month, day = i64(3), i64(1)  # as Go's AddDate normalises the 29 of February
        days = _days(year, month, day)
        if unit == DAY:
            out[row] = days
            continue
        micros = ((days * 24 + _number(data, at + 11, 2)) * 60 + _number(data, at + 14, 2)) * 60
        micros = (micros + _number(data, at + 17, 2)) * 1_000_000
        micros += _fraction(data, at + _SECONDS_CHARS, starts[row + 1])
        out[row] = micros if unit == MICROSECOND else micros // 1000


@kernel
def put_microseconds(data: U8, starts: I64, out: I64) -> None:
    """Convert each text `data[starts[i]:starts[i + 1]]` of a TIME column to microseconds, and write it into `out[i]`.
    Empty texts are skipped."""
    for row in range(len(starts) - 1):
        at, end = starts[row], starts[row + 1]
        if at == end:
            continue
        negative = data[at] == _MINUS
        if negative:
            at += 1
        colon = at
        while data[colon] != _COLON:
            colon += 1
        seconds = (_number(data, at, colon - at) * 60 + _number(data, colon + 1, 2)) * 60 + _number(data, colon + 4, 2)
        micros = seconds * 1_000_000 + _fraction(data, colon + 6, end)
        out[row] = -micros if negative else micros


@kernel
def put_zoned(data: U8, starts: I64, out: U8, out_offsets: I64) -> None:
    """Write each text `data[starts[i]:starts[i + 1]]` of a TIMESTAMP column in the form of ISO 8601 to `out`, and the
    bounds of the results to `out_offsets`. An empty text stays empty. A zero date (year 0) becomes 1970-01-01."""
    written = i64(0)
    out_offsets[0] = 0
    for row in range(len(starts) - 1):
        at, size = starts[row], starts[row + 1] - starts[row]
        if size and _number(data, at, 4) == 0:
            copy_bytes(out, written, _EPOCH, 0, len(_EPOCH))
            written += len(_EPOCH)
        elif size:
            copy_bytes(out, written, data, at, size)
            out[written + _DATE_CHARS] = _T
            out[written + size] = _Z
            written += size + 1
        out_offsets[row + 1] = written


@inline
def _number(data: U8, at: int, digits: int) -> int:
    value = i64(0)
    for place in range(at, at + digits):
        value = value * 10 + data[place] - _ZERO
    return value


@inline
def _fraction(data: U8, point: int, end: int) -> int:
    """The digits after the decimal point at position `point`, in microseconds; 0 without a point."""
    micros = i64(0)
    digits = max(end - point - 1, 0)
    for place in range(point + 1, point + 1 + digits):
        micros = micros * 10 + data[place] - _ZERO
    for _ in range(_MICROS_DIGITS - digits):
        micros *= 10
    return micros


@inline
def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


@inline
def _is_date(year: int, month: int, day: int) -> bool:
    if month < 1 or month > 12 or day < 1:
        return False
    return bool(day <= _MONTHS[month - 1] + (1 if month == 2 and _is_leap(year) else 0))


@inline
def _days(year: int, month: int, day: int) -> int:
    """The days from 1970-01-01 to a date, by H. Hinnant's algorithm, in which years begin in March."""
    shifted = year - (1 if month <= 2 else 0)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _FIRST_DAY
