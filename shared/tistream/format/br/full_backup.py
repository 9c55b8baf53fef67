"""BR's full backup: `backupmeta` and the files that it names (brpb.proto of pingcap/kvproto; docs/backfill.md). Pure.

`backupmeta` is a protobuf BackupMeta. Version 0 (V1) names SST files and schemas inline; version 1 (V2) names MetaFile
objects, which name the SST files and schemas, each with its SHA-256. BR writes `backupmeta` last, after it has checked
that the files cover all ranges of all tables. So a key that lies between the ranges of two files had no row at the time
of the backup.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tistream.errors import CorruptObject
from tistream.format.br import messages
from tistream.model.span import shown_key
from tistream.model.ts import MAX_TS

NAME = "backupmeta"
KNOWN_VERSIONS = (0, 1)
META_BYTES_MAX = 512 << 20  # BR splits MetaFiles at 128 MiB
META_DEPTH_MAX = 2  # BR writes one level below the root
API_V2 = 2  # kvrpcpb.APIVersion: keys with a keyspace prefix
CF_WRITE, CF_DEFAULT = "write", "default"

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}(?:/[A-Za-z0-9_.-]{1,255}){0,7}")


@dataclass(frozen=True, slots=True)
class BackupFile:
    """An SST file or MetaFile of the backup. `start_key` and `end_key` are raw keys, without `z` and timestamps.

    `total_kvs` of a `write` file counts the rows whose value is in that file; `total_kvs` of the `default` file counts
    the others. `size` is in bytes; 0 if BR did not record it. `sha256` is of the object's bytes; empty if BR did not
    record it.
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
    """One MetaFile object: a node of the tree that indexes a V2 backup. It names further MetaFile objects, backup files
    and schemas."""

    children: tuple[BackupFile, ...] = ()
    files: tuple[BackupFile, ...] = ()
    schemas: tuple[BackupSchema, ...] = ()


@dataclass(frozen=True, slots=True)
class FullBackup:
    """A parsed `backupmeta`. `inline` are the files and schemas in it; `file_index` and `schema_index` refer to
    MetaFile objects. All rows and schemas are as of `end_version`, a TSO."""

    cluster_id: int
    cluster_version: str
    end_version: int
    inline: MetaFile
    file_index: MetaFile
    schema_index: MetaFile


@dataclass(frozen=True, slots=True)
class SstPair:
    """The two SST files of one region: `write` has the write records; `default` has the values that these records do
    not hold, and is None if every record holds its own value."""

    write: BackupFile
    default: BackupFile | None

    @property
    def rows(self) -> int:
        """The number of write records in the pair, as the backup states it."""
        return self.write.total_kvs + (self.default.total_kvs if self.default else 0)


def parse_backup(key: str, data: bytes) -> FullBackup:
    """Parse `backupmeta`. Raises CorruptObject, with the reason, for a backup that is not supported: the backup of a
    log; an incremental, raw, transactional or encrypted backup; one with keys of a keyspace; or an unknown version."""
    try:
        root = messages.parse("BackupMeta", key, data, META_BYTES_MAX)
    except CorruptObject as error:
        raise CorruptObject(key, f"{error.reason}: it is not the backupmeta of BR, or it is encrypted") from error
    try:
        backup = FullBackup(
            cluster_id=root.cluster_id,
            cluster_version=root.cluster_version.strip().strip('"'),
            end_version=root.end_version,
            inline=MetaFile((), _files(root.files), _schemas(root.schemas)),
            file_index=_node(root.file_index),
            schema_index=_node(root.schema_index),
        )
    except ValueError as error:
        raise CorruptObject(key, str(error)) from error
    reason = _refusal(root)
    if reason is not None:
        raise CorruptObject(key, reason)
    return backup


def parse_meta_file(ref: BackupFile, key: str, data: bytes) -> MetaFile:
    """Parse a MetaFile object that `ref` names. Raises CorruptObject, also if its SHA-256 differs."""
    check_sha256(ref, key, data)
    node = messages.parse("MetaFile", key, data, META_BYTES_MAX)
    try:
        return _node(node)
    except ValueError as error:
        raise CorruptObject(key, str(error)) from error


def check_sha256(ref: BackupFile, key: str, data: bytes | memoryview) -> None:
    """Check an object's bytes against the size and SHA-256 that the backup records. Raises CorruptObject."""
    if ref.size and ref.size != len(data):
        raise CorruptObject(key, f"has {len(data)} bytes; the backup records {ref.size}")
    if ref.sha256 and hashlib.sha256(data).digest() != ref.sha256:
        raise CorruptObject(key, f"fails its SHA-256 {ref.sha256.hex()}: it is damaged, or the backup is encrypted")


def sst_pairs(files: Iterable[BackupFile]) -> list[SstPair]:
    """Pair the `write` and `default` files of each region by their names. Returns the pairs in order of their start
    keys. Raises ValueError, with the file's name, for a file of an unknown column family, a `default` file without its
    `write` file, or two pairs that overlap."""
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


def _refusal(root: Any) -> str | None:
    """The first reason why the backup is not supported, as the text of an error, with what to do about it if that is
    known; None if it is supported."""
    version, since, end = root.version, root.start_version, root.end_version
    reasons = (
        (version not in KNOWN_VERSIONS, f"backupmeta version {version}; this program knows {KNOWN_VERSIONS}"),
        (not end, "is the backupmeta of a log backup (br log start), without an end_version: name a full backup"),
        (end > MAX_TS, f"its end_version {end} is not a TSO"),
        (root.is_raw_kv or root.is_txn_kv, "is a backup of raw or transactional keys: take one with `br backup full`"),
        (0 < since < end, f"is an incremental backup since {since}: take one without --lastbackupts"),
        (root.api_version == API_V2, "its keys have a keyspace prefix (API V2), which is not supported"),
    )
    return next((reason for wrong, reason in reasons if wrong), None)


def _node(node: Any) -> MetaFile:
    return MetaFile(_files(node.meta_files), _files(node.data_files), _schemas(node.schemas))


def _files(entries: Iterable[Any]) -> tuple[BackupFile, ...]:
    return tuple(map(_file, entries))


def _file(entry: Any) -> BackupFile:
    name, sha256, start, end = entry.name, entry.sha256, entry.start_key, entry.end_key
    if not _NAME.fullmatch(name) or any(part in (".", "..") for part in name.split("/")):
        raise ValueError(f"the file name {name[:80]!r} is not a relative path of plain names")
    if len(sha256) not in (0, 32):
        raise ValueError(f"file {name}: a SHA-256 of {len(sha256)} bytes")
    if end and start >= end:
        raise ValueError(f"file {name}: its start_key {shown_key(start)} is not below its end_key {shown_key(end)}")
    return BackupFile(name, sha256, start, end, entry.total_kvs, entry.cf, entry.size)


def _schemas(entries: Iterable[Any]) -> tuple[BackupSchema, ...]:
    return tuple(BackupSchema(entry.db, entry.table) for entry in entries)
