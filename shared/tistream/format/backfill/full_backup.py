"""BR's full backup: `backupmeta` and the files that it names (pingcap/kvproto brpb.proto; docs/backfill.md). Pure.

`backupmeta` is a protobuf BackupMeta. Version 0 (V1) names SST files and schemas inline; version 1 (V2) names MetaFile
objects that do, with their SHA-256. BR writes `backupmeta` last, after it has checked that the files cover all ranges
of all tables. So a key between two files has no row as of the backup.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tistream.errors import CorruptObject
from tistream.format.backfill.protobuf_wire import Message, read_message
from tistream.model.span import shown_key
from tistream.model.ts import MAX_TS

NAME = "backupmeta"
KNOWN_VERSIONS = (0, 1)
META_BYTES_MAX = 512 << 20  # BR splits MetaFiles at 128 MiB
META_DEPTH_MAX = 2  # BR writes one level below the root
API_V2 = 2  # kvrpcpb.APIVersion: keys with a keyspace prefix
CF_WRITE, CF_DEFAULT = "write", "default"

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}(?:/[A-Za-z0-9_.-]{1,255}){0,7}")
_BACKUP = frozenset({1, 2, 4, 5, 6, 7, 8, 12, 13, 14, 18, 21})
_FILE = frozenset({1, 2, 3, 4, 8, 10, 11})  # 12, cipher_iv, is set in plain backups too
_META = frozenset({1, 2, 3})
_SCHEMA = frozenset({1, 2})


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One object of the backup. `start_key` and `end_key` are raw keys, without `z` and timestamps.

    `total_kvs` of a `write` file counts the rows whose value is in it, and that of the `default` file the others.
    `size` is in bytes; 0 where BR did not record it. `sha256` is of the object's bytes; empty where not recorded.
    """

    name: str
    sha256: bytes
    start_key: bytes
    end_key: bytes
    total_kvs: int
    cf: str
    size: int


@dataclass(frozen=True, slots=True)
class BackupSchema:
    """One table of the backup, as JSON texts: DBInfo and TableInfo. `table` is empty for a database without tables."""

    database: bytes
    table: bytes


@dataclass(frozen=True, slots=True)
class MetaFile:
    """A node of an index: the MetaFile objects below it, and its own files and schemas."""

    children: tuple[BackupFile, ...] = ()
    files: tuple[BackupFile, ...] = ()
    schemas: tuple[BackupSchema, ...] = ()


@dataclass(frozen=True, slots=True)
class FullBackup:
    """A parsed `backupmeta`. All rows and schemas are as of `end_version`, a TSO."""

    cluster_id: int
    cluster_version: str
    end_version: int
    inline: MetaFile
    file_index: MetaFile
    schema_index: MetaFile


@dataclass(frozen=True, slots=True)
class SstPair:
    """The SST files of one region: write records, and the values that are not in them, if any."""

    write: BackupFile
    default: BackupFile | None

    @property
    def rows(self) -> int:
        """The number of write records that the backup states for the pair."""
        return self.write.total_kvs + (self.default.total_kvs if self.default else 0)


def parse_backup(key: str, data: bytes) -> FullBackup:
    """Parse `backupmeta`. Raises CorruptObject, which names what is not supported: a log backup's `backupmeta`, an
    incremental, raw, transactional or encrypted backup, keys of a keyspace, an unknown version."""
    _check_size(key, len(data))
    try:
        root = read_message(data, _BACKUP)
        backup = FullBackup(
            cluster_id=root.uint(1),
            cluster_version=root.text(2).strip().strip('"'),
            end_version=root.uint(6),
            inline=MetaFile((), _files(root.all(4)), _schemas(root.all(7))),
            file_index=_node(root, 13),
            schema_index=_node(root, 14),
        )
        reason = _refusal(root, backup.end_version)
    except ValueError as error:
        raise CorruptObject(key, f"is not a backupmeta of BR, or it is encrypted: {error}") from error
    if reason is not None:
        raise CorruptObject(key, reason)
    return backup


def parse_meta_file(ref: BackupFile, key: str, data: bytes) -> MetaFile:
    """Parse a MetaFile object that `ref` names. Raises CorruptObject, also if its SHA-256 differs."""
    _check_size(key, len(data))
    check_sha256(ref, key, data)
    try:
        return _meta_file(data)
    except ValueError as error:
        raise CorruptObject(key, f"is not a MetaFile of BR: {error}") from error


def check_sha256(ref: BackupFile, key: str, data: bytes | memoryview) -> None:
    """Check an object's bytes against the size and SHA-256 that the backup records. Raises CorruptObject."""
    if ref.size and ref.size != len(data):
        raise CorruptObject(key, f"has {len(data)} bytes; the backup records {ref.size}")
    if ref.sha256 and hashlib.sha256(data).digest() != ref.sha256:
        raise CorruptObject(key, f"fails its SHA-256 {ref.sha256.hex()}: it is damaged, or the backup is encrypted")


def sst_pairs(files: Iterable[BackupFile]) -> list[SstPair]:
    """Pair the files of each region by name, ordered by start key. Raises ValueError, with the file's name: a file of
    an unknown column family, a `default` file without its `write` file, or two pairs that overlap."""
    found: dict[str, dict[str, BackupFile]] = {}
    for file in files:
        stem = file.name.removesuffix(f"_{file.cf}.sst")
        if file.cf not in (CF_WRITE, CF_DEFAULT) or stem == file.name:
            raise ValueError(
                f"file {file.name} of column family {file.cf!r} does not end in _write.sst or _default.sst"
            )
        if file.cf in found.setdefault(stem, {}):
            raise ValueError(f"file {file.name} is named twice")
        found[stem][file.cf] = file
    pairs = []
    for stem, cfs in found.items():
        if CF_WRITE not in cfs:
            raise ValueError(f"file {cfs[CF_DEFAULT].name} has no file {stem}_write.sst beside it")
        pairs.append(SstPair(cfs[CF_WRITE], cfs.get(CF_DEFAULT)))
    pairs.sort(key=lambda pair: pair.write.start_key)
    for left, right in pairwise(pairs):
        if not left.write.end_key or left.write.end_key > right.write.start_key:
            at = shown_key(right.write.start_key)
            raise ValueError(f"files {left.write.name} and {right.write.name} overlap at key {at}")
    return pairs


def _refusal(root: Message, end_version: int) -> str | None:
    """The reason why the backup is not supported, with the way out; None if it is."""
    version, since = root.uint(12), root.uint(5)
    reasons = (
        (version not in KNOWN_VERSIONS, f"backupmeta version {version}; this program knows {KNOWN_VERSIONS}"),
        (
            not end_version,
            "is the backupmeta of a log backup (br log start), without an end_version: name a full backup",
        ),
        (end_version > MAX_TS, f"its end_version {end_version} is not a TSO"),
        (root.uint(8) or root.uint(21), "is a backup of raw or transactional keys: take one with `br backup full`"),
        (0 < since < end_version, f"is an incremental backup since {since}: take one without --lastbackupts"),
        (root.uint(18) == API_V2, "its keys have a keyspace prefix (API V2), which is not supported"),
    )
    return next((reason for wrong, reason in reasons if wrong), None)


def _node(root: Message, number: int) -> MetaFile:
    found = root.all(number)
    return _meta_file(found[-1]) if found else MetaFile()


def _meta_file(data: bytes | memoryview) -> MetaFile:
    node = read_message(data, _META)
    return MetaFile(_files(node.all(1)), _files(node.all(2)), _schemas(node.all(3)))


def _files(entries: Sequence[memoryview]) -> tuple[BackupFile, ...]:
    return tuple(map(_file, entries))


def _file(entry: memoryview) -> BackupFile:
    fields = read_message(entry, _FILE)
    name, sha256, start, end = fields.text(1), fields.bytes(2), fields.bytes(3), fields.bytes(4)
    if not _NAME.fullmatch(name) or any(part in (".", "..") for part in name.split("/")):
        raise ValueError(f"the file name {name[:80]!r} is not a relative path of plain names")
    if len(sha256) not in (0, 32):
        raise ValueError(f"file {name}: a SHA-256 of {len(sha256)} bytes")
    if end and start >= end:
        raise ValueError(f"file {name}: its start_key {shown_key(start)} is not below its end_key {shown_key(end)}")
    return BackupFile(name, sha256, start, end, fields.uint(8), fields.text(10), fields.uint(11))


def _schemas(entries: Sequence[memoryview]) -> tuple[BackupSchema, ...]:
    found = (read_message(entry, _SCHEMA) for entry in entries)
    return tuple(BackupSchema(fields.bytes(1), fields.bytes(2)) for fields in found)


def _check_size(key: str, size: int) -> None:
    if size > META_BYTES_MAX:
        raise CorruptObject(key, f"has {size} bytes; no more than {META_BYTES_MAX} are read")
