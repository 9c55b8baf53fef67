"""Unaligned loads, stores and copies for kernels, as single machine instructions. Little-endian machines only.

Numba's own indexing reads one byte at a time and handles negative indexes. Callers check the bounds. With
NUMBA_BOUNDSCHECK=1, as in the fuzz test, the functions here check them too and raise IndexError.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core import cgutils, types
from numba.core.errors import TypingError

from tistream.decode.kernels.arrow_buffers import U8
from tistream.decode.kernels.jit import inline

# Numba's type annotations are incomplete.
_numba: Any = numba
_intrinsic = _numba.extending.intrinsic
_raw_memcpy: Any = cgutils.raw_memcpy
carray = _numba.carray
_CHECKED = bool(_numba.core.config.BOUNDSCHECK)


def _as_pointer(_: Any, address: Any) -> Any:
    def lower(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), lower


def _loader(kind: Any) -> Any:
    def load(_: Any, address: Any) -> Any:
        def lower(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())
            return builder.load(place, align=1)

        return kind(address), lower

    return _intrinsic(load)


def _storer(kind: Any) -> Any:
    def store(_: Any, address: Any, value: Any) -> Any:
        if value != kind:
            raise TypingError(f"the function stores {kind}, not {value}")

        def lower(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())
            builder.store(arguments[1], place, align=1)
            return context.get_dummy_value()

        return types.void(address, value), lower

    return _intrinsic(store)


def _copier(_: Any, to: Any, source: Any, size: Any) -> Any:
    def lower(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte = cgutils.int8_t.as_pointer()
        _raw_memcpy(
            builder, builder.inttoptr(arguments[0], byte), builder.inttoptr(arguments[1], byte), arguments[2], 1
        )
        return context.get_dummy_value()

    return types.void(to, source, size), lower


def _trailing_zeros(_: Any, word: Any) -> Any:  # noqa: ARG001  # numba takes the signature from the parameters
    def lower(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.false_bit)

    return types.int64(types.uint64), lower


trailing_zeros = _intrinsic(_trailing_zeros)  # number of zero bits below the lowest set bit; 64 for 0
pointer = _intrinsic(_as_pointer)  # converts an address to a pointer, for carray
_copy = _intrinsic(_copier)
_peek16, _peek32, _peek64 = _loader(types.uint16), _loader(types.uint32), _loader(types.int64)
_poke16, _poke64 = _storer(types.uint16), _storer(types.int64)


@inline
def _check(data: U8, at: int, size: int) -> None:
    if at < 0 or size < 0 or at + size > len(data):
        raise IndexError("the position is outside of the buffer")


@inline
def peek16(data: U8, at: int) -> Any:
    """Read a uint16 at `at`."""
    if _CHECKED:
        _check(data, at, 2)
    return _peek16(data.ctypes.data + at)


@inline
def peek32(data: U8, at: int) -> Any:
    """Read a uint32 at `at`."""
    if _CHECKED:
        _check(data, at, 4)
    return _peek32(data.ctypes.data + at)


@inline
def peek64(data: U8, at: int) -> Any:
    """Read an int64 at `at`."""
    if _CHECKED:
        _check(data, at, 8)
    return _peek64(data.ctypes.data + at)


@inline
def poke16(out: U8, at: int, value: Any) -> None:
    """Write `value` as a uint16 at `at`."""
    if _CHECKED:
        _check(out, at, 2)
    _poke16(out.ctypes.data + at, value)


@inline
def poke64(out: U8, at: int, value: Any) -> None:
    """Write `value` as an int64 at `at`."""
    if _CHECKED:
        _check(out, at, 8)
    _poke64(out.ctypes.data + at, value)


@inline
def copy_bytes(out: U8, at: int, data: U8, first: int, size: int) -> None:
    """Copy `data[first:first + size]` to `out` at `at`. The buffers must not overlap."""
    if _CHECKED:
        _check(out, at, size)
        _check(data, first, size)
    _copy(out.ctypes.data + at, data.ctypes.data + first, size)
