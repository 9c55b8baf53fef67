"""Parses a metadata object of a log backup. It lists the slices of data that one flush of one store has written.

A hostile object must not make a reader read or unpack more than the limits of this module, or read any key outside of
the prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tistream.errors import CorruptObject, SourceRefused
from tistream.format.br import messages
from tistream.logbackup import memcomparable
from tistream.model.ts import MAX_TS

WRITE, DEFAULT = "write", "default"
DELETE, PUT = 0, 1
NONE, ZSTD = 0, 3  # compression_type
PLAIN_BYTES_MAX = 512 << 20  # of one slice, unpacked; TiKV flushes before it holds 256 MiB
KEY_BYTES_MAX = 1024  # of an object's key
ENTRY_BYTES_MIN = 8  # the lengths of key and value
_ENCRYPTED_FROM = 2  # encryption methods: 0 unknown, 1 plain text
_SIGN = 1 << 63


@dataclass(frozen=True, slots=True)
class Slice:
    """The entries of one flush that have the same table, region, column family and type (put or delete): a byte range
    of the object `path`.

    low, high: the smallest and largest raw key, inclusive. min_ts, max_ts: inclusive bounds of the keys' timestamps
    (commit_ts in `write`, start_ts in `default`). min_begin_ts: the smallest start_ts of a `write` slice's entries, 0
    if that is not stated. offset, length: the byte range in the object. plain: the unpacked size. sha256: of the
    unpacked bytes.
    """

    path: str
    offset: int
    length: int
    plain: int
    entries: int
    sha256: bytes
    compressed: bool
    cf: str
    put: bool
    table_id: int
    low: bytes
    high: bytes
    min_ts: int
    max_ts: int
    min_begin_ts: int

    @property
    def shown(self) -> str:
        """A short text that identifies the slice in messages."""
        return f"{self.path} at {self.offset}"


@dataclass(frozen=True, slots=True)
class Metadata:
    """What one store has written at one flush. Its `resolved_ts` and `max_ts` are not watermarks (docs/log-backup.md);
    they are only displayed."""

    store_id: int
    resolved_ts: int
    max_ts: int
    slices: tuple[Slice, ...]


def parse(key: str, data: bytes) -> Metadata:
    """Parse a metadata object.

    Raises:
        CorruptObject: it is damaged, or states values that no valid object can have.
        SourceRefused: it has a form that this version does not read; the text names the form.
    """
    found = messages.parse("Metadata", key, data)
    if found.files or (found.file_groups and not found.meta_version):
        raise SourceRefused(
            f"{key} is metadata of version 1 (TiKV 6.1 or 6.2): upgrade TiKV, and start a new log backup"
        )
    if found.meta_version > 1:
        raise SourceRefused(f"{key} has metadata version {found.meta_version}; this program knows 1 (V2)")
    slices = [_slice(key, group, info) for group in found.file_groups for info in group.data_files_info]
    return Metadata(found.store_id, found.resolved_ts, found.max_ts, tuple(slices))


def _slice(key: str, group: Any, info: Any) -> Slice:
    path, offset, length = group.path, info.range_offset, info.range_length
    _check_path(key, path)
    where = f"{path} at {offset}"
    _check_form(key, where, info)
    plain, entries = info.length, info.number_of_entries
    if plain > PLAIN_BYTES_MAX:
        raise CorruptObject(key, f"{where} unpacks to {plain} bytes; no more than {PLAIN_BYTES_MAX} are read")
    if length > plain + 1024 or (group.length and offset + length > group.length):
        raise CorruptObject(key, f"{where}: {length} bytes do not fit its object of {group.length} bytes")
    if not entries or entries * ENTRY_BYTES_MIN > plain:
        raise CorruptObject(key, f"{where}: {entries} entries in {plain} bytes")
    if len(info.sha256) != 32:
        raise CorruptObject(key, f"{where} has no SHA-256")
    if not 0 < info.min_ts <= info.max_ts <= MAX_TS:
        raise CorruptObject(key, f"{where}: timestamps from {info.min_ts} to {info.max_ts}")
    low, high = _raw(key, where, info.start_key), _raw(key, where, info.end_key)
    if low > high:
        raise CorruptObject(key, f"{where}: its first key is above its last")
    return Slice(
        path,
        offset,
        length,
        plain,
        entries,
        info.sha256,
        info.compression_type == ZSTD,
        info.cf,
        info.type == PUT,
        (info.table_id ^ _SIGN) - _SIGN,
        low,
        high,
        info.min_ts,
        info.max_ts,
        info.min_begin_ts_in_default_cf,
    )


def _check_path(key: str, path: str) -> None:
    """Check that the path of a data object lies below the prefix. Raises CorruptObject."""
    parts = path.split("/")
    if len(path) > KEY_BYTES_MAX or "\0" in path or not all(part not in ("", ".", "..") for part in parts):
        raise CorruptObject(key, f"names the object {path[:200]!r}, which is not below the prefix")


def _check_form(key: str, where: str, info: Any) -> None:
    if info.cf not in (WRITE, DEFAULT):
        raise SourceRefused(f"{key}: {where} is of the column family {info.cf[:40]!r}; known are write and default")
    if info.type not in (DELETE, PUT):
        raise SourceRefused(f"{key}: {where} is of type {info.type}; known are 0 (delete) and 1 (put)")
    if info.compression_type not in (NONE, ZSTD):
        raise SourceRefused(f"{key}: {where} has compression {info.compression_type}; known are 0 (none) and 3 (zstd)")
    if info.HasField("file_encryption_info") and info.file_encryption_info.encryption_method >= _ENCRYPTED_FROM:
        raise SourceRefused(
            f"{key}: {where} is encrypted (--log.crypter.method): start the log backup without it, and let the "
            "object store encrypt"
        )


def _raw(key: str, where: str, versioned: bytes) -> bytes:
    found = memcomparable.split(versioned)
    if found is None:
        raise CorruptObject(key, f"{where}: its bound {versioned[:64].hex()} is not a versioned key")
    return found[0]
