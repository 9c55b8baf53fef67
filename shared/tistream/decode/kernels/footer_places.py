"""What the kernels of Parquet footers (tistream.decode.footers) share: Thrift's numbers, and where values are kept.

A value's *place* is three numbers: its Thrift type (0 if there is no such value), and where its bytes begin and end.
The place of a byte string is that of its content, without its length. The module is in this package, because compiled
code is cached under a digest of this package and of the kernel's own file only.
"""

from __future__ import annotations

from typing import Any

from tistream.decode.kernels.arrow_buffers import U8
from tistream.decode.kernels.jit import i64, inline, u64

TRUE, FALSE, BYTE, I16, I32, I64_, DOUBLE, BINARY, LIST = range(1, 10)  # types of the compact protocol
STRUCT = 12

PLACE = 3
FILE_PLACES = 16  # of the file's fields, by their number
# Columns of `groups`: three places, by field number, then the first column chunk and the number of column chunks
GROUP_CHUNKS, GROUP_WIDTH = 4 * PLACE, 4 * PLACE + 2
# Columns of `chunks`: the places of a ColumnMetaData's fields, by number, then those of other structs of a column chunk
HIGH, LOW, PLAIN, META, FILE_OFFSET, FOREIGN, LAST_PLACE = 17, 18, 19, 20, 21, 22, 23
CHUNK_WIDTH = LAST_PLACE * PLACE
GROUP_BYTES_MIN, CHUNK_BYTES_MIN = 4, 20  # sound row groups and column chunks have more bytes in a footer


@inline
def varint(data: U8, at: int) -> Any:
    """Read the unsigned varint at `at`. Returns its value, the position after it, and whether it is sound."""
    found = u64(0)
    for byte in range(10):
        if at >= len(data):
            return found, i64(at), False
        part = u64(data[at])
        at += 1
        if byte == 9 and part > u64(1):
            return found, i64(at), False
        found |= (part & u64(0x7F)) << u64(7 * byte)
        if part < u64(0x80):
            return found, i64(at), True
    return found, i64(at), False


@inline
def zigzag(raw: Any) -> int:
    """The signed number that Thrift writes as this unsigned one."""
    return i64(raw >> u64(1)) ^ -i64(raw & u64(1))


@inline
def number_at(data: U8, at: int) -> int:
    """The signed number at `at`, where `scan` has found one."""
    raw, _, _ = varint(data, at)
    return zigzag(raw)
