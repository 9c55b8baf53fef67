"""Writes numbers as Go's JSON writers do, for the constant parts of messages. Pure."""

from __future__ import annotations

import math

_PLAIN_LOW, _PLAIN_HIGH = 1e-6, 1e21  # outside of these, Go writes an exponent


def number(value: float) -> str:
    """A finite number as Go's JSON encoders write a float64: the shortest digits, and an exponent only for very small
    and very large numbers. Raises ValueError for infinity and NaN."""
    if not math.isfinite(value):
        raise ValueError(f"{value} has no JSON form")
    size = abs(value)
    digits, exponent = _digits(size)
    sign = "-" if math.copysign(1, value) < 0 else ""
    if size != 0 and not _PLAIN_LOW <= size < _PLAIN_HIGH:
        rest = digits[1:]
        power = exponent + len(rest)
        return f"{sign}{digits[0]}{'.' + rest if rest else ''}e{'+' if power >= 0 else '-'}{abs(power):0{_wide(power)}}"
    if exponent >= 0:
        return sign + digits + "0" * exponent
    padded = digits.rjust(1 - exponent, "0")
    return f"{sign}{padded[:exponent]}.{padded[exponent:]}"


def _wide(power: int) -> int:
    return 2 if power >= 0 else 1  # Go cleans `e-09` to `e-9`, and keeps `e+09`


def _digits(value: float) -> tuple[str, int]:
    """Returns (the shortest digits of a number that is not negative, without zeros at the end; the exponent of the last
    digit)."""
    mantissa, _, power = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(power or 0) - len(fraction)
    stripped = digits.rstrip("0")
    if not stripped:
        return "0", 0
    return stripped, exponent + len(digits) - len(stripped)
