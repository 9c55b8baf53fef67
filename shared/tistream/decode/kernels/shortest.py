"""A kernel helper that finds the shortest decimal digits of a float: those that parse to the same float (R. Giulietti's
Schubfach).

A float is c * 2^q. Doubles and float32 share one table of 128-bit powers of ten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tistream.decode.kernels.jit import i64, inline, u64

U64 = npt.NDArray[np.uint64]

_POWER_MIN = -324
_POWER_MAX = 324
_MASK32 = u64(0xFFFFFFFF)
_DOUBLE_BITS, _DOUBLE_BIAS = 52, 1075
_SINGLE_BITS, _SINGLE_BIAS = 23, 150


def _powers_of_ten() -> U64:
    """A table whose row k - _POWER_MIN has the high and low words of ceil(10^k * 2^(127 - floor(log2 10^k)))."""
    out = np.zeros((_POWER_MAX - _POWER_MIN + 1, 2), np.uint64)
    for k in range(_POWER_MIN, _POWER_MAX + 1):
        if k >= 0:
            power = 10**k
            shift = 128 - power.bit_length()
            value = power << shift if shift >= 0 else -(-power >> -shift)
        else:
            power = 10**-k
            value = -(-(1 << (127 + power.bit_length())) // power)
        out[k - _POWER_MIN] = (value >> 64, value & 0xFFFFFFFFFFFFFFFF)
    return out


_POWERS = _powers_of_ten()


@inline
def double_digits(bits: int) -> tuple[int, int]:
    """The shortest decimal digits of the finite double with these bits, which is not negative. Returns (digits,
    exponent); the number is digits * 10^exponent."""
    return _digits(bits & 0xFFFFFFFFFFFFF, bits >> _DOUBLE_BITS, _DOUBLE_BITS, _DOUBLE_BIAS)


@inline
def single_digits(bits: int) -> tuple[int, int]:
    """The shortest decimal digits of the finite float32 with these bits, which is not negative. Returns (digits,
    exponent); the number is digits * 10^exponent."""
    return _digits(bits & 0x7FFFFF, bits >> _SINGLE_BITS, _SINGLE_BITS, _SINGLE_BIAS)


@inline
def _digits(fraction: int, biased: int, fraction_bits: int, bias: int) -> tuple[int, int]:
    if biased != 0:
        c = fraction | (1 << fraction_bits)
        q = biased - bias
        if -fraction_bits <= q <= 0 and (c >> -q) << -q == c:
            return _strip_zeros(c >> -q, 0)  # a whole number
    else:
        if fraction == 0:
            return 0, 0
        c = fraction
        q = 1 - bias
    lower_is_closer = 1 if fraction == 0 and biased > 1 else 0
    odd = c & 1
    k = (q * 1262611 - (524031 if lower_is_closer else 0)) >> 22
    shift = u64(q + ((-k * 1741647) >> 19) + 1)
    high = _POWERS[-k - _POWER_MIN, 0]
    low = _POWERS[-k - _POWER_MIN, 1]
    lower = _round_to_odd(high, low, u64(4 * c - 2 + lower_is_closer) << shift) + odd
    middle = _round_to_odd(high, low, u64(4 * c) << shift)
    upper = _round_to_odd(high, low, u64(4 * c + 2) << shift) - odd
    s = middle >> 2
    if s >= 10:
        tens = s // 10
        below = lower <= 40 * tens
        above = 40 * tens + 40 <= upper
        if below != above:
            return _strip_zeros(tens + (1 if above else 0), k + 1)
    below = lower <= 4 * s
    above = 4 * s + 4 <= upper
    if below != above:
        return _strip_zeros(s + (1 if above else 0), k)
    half = 4 * s + 2
    up = middle > half or (middle == half and (s & 1) != 0)
    return _strip_zeros(s + (1 if up else 0), k)


@inline
def _round_to_odd(high: Any, low: Any, factor: Any) -> int:
    """The top 64 bits of a 192-bit product: (high, low) times `factor`. The last bit is set if any lower bit is. The
    result is below 2^63, so it fits an int64."""
    carry = _product_high(low, factor)
    bottom = high * factor + carry
    top = _product_high(high, factor) + u64(1 if bottom < carry else 0)
    return i64(top | u64(1 if bottom > u64(1) else 0))


@inline
def _product_high(a: Any, b: Any) -> Any:
    """The upper 64 bits of the product of two 64-bit numbers."""
    half = u64(32)
    a_low, a_high = a & _MASK32, a >> half
    b_low, b_high = b & _MASK32, b >> half
    low = a_low * b_low
    cross = a_high * b_low + (low >> half)
    other = a_low * b_high + (cross & _MASK32)
    return a_high * b_high + (cross >> half) + (other >> half)


@inline
def _strip_zeros(digits: int, exponent: int) -> tuple[int, int]:
    while digits != 0 and digits % 10 == 0:
        digits //= 10
        exponent += 1
    return digits, exponent
