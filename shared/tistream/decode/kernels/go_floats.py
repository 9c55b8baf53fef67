"""Writes floats as Go programs do, for messages that equal TiCDC's. Each function returns the position after the text.

Callers ensure that the buffer has enough room.
"""

from __future__ import annotations

from tistream.decode.kernels.arrow_buffers import U8
from tistream.decode.kernels.jit import inline, u64
from tistream.decode.kernels.shortest import double_digits, single_digits
from tistream.decode.kernels.text_io import count_digits, put_mantissa, put_plain, put_uint

PLAIN_CHARS = 352  # sign, "0.", 323 zeros, 17 digits
_MINUS, _PLUS, _E = 0x2D, 0x2B, 0x65
_PLAIN_POWER_MIN, _PLAIN_POWER_MAX = -6, 20  # JSON writers of Go print 1e21 and 1e-7 with an exponent


@inline
def put_go_double(out: U8, at: int, bits: int, plain: bool) -> int:
    """Write a finite double, given its bits, with the shortest digits. With `plain` there is no exponent; otherwise the
    notation is that of Go's JSON writers (`1e-7`, `1e+21`)."""
    if bits < 0:
        out[at] = _MINUS
        at += 1
        bits &= 0x7FFFFFFFFFFFFFFF
    digits, exponent = double_digits(bits)
    return _put(out, at, digits, exponent, plain)


@inline
def put_go_single(out: U8, at: int, bits: int, plain: bool) -> int:
    """Write a finite float32, given its bits, with the shortest digits. With `plain` there is no exponent; otherwise
    the notation is that of Go's JSON writers."""
    if bits & 0x80000000:
        out[at] = _MINUS
        at += 1
        bits &= 0x7FFFFFFF
    digits, exponent = single_digits(bits)
    return _put(out, at, digits, exponent, plain)


@inline
def _put(out: U8, at: int, digits: int, exponent: int, plain: bool) -> int:
    if digits == 0:
        exponent = 0
    count = count_digits(digits)
    power = count + exponent - 1
    if plain or _PLAIN_POWER_MIN <= power <= _PLAIN_POWER_MAX:
        return put_plain(out, at, digits, count, exponent, False)
    at = put_mantissa(out, at, digits, count)
    out[at] = _E
    out[at + 1] = _PLUS if power > 0 else _MINUS
    return put_uint(out, at + 2, u64(abs(power)))
