"""Reads SST files of RocksDB's block-based format in the form that TiKV's backups have. Pure.

A file has blocks of entries, then an index of these blocks, blocks of properties, and a footer. `open_table` refuses
any other form, such as range deletions or a partitioned index; RocksDB itself must read those. Checksums of blocks are
not checked: the caller has checked the SHA-256 of the whole file.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from tistream.decode.kernels.arrow_buffers import I64, binary_array
from tistream.decode.mvcc import sst_kernel

MAGIC = (0x88E241B785F4CFF7).to_bytes(8, "little")  # the end of a block-based table
FOOTER_BYTES = 53
VERSIONS = range(2, 6)
UNPACKED_MAX = 256 << 20  # of a block
GROUP_BYTES = 2 << 20  # packed blocks that are decoded at once
UNPACKED_BYTES = 32 << 20  # the same blocks, unpacked: a group ends with the block that reaches this
KEYS_MAX = 2 << 30  # of a group: a key that repeats the one before it has three bytes in a file
_CODECS = {1: "snappy", 4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}  # by RocksDB's number; 0: not compressed
_CODEC_NAMES = (b"NoCompression", b"Snappy", b"LZ4", b"LZ4HC", b"ZSTD")
_REFUSED = (b"rocksdb.range_del", b"rocksdb.range_del2", b"rocksdb.compression_dict")
_WANTED = {
    b"rocksdb.block.based.table.index.type": bytes(4),
    b"rocksdb.comparator": b"leveldb.BytewiseComparator",
    b"rocksdb.deleted.keys": b"\0",
    b"rocksdb.merge.operands": b"\0",
}


class TableMalformed(ValueError):
    """Raised if the bytes of an SST file contradict each other."""


@dataclass(frozen=True, slots=True)
class SstTable:
    """An SST file: its bytes, and the place of each data block in the order of keys."""

    data: memoryview
    offsets: I64
    sizes: I64

    def __len__(self) -> int:
        return len(self.offsets)

    def block(self, number: int) -> memoryview:
        """A data block, unpacked. Raises TableMalformed."""
        return _block(self.data, int(self.offsets[number]), int(self.sizes[number]))

    def first_key(self, number: int) -> bytes:
        """The first key of a data block. Raises TableMalformed."""
        block = self.block(number)
        _, at = _varint(block, 0)
        size, at = _varint(block, at)
        _, at = _varint(block, at)
        return bytes(block[at : at + size - sst_kernel.TRAILER_BYTES])


def open_table(data: memoryview) -> SstTable | None:
    """Read the footer, the properties and the index of an SST file. Returns None if only RocksDB can read this form.
    Raises TableMalformed."""
    footer = data[-FOOTER_BYTES:]
    version = int.from_bytes(footer[-12:-8], "little")
    if len(footer) < FOOTER_BYTES or footer[-8:] != MAGIC or version not in VERSIONS:
        return None
    places, at = [], 1
    for _ in range(4):
        place, at = _varint(footer, at)
        places.append(place)
    meta = _small_entries(_block(data, *places[:2]))
    if any(name in meta for name in _REFUSED) or b"rocksdb.properties" not in meta:
        return None
    where = memoryview(meta[b"rocksdb.properties"])
    offset, at = _varint(where, 0)
    properties = _small_entries(_block(data, offset, _varint(where, at)[0]))
    if any(properties.get(name) != value for name, value in _WANTED.items()):
        return None
    if properties.get(b"rocksdb.compression") not in _CODEC_NAMES:
        return None
    delta = properties.get(b"rocksdb.index.value.is.delta.encoded", b"\0") != b"\0"
    offsets, sizes = block_places(_block(data, *places[2:]), delta=delta)
    if (offsets < 0).any() or (sizes < 0).any() or (offsets + sizes + sst_kernel.CHECKSUM_BYTES > len(data)).any():
        raise TableMalformed("its index names blocks outside of the file")
    table = SstTable(data, offsets, sizes)
    if len(table) and any(last >> 4 for last in table.block(0)[-1:]):  # the upper bits of the number of restart points
        return None
    return table


class TableEntries:
    """Iterates over the entries of an SST file with first <= key < last, in the file's order. An empty `last` is
    unbounded."""

    def __init__(self, table: SstTable, first: bytes, last: bytes) -> None:
        self._table, self._first, self._last = table, first, last
        self._next = max(0, bisect_left(range(len(table)), first, key=table.first_key) - 1)
        self._held: list[tuple[pa.Array, pa.Array]] = []
        self._rows = 0

    def next(self, count: int) -> tuple[pa.Array, pa.Array]:
        """Read up to `count` further entries. Returns their keys and values, as large_binary arrays. Raises
        TableMalformed."""
        while self._rows < count and self._next < len(self._table):
            self._read_group()
        taken: list[tuple[pa.Array, pa.Array]] = [_NOTHING]
        missing = min(count, self._rows)
        self._rows -= missing
        while missing:
            keys, values = self._held.pop(0)
            if len(keys) > missing:
                self._held.insert(0, (keys.slice(missing), values.slice(missing)))
                keys, values = keys.slice(0, missing), values.slice(0, missing)
            taken.append((keys, values))
            missing -= len(keys)
        keys, values = zip(*taken, strict=True)
        return pa.concat_arrays(keys), pa.concat_arrays(values)

    def _read_group(self) -> None:
        blocks, packed, unpacked = list[memoryview](), 0, 0
        while self._next < len(self._table) and packed < GROUP_BYTES and unpacked < UNPACKED_BYTES:
            blocks.append(self._table.block(self._next))
            packed += int(self._table.sizes[self._next])
            unpacked += len(blocks[-1])
            self._next += 1
        keys, values = decoded(blocks)
        start = _position(keys, self._first)
        end = _position(keys, self._last) if self._last else len(keys)
        if end < len(keys):
            self._next = len(self._table)
        if start < end:
            self._held.append((keys.slice(start, end - start), values.slice(start, end - start)))
            self._rows += end - start


def decoded(blocks: list[memoryview]) -> tuple[pa.Array, pa.Array]:
    """Decode the entries of unpacked data blocks. Returns keys and values, as large_binary arrays. Raises
    TableMalformed."""
    lengths = np.array([len(block) for block in blocks], np.int64)
    ends = np.cumsum(lengths)
    data = np.frombuffer(b"".join(blocks), np.uint8)
    totals = np.zeros(4, np.int64)
    if status := sst_kernel.measure_blocks(data, ends - lengths, ends, totals):
        raise TableMalformed(f"block {status - 1} of a group is malformed")
    rows, key_bytes, value_bytes, longest = totals.tolist()
    if key_bytes > KEYS_MAX:
        raise TableMalformed(f"a group of blocks has {key_bytes} bytes of keys; no more than {KEYS_MAX} are read")
    key_offsets, value_offsets = np.zeros((2, rows + 1), np.int64)
    keys, values, scratch = (np.empty(size, np.uint8) for size in (key_bytes, value_bytes, longest))
    if status := sst_kernel.copy_entries(data, ends - lengths, ends, scratch, key_offsets, keys, value_offsets, values):
        raise TableMalformed(f"entry {status - 1} of a group of blocks is not a put")
    return binary_array(keys, key_offsets, None, text=False), binary_array(values, value_offsets, None, text=False)


_NOTHING = (pa.array([], pa.large_binary()), pa.array([], pa.large_binary()))


def _position(keys: pa.Array, key: bytes) -> int:
    return bisect_left(range(len(keys)), key, key=lambda at: keys[at].as_py())


def block_places(index: memoryview, *, delta: bool) -> tuple[I64, I64]:
    """Decode the places of the data blocks from an unpacked index block. Returns (the offset of each block, the size of
    each block). `delta`: as in the kernel. Raises TableMalformed."""
    data = np.frombuffer(bytes(index), np.uint8)  # kernels are compiled for arrays that cannot be written to
    offsets, sizes = np.empty((2, len(data) // 3 + 1), np.int64)
    count = sst_kernel.block_places(data, delta, offsets, sizes)
    if count < 0:
        raise TableMalformed("its index is malformed")
    return offsets[:count], sizes[:count]


def _small_entries(block: memoryview) -> dict[bytes, bytes]:
    """The entries of a block of properties, whose keys have no trailer."""
    restarts = int.from_bytes(block[-4:], "little")
    end, at, key, out = len(block) - 4 - 4 * restarts, 0, b"", dict[bytes, bytes]()
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        size, at = _varint(block, at)
        key = key[:shared] + bytes(block[at : at + own])
        out[key] = bytes(block[at + own : at + own + size])
        at += own + size
    return out


def _block(data: memoryview, offset: int, size: int) -> memoryview:
    """The block of `size` bytes at `offset`, unpacked. Raises TableMalformed if it does not lie in the file, cannot be
    unpacked, or has more than UNPACKED_MAX bytes then."""
    packed = data[offset : offset + size + 1]
    if len(packed) != size + 1:
        raise TableMalformed(f"a block of {size} bytes at {offset} does not end in the file")
    packed, kind = packed[:-1], packed[-1]
    if kind == 0:
        return packed
    if kind not in _CODECS:
        raise TableMalformed(f"the block at {offset} has the unknown compression {kind}")
    plain, at = _varint(packed, 0)
    if plain > UNPACKED_MAX:
        raise TableMalformed(f"the block at {offset} unpacks to {plain} bytes; no more than {UNPACKED_MAX} are read")
    if kind == 1:  # snappy states the size itself
        at = 0
    try:
        return memoryview(_codec(_CODECS[kind]).decompress(packed[at:], plain)).cast("B")
    except (pa.ArrowException, OSError) as error:
        raise TableMalformed(f"the block at {offset} cannot be unpacked: {error}") from error


@cache
def _codec(name: str) -> pa.Codec:
    return pa.Codec(name)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Read the unsigned varint at `at`. Returns its value, below 2 ** 63, and the position after it. Raises
    TableMalformed if it is cut off or longer."""
    found = 0
    for byte in range(9):
        if at + byte >= len(data):
            break
        found |= (data[at + byte] & 0x7F) << (7 * byte)
        if data[at + byte] < 0x80:
            return found, at + byte + 1
    raise TableMalformed("a number is cut off")
