"""Rows, keys and tables as TiDB writes them, made by hand for tests (upstream-formats 2, 3.1, 4)."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from tistream.schema.tidb import table as t
from tistream.schema.tidb.meta_key import encode_bytes
from tistream.schema.tidb.table import Column, Table, parse_table

SIGN = 1 << 63
MASK = (1 << 64) - 1


def comparable_int(value: int) -> bytes:
    return ((value + SIGN) & MASK).to_bytes(8, "big")


def comparable_float(value: float) -> bytes:
    bits = int.from_bytes(struct.pack(">d", value), "big")
    bits = bits | SIGN if value >= 0 else bits ^ MASK
    return bits.to_bytes(8, "big")


def record_key(table_id: int, handle: int) -> bytes:
    return b"t" + comparable_int(table_id) + b"_r" + comparable_int(handle)


def common_key(table_id: int, *datums: bytes) -> bytes:
    return b"t" + comparable_int(table_id) + b"_r" + b"".join(datums).ljust(9, b"\0")


def bytes_datum(data: bytes) -> bytes:
    return b"\x01" + encode_bytes(data)


def compact(value: int, *, unsigned: bool = False) -> bytes:
    """An integer in the smallest of 1, 2, 4, 8 bytes."""
    for size in (1, 2, 4, 8):
        low, high = (0, 1 << 8 * size) if unsigned else (-(1 << 8 * size - 1), 1 << 8 * size - 1)
        if low <= value < high:
            return value.to_bytes(size, "little", signed=not unsigned)
    raise OverflowError(value)


def row_v2(cells: dict[int, bytes | None], *, large: bool = False, checksum: bytes = b"") -> bytes:
    filled = sorted((id_, cell) for id_, cell in cells.items() if cell is not None)
    nulls = sorted(id_ for id_, cell in cells.items() if cell is None)
    values = b"".join(cell for _, cell in filled)
    large = large or any(id_ > 255 for id_ in cells) or len(values) > 65535
    id_form, end_form = ("I", "I") if large else ("B", "H")
    ends, at = [], 0
    for _, cell in filled:
        at += len(cell)
        ends.append(at)
    head = struct.pack("<BBHH", 0x80, large | (2 if checksum else 0), len(filled), len(nulls))
    ids = struct.pack(f"<{len(cells)}{id_form}", *[id_ for id_, _ in filled], *nulls)
    return head + ids + struct.pack(f"<{len(ends)}{end_form}", *ends) + values + checksum


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def uvarint(value: int) -> bytes:
    out = bytearray()
    value &= MASK
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def row_v1(datums: dict[int, bytes]) -> bytes:
    return b"".join(b"\x08" + varint(id_) + datum for id_, datum in datums.items()) or b"\0"


def packed_time(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, micro: int = 0
) -> int:
    date = (year * 13 + month) << 5 | day
    return (date << 17 | hour << 12 | minute << 6 | second) << 24 | micro


def column(tp: int, **changes: Any) -> Column:
    """A public column of this type, id 1 unless told."""
    facts = {
        "id": 1, "name": "c", "offset": 0, "tp": tp, "flag": 0, "flen": -1, "decimal": -1, "charset": "utf8mb4",
        "collate": "utf8mb4_bin", "elems": (), "state": t.STATE_PUBLIC, "hidden": False, "generated": False,
        "stored": False, "array": False, "origin_default": None, "origin_default_bit": None, "version": 2,
    }  # fmt: skip
    return Column(**{**facts, **changes})


def table(*columns: Column, pk_is_handle: bool = False, primary: tuple[int, ...] = ()) -> Table:
    """A table of these columns; `primary` are the offsets of a clustered primary key that is no single integer."""
    index = {
        "id": 1,
        "idx_name": {"O": "PRIMARY", "L": "primary"},
        "idx_cols": [{"name": {"O": columns[at].name}, "offset": at, "length": -1} for at in primary],
        "is_primary": True,
        "is_unique": True,
        "state": t.STATE_PUBLIC,
    }
    shell = parse_table(
        {"id": 104, "name": {"O": "t", "L": "t"}, "index_info": [index] if primary else [], "state": t.STATE_PUBLIC}
    )
    return replace(shell, columns=columns, pk_is_handle=pk_is_handle, is_common_handle=bool(primary))
