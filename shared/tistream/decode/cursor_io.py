"""Reading and writing fixed-width numbers and varints at a position. Callers check the bounds.

Positions and results are int64; where 64 unsigned bits are meant they are reinterpreted, since numba makes a float of
an int64 and a uint64.
"""

from __future__ import annotations

import numpy as np

from tistream.decode.arrow_buffers import U8
from tistream.decode.jit import inline
from tistream.decode.memory import peek16, peek32, peek64, poke64

_VARINT_BYTES_MAX = 10


@inline
def load_u16(data: U8, at: int) -> int:
    """2 bytes, little-endian."""
    return np.int64(peek16(data, at))


@inline
def load_u32(data: U8, at: int) -> int:
    """4 bytes, little-endian."""
    return np.int64(peek32(data, at))


@inline
def load_i64(data: U8, at: int) -> int:
    """8 bytes, little-endian."""
    return np.int64(peek64(data, at))


@inline
def load_i64_big(data: U8, at: int) -> int:
    """8 bytes, big-endian."""
    little = np.uint64(peek64(data, at))
    value = np.uint64(0)
    for index in range(8):
        value |= ((little >> np.uint64(8 * index)) & np.uint64(0xFF)) << np.uint64(56 - 8 * index)
    return np.int64(value)


@inline
def store_i64(data: U8, at: int, value: int) -> None:
    """8 bytes, little-endian."""
    poke64(data, at, np.int64(value))


@inline
def varint_end(data: U8, at: int, end: int) -> int:
    """The position after the varint at `at`; -1 if it is cut off, too long, or `at` is -1."""
    if at < 0:
        return -1
    for index in range(_VARINT_BYTES_MAX):
        if at + index >= end:
            return -1
        if data[at + index] < 0x80:
            return at + index + 1
    return -1


@inline
def varint_value(data: U8, at: int, after: int, signed: bool) -> int:
    """The value of the varint in [at, after); signed ones are zig-zag. 64 bits, as int64."""
    raw = np.uint64(0)
    for index in range(after - at):
        raw |= np.uint64(data[at + index] & 0x7F) << np.uint64(7 * index)
    if signed:
        half = np.int64(raw >> np.uint64(1))
        return ~half if raw & np.uint64(1) else half
    return np.int64(raw)
