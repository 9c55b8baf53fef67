"""Reads a large object in pieces, and checks that it did not change during the read."""

from __future__ import annotations

from collections.abc import Iterator

from tistream.errors import CorruptObject
from tistream.storage.object_store import ObjectInfo, ObjectStore

PIECE_BYTES = 4 << 20


def in_pieces(objects: ObjectStore, info: ObjectInfo) -> Iterator[bytes]:
    """Yield the bytes of the object `info`, from its first to its last. Raises NotFoundYet, Unavailable; CorruptObject,
    after the last byte, if the object no longer has the version of `info`."""
    for start in range(0, info.size, PIECE_BYTES):
        yield objects.get_range(info.key, start, PIECE_BYTES)
    if objects.head(info.key).version != info.version:
        raise CorruptObject(info.key, "it changed while it was read")
