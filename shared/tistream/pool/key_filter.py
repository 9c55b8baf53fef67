"""Bloom filters of the keys of run objects: a lookup learns from them that an object does not have a key. Pure.

A filter is an array of bits, and each key sets some of them. A key of which a bit is not set is not in the object. A
key whose bits are all set may be in it; of other keys, this is true for about one of a hundred, and for more of them
if the filter of a large object was cut to BYTES_MAX.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tistream.arrays import Bools, Int64s, UInt64s

NAME = b"tistream.key_filter"  # of the value in the footer's metadata that describes the filter
VERSION = 1
ROW_BITS = 10  # bits of the filter for each row
BYTES_MAX = 1 << 20
_AT_ONCE = 1 << 16  # keys whose bits are computed together


def filter_bytes(rows: int) -> int:
    """The size in bytes of the filter of an object with this number of rows."""
    return min(-(-rows * ROW_BITS // 8), BYTES_MAX)


@dataclass(frozen=True, slots=True)
class StatedFilter:
    """What a footer states about a filter: the number of bits that each key sets, the filter's size in bytes, and the
    CRC-32 of its bytes."""

    hashes: int
    size: int
    checksum: int


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """The bits of a filter: bit b is bit b % 8 of byte b // 8. `hashes`: the number of bits that each key sets."""

    hashes: int
    bits: bytes

    def may_hold(self, keys: Any) -> Bools:
        """Whether the object may have each key. `keys`: a binary Arrow array without nulls. Returns bool[n]."""
        held = np.frombuffer(self.bits, np.uint8)
        found = [
            (held[places >> 3] >> (places & 7).astype(np.uint8) & 1).all(axis=1)
            for places in _places(keys, self.hashes, 8 * len(self.bits))
        ]
        return np.concatenate([np.zeros(0, np.bool_), *found])

    def stated(self) -> bytes:
        """The value that describes the filter in the footer's metadata."""
        return b"%d,%d,%d,%08x" % (VERSION, self.hashes, len(self.bits), zlib.crc32(self.bits))


def built(keys: Any) -> KeyFilter:
    """The filter of an object with these keys: a binary Arrow array with at least one key and without nulls, in which a
    key may occur several times."""
    size = filter_bytes(len(keys))
    hashes = max(1, round(8 * size / len(keys) * math.log(2)))  # the fewest keys that pass by chance
    held = np.zeros(8 * size, np.bool_)
    for places in _places(keys, hashes, 8 * size):
        held[places.ravel()] = True
    return KeyFilter(hashes, np.packbits(held, bitorder="little").tobytes())


def parsed(value: bytes) -> StatedFilter | None:
    """Parse the value that describes a filter. Returns None if its version is unknown: the object is then read without
    the filter. Raises ValueError if the value is malformed or exceeds the limits."""
    version, *rest = value.split(b",")
    if int(version) != VERSION:
        return None
    hashes, size, checksum = rest
    found = StatedFilter(int(hashes), int(size), int(checksum, 16))
    if not (0 < found.hashes <= 8 * ROW_BITS and 0 < found.size <= BYTES_MAX):
        raise ValueError(f"{found.hashes} bits for each key in {found.size} bytes")
    return found


def checked(stated: StatedFilter, bits: bytes) -> KeyFilter:
    """The filter with these bytes. Raises ValueError if they are damaged."""
    if len(bits) != stated.size or zlib.crc32(bits) != stated.checksum:
        raise ValueError(f"{len(bits)} bytes fail the checksum {stated.checksum:08x}")
    return KeyFilter(stated.hashes, bits)


def _places(keys: Any, hashes: int, bits: int) -> Iterator[Int64s]:
    """Yield the numbers of the bits that keys set, for _AT_ONCE keys at a time: int64[keys, hashes]."""
    each = np.arange(hashes, dtype=np.uint64)
    for start in range(0, len(keys), _AT_ONCE):
        mixed = _mixed(np.array([zlib.crc32(key) for key in keys.slice(start, _AT_ONCE).to_pylist()], np.uint64))
        first, step = mixed & np.uint64(0xFFFFFFFF), mixed >> np.uint64(32) | np.uint64(1)
        yield ((first[:, None] + step[:, None] * each) % np.uint64(bits)).astype(np.int64)


def _mixed(values: UInt64s) -> UInt64s:
    """The first number of SplitMix64 with each value as its seed. Every bit of a value changes about half of the
    bits of the number."""
    found = values + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ found >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ found >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: UInt64s = found ^ found >> np.uint64(31)
    return mixed
