"""Decodes cells (encoded values in a row, columns.Cells) of dates, datetimes, timestamps and durations to text
(upstream-formats 4.4).

Months and days may be zero, so the values are text and not Arrow dates.
"""

from __future__ import annotations

from tistream.decode.cells.reasons import BAD_TIME
from tistream.decode.kernels.arrow_buffers import I64, U8, Bools
from tistream.decode.kernels.jit import inline, kernel, u64
from tistream.decode.kernels.text_io import put_padded, put_uint

DATE_CHARS = 10
DATETIME_CHARS = 26
DURATION_CHARS = 24  # -2562047:47:16.854775
_COLON, _DASH, _SPACE, _POINT = 0x3A, 0x2D, 0x20, 0x2E
_MICROS_DIGITS = 6
_NANOS = 1_000


@kernel
def put_times(
    packed: I64, present: Bools, fsp: int, date_only: bool, out: U8, out_offsets: I64, valid: Bools, errors: U8
) -> None:
    """Write packed times (year * 13 + month, day, hour, minute, second, microsecond) as text to `out`, end to end, with
    `fsp` fraction digits. `date_only`: leave out the time of day. The text of row i is
    `out[out_offsets[i]:out_offsets[i + 1]]`; `valid` is set to whether row i has one.

    `out` has room for DATETIME_CHARS bytes per row. Invalid cells get the error code BAD_TIME.
    """
    at = 0
    out_offsets[0] = 0
    for row in range(len(packed)):
        valid[row] = present[row]
        if present[row]:
            bits = packed[row]
            date = (bits >> 41) & 0x7FFFFF
            clock = (bits >> 24) & 0x1FFFF
            year, month = (date >> 5) // 13, (date >> 5) % 13
            after = put_time(
                out, at, year, month, date & 31, clock >> 12, (clock >> 6) & 63, clock & 63, bits & 0xFFFFFF,
                fsp, date_only,
            )  # fmt: skip
            if after < 0:
                valid[row] = False
                errors[row] = BAD_TIME
            else:
                at = after
        out_offsets[row + 1] = at


@kernel
def put_durations(nanos: I64, present: Bools, fsp: int, out: U8, out_offsets: I64, valid: Bools, errors: U8) -> None:
    """Write signed nanoseconds as `[-]HH:MM:SS[.f]` to `out`, end to end, with `fsp` fraction digits. The text of row i
    is `out[out_offsets[i]:out_offsets[i + 1]]`. `out` has room for DURATION_CHARS bytes per row. `valid` is set to
    False for a row that is not present, or out of range; the latter also gets BAD_TIME in `errors`."""
    at = 0
    out_offsets[0] = 0
    for row in range(len(nanos)):
        valid[row] = present[row]
        if present[row]:
            after = put_duration(out, at, nanos[row], fsp)
            if after < 0:
                valid[row] = False
                errors[row] = BAD_TIME
            else:
                at = after
        out_offsets[row + 1] = at


@inline
def put_time(
    out: U8,
    at: int,
    year: int,
    month: int,
    day: int,
    hour: int,
    minute: int,
    second: int,
    micro: int,
    fsp: int,
    date_only: bool,
) -> int:
    """Write `YYYY-MM-DD[ HH:MM:SS[.f]]`; `date_only`: only the date. Returns the position after the text, or -1 if a
    number is out of range."""
    if year > 9999 or month > 12 or day > 31 or hour > 23 or minute > 59 or second > 59 or micro > 999_999:
        return -1
    put_padded(out, at, year, 4)
    out[at + 4] = _DASH
    put_padded(out, at + 5, month, 2)
    out[at + 7] = _DASH
    put_padded(out, at + 8, day, 2)
    at += DATE_CHARS
    if date_only:
        return at
    out[at] = _SPACE
    return _put_clock(out, at + 1, hour, minute, second, micro, fsp)


@inline
def put_duration(out: U8, at: int, nanos: int, fsp: int) -> int:
    """Write `[-]HH:MM:SS[.f]`, with at least two digits of hours. Returns the position after the text, or -1 for the
    lowest int64, whose absolute value does not fit an int64."""
    if nanos < 0:
        nanos = -nanos
        if nanos < 0:
            return -1
        out[at] = _DASH
        at += 1
    seconds = nanos // 1_000_000_000
    micro = nanos // _NANOS % 1_000_000
    hours = seconds // 3600
    if hours >= 100:
        after = put_uint(out, at, u64(hours))
        return _put_clock(out, after - 2, hours % 100, seconds // 60 % 60, seconds % 60, micro, fsp)
    return _put_clock(out, at, hours, seconds // 60 % 60, seconds % 60, micro, fsp)


@inline
def _put_clock(out: U8, at: int, hour: int, minute: int, second: int, micro: int, fsp: int) -> int:
    put_padded(out, at, hour, 2)
    out[at + 2] = _COLON
    put_padded(out, at + 3, minute, 2)
    out[at + 5] = _COLON
    put_padded(out, at + 6, second, 2)
    at += 8
    if fsp <= 0:
        return at
    out[at] = _POINT
    for _ in range(_MICROS_DIGITS - fsp):
        micro //= 10
    return put_padded(out, at + 1, micro, fsp)
