"""Encodes keys and cells as TiDB writes them (upstream-formats 2, 3, 4). Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from tistream.encode.json_binary import uvarint
from tistream.schema.tidb.meta_key import encode_bytes

SIGN = 1 << 63
_MASK = (1 << 64) - 1
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_WORD = 9  # decimal digits in four bytes

FLAG_NULL, FLAG_BYTES, FLAG_COMPACT, FLAG_INT, FLAG_VARINT = 0, 1, 2, 3, 8


# -- keys ---------------------------------------------------------------------------------------------------------


def comparable_int(value: int) -> bytes:
    """Encode a signed integer as eight bytes that sort as the integers do."""
    return ((value + SIGN) & _MASK).to_bytes(8, "big")


def table_prefix(table_id: int) -> bytes:
    """`t{id}`, the prefix of every key of a physical table."""
    return b"t" + comparable_int(table_id)


def record_key(table_id: int, handle: int) -> bytes:
    """The key of a row with an integer handle."""
    return table_prefix(table_id) + b"_r" + comparable_int(handle)


def common_handle(datums: Sequence[str | int]) -> bytes:
    """Encode the handle of a clustered key that is not a single integer: its datums in key encoding (utf8mb4_bin),
    padded with zero bytes to at least 9."""
    return b"".join(key_datum(datum) for datum in datums).ljust(9, b"\0")


def key_datum(datum: str | int) -> bytes:
    """Encode a datum as in a key: a byte for its type, then the value in an order-preserving form."""
    if isinstance(datum, int):
        return bytes((FLAG_INT,)) + comparable_int(datum)
    return bytes((FLAG_BYTES,)) + encode_bytes(datum.encode())


def index_prefix(table_id: int, index_id: int) -> bytes:
    """`t{id}_i{index}`, the prefix of the entries of an index."""
    return table_prefix(table_id) + b"_i" + comparable_int(index_id)


# -- cells of row format v2 ---------------------------------------------------------------------------------------


def int_cell(value: int) -> bytes:
    """Encode a signed integer in the smallest of 1, 2, 4 or 8 bytes."""
    if -0x80 <= value < 0x80:
        return struct.pack("<b", value)
    if -0x8000 <= value < 0x8000:
        return struct.pack("<h", value)
    if -0x80000000 <= value < 0x80000000:
        return struct.pack("<i", value)
    return struct.pack("<q", value)


def uint_cell(value: int) -> bytes:
    """Encode an unsigned integer in the smallest of 1, 2, 4 or 8 bytes."""
    for size in (1, 2, 4):
        if value < 1 << 8 * size:
            return value.to_bytes(size, "little")
    return value.to_bytes(8, "little")


def float_cell(value: float) -> bytes:
    """Encode a double as eight bytes that sort as the doubles do."""
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return (bits | SIGN if value >= 0 else bits ^ _MASK).to_bytes(8, "big")


def decimal_cell(value: Decimal, precision: int, frac: int) -> bytes:
    """Encode a DECIMAL(precision, frac): a byte for each of the two, then MySQL's binary decimal
    (upstream-formats 4.4)."""
    digits = f"{abs(value):.{frac}f}".replace(".", "").rjust(precision, "0")
    whole, part = digits[: precision - frac], digits[precision - frac :]
    head = len(whole) % _WORD
    words = [whole[:head]] + [whole[at : at + _WORD] for at in range(head, len(whole), _WORD)]
    words += [part[at : at + _WORD] for at in range(0, len(part), _WORD)]
    out = bytearray(b"".join(int(word).to_bytes(_DIGIT_BYTES[len(word)], "big") for word in words if word))
    if value < 0:
        out = bytearray(byte ^ 0xFF for byte in out)
    out[0] ^= 0x80
    return bytes((precision, frac)) + bytes(out)


def time_cell(value: datetime) -> bytes:
    """Encode a DATE, DATETIME or TIMESTAMP (in UTC): the packed time as an unsigned integer."""
    date = (value.year * 13 + value.month) << 5 | value.day
    clock = value.hour << 12 | value.minute << 6 | value.second
    return uint_cell((date << 17 | clock) << 24 | value.microsecond)


# -- rows ---------------------------------------------------------------------------------------------------------


def row_v2(cells: Sequence[tuple[int, bytes | None]]) -> bytes:
    """Encode a row value of format v2. `cells` are (column id, cell) in ascending order of ids. A cell of None is
    NULL."""
    filled = [(id_, cell) for id_, cell in cells if cell is not None]
    nulls = [id_ for id_, cell in cells if cell is None]
    values = b"".join(cell for _, cell in filled)
    large = len(values) > 0xFFFF or any(id_ > 0xFF for id_, _ in cells)
    id_form, end_form = ("I", "I") if large else ("B", "H")
    ends, at = [], 0
    for _, cell in filled:
        at += len(cell)
        ends.append(at)
    head = struct.pack("<BBHH", 0x80, large, len(filled), len(nulls))
    ids = struct.pack(f"<{len(cells)}{id_form}", *[id_ for id_, _ in filled], *nulls)
    return head + ids + struct.pack(f"<{len(ends)}{end_form}", *ends) + values


def varint(value: int) -> bytes:
    """Encode a signed varint (zig-zag)."""
    return uvarint(((value << 1) ^ (value >> 63)) & _MASK)


def row_v1(cells: Sequence[tuple[int, int | bytes | None]]) -> bytes:
    """Encode a row value of format v1, which the `mysql` schema uses. `cells` are (column id, cell); a cell is an
    integer, bytes, or None for NULL."""
    out = bytearray()
    for id_, cell in cells:
        out += bytes((FLAG_VARINT,)) + varint(id_)
        if cell is None:
            out.append(FLAG_NULL)
        elif isinstance(cell, int):
            out += bytes((FLAG_VARINT,)) + varint(cell)
        else:
            out += bytes((FLAG_COMPACT,)) + varint(len(cell)) + cell
    return bytes(out) or b"\0"
