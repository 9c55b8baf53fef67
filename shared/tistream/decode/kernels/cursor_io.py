"""Reads and writes fixed-width numbers and varints at an offset of a buffer. Callers check the bounds.

Offsets and results are int64. Unsigned 64-bit values are reinterpreted as int64, because numba converts to float when
int64 and uint64 are mixed.
"""

from __future__ import annotations

from tistream.decode.kernels.arrow_buffers import U8
from tistream.decode.kernels.jit import i64, inline, u64
from tistream.decode.kernels.memory import peek16, peek32, peek64, poke64

_VARINT_BYTES_MAX = 10


@inline
def load_u16(data: U8, at: int) -> int:
    """Read the unsigned little-endian number of 2 bytes at `at`."""
    return i64(peek16(data, at))


@inline
def load_u32(data: U8, at: int) -> int:
    """Read the unsigned little-endian number of 4 bytes at `at`."""
    return i64(peek32(data, at))


@inline
def load_i64(data: U8, at: int) -> int:
    """Read the little-endian number of 8 bytes at `at`."""
    return i64(peek64(data, at))


@inline
def load_i64_big(data: U8, at: int) -> int:
    """Read the big-endian number of 8 bytes at `at`."""
    little = u64(peek64(data, at))
    value = u64(0)
    for index in range(8):
        value |= ((little >> u64(8 * index)) & u64(0xFF)) << u64(56 - 8 * index)
    return i64(value)


@inline
def store_i64(data: U8, at: int, value: int) -> None:
    """Write `value` as 8 little-endian bytes at `at`."""
    poke64(data, at, i64(value))


@inline
def varint_end(data: U8, at: int, end: int) -> int:
    """The position after the varint at `at`; -1 if it is truncated or too long, or if `at` is -1."""
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
    """The value of the varint in the bytes [at, after), as int64. With `signed`, it is in zig-zag encoding."""
    raw = u64(0)
    for index in range(after - at):
        raw |= u64(data[at + index] & 0x7F) << u64(7 * index)
    if signed:
        half = i64(raw >> u64(1))
        return ~half if raw & u64(1) else half
    return i64(raw)
