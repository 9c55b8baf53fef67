"""Reads the columns of a clustered primary key from the record key (upstream-formats 3.1)."""

from __future__ import annotations

from tistream.decode.cells.locate import ABSENT, NULL, decimal_bytes
from tistream.decode.cells.reasons import BAD_HANDLE, BAD_KEY, OK
from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.cursor_io import load_i64_big, store_i64
from tistream.decode.kernels.jit import inline, kernel
from tistream.decode.keys import HANDLE_AT, INT_HANDLE_KEY_BYTES

FLAG_BYTES, FLAG_INT, FLAG_UINT, FLAG_FLOAT, FLAG_DECIMAL, FLAG_DURATION = 1, 3, 4, 5, 6, 7
_FLAG_NULL = 0
_GROUP = 8
_MARKER = 0xFF
_SIGN_BIT = -(1 << 63)


@kernel
def locate_handle(
    keys: U8,
    key_offsets: I64,
    flags: I64,
    columns: I64,
    scratch: U8,
    used: int,
    base: int,
    start: I64,
    length: I64,
    errors: U8,
) -> int:
    """Read from the record keys those columns of a clustered primary key that the row values lack. Writes their cells
    into `scratch` from the offset `used` on, and their positions into `start` and `length`. Returns the number of
    scratch bytes in use afterwards.

    `flags[d]` is the flag that datum d must have. `columns[d]` is its row in `start` and `length`, -1 if its column was
    not requested. `base` is the offset of scratch in the buffer from which the cells are read later. The call writes at
    most as many scratch bytes as the keys have. Rows with an invalid key get the error code BAD_KEY or BAD_HANDLE.
    """
    for row in range(len(key_offsets) - 1):
        if errors[row] != OK:
            continue
        at, end = key_offsets[row], key_offsets[row + 1]
        if not _is_common_handle(keys, at, end):
            errors[row] = BAD_KEY
            continue
        at += HANDLE_AT
        for datum in range(len(flags)):
            if at >= end:
                errors[row] = BAD_HANDLE
                break
            column = columns[datum]
            if column >= 0 and length[column, row] != ABSENT:
                column = -1
            if keys[at] == _FLAG_NULL:
                if column >= 0:
                    length[column, row] = NULL
                at += 1
                continue
            if keys[at] != flags[datum]:
                errors[row] = BAD_HANDLE
                break
            after, size = _copy_datum(keys, at, end, scratch, used)
            if after < 0:
                errors[row] = BAD_HANDLE
                break
            if column >= 0:
                start[column, row] = base + used
                length[column, row] = size
                used += size
            at = after
        if errors[row] == OK and not _is_padding(keys, at, end):
            errors[row] = BAD_HANDLE
    return used


@inline
def _is_common_handle(keys: U8, at: int, end: int) -> bool:
    if end - at <= INT_HANDLE_KEY_BYTES:
        return False
    return bool(keys[at] == 0x74 and keys[at + 9] == 0x5F and keys[at + 10] == 0x72)  # t … _r


@inline
def _is_padding(keys: U8, at: int, end: int) -> bool:
    """Whether keys[at:end], the rest of a key after its datums, is padding: fewer than 9 bytes, all of them zero. Short
    handles are padded to 9 bytes."""
    if end - at >= _GROUP + 1:
        return False
    for index in range(at, end):  # noqa: SIM110  # kernels have no generators
        if keys[index] != 0:
            return False
    return True


@inline
def _copy_datum(keys: U8, at: int, end: int, scratch: U8, used: int) -> tuple[int, int]:
    """Convert the datum of a key that begins at `at` to the form of a cell in a row value, and write it to `scratch` at
    the offset `used`. The key ends at `end`. Returns (the position after the datum, the number of bytes written), or
    (-1, 0) if the datum is invalid."""
    flag = keys[at]
    body = at + 1
    if flag == FLAG_BYTES:
        return _copy_groups(keys, body, end, scratch, used)
    if flag == FLAG_DECIMAL:
        if end - body < 2:
            return -1, 0
        size = 2 + decimal_bytes(keys[body], keys[body + 1])
    else:
        size = 8
    if size < 2 or size > end - body:
        return -1, 0
    if flag in (FLAG_INT, FLAG_DURATION):
        store_i64(scratch, used, load_i64_big(keys, body) ^ _SIGN_BIT)
    elif flag == FLAG_UINT:
        store_i64(scratch, used, load_i64_big(keys, body))
    else:
        for index in range(size):
            scratch[used + index] = keys[body + index]
    return body + size, size


@inline
def _copy_groups(keys: U8, at: int, end: int, scratch: U8, used: int) -> tuple[int, int]:
    """Decode the memcomparable bytes (upstream-formats 2.1) that begin at `at` and end at or before `end`, and write
    them to `scratch` at the offset `used`. Returns (the position after them, the number of bytes written), or (-1, 0)
    if they are invalid."""
    size = 0
    while end - at > _GROUP:
        pad = _MARKER - keys[at + _GROUP]
        if pad > _GROUP:
            return -1, 0
        for index in range(_GROUP):
            if index < _GROUP - pad:
                scratch[used + size] = keys[at + index]
                size += 1
            elif keys[at + index] != 0:
                return -1, 0
        at += _GROUP + 1
        if pad:
            return at, size
    return -1, 0
