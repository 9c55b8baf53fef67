"""Reads the metadata of a BR full backup from the object store that the source's URL names."""

from __future__ import annotations

from collections.abc import Iterator

from tistream.errors import CorruptObject, InvalidRequest, NotFoundYet
from tistream.format.br.full_backup import (
    META_BYTES_MAX,
    META_DEPTH_MAX,
    NAME,
    BackupFile,
    BackupSchema,
    FullBackup,
    MetaFile,
    SstPair,
    parse_backup,
    parse_meta_file,
    sst_pairs,
)
from tistream.schema.tidb.backup_snapshot import schema_snap
from tistream.storage.object_store import ObjectStore


def open_backup(backup: ObjectStore) -> FullBackup:
    """Read and parse `backupmeta` from the store `backup`. Raises InvalidRequest if it does not exist, CorruptObject if
    it is not a full backup."""
    try:
        return parse_backup(NAME, _get(backup, NAME))
    except NotFoundYet:
        raise InvalidRequest(
            "there is no object `backupmeta` below the URL: BR writes it at the end of a backup"
        ) from None


def read_pairs(backup: ObjectStore, found: FullBackup) -> list[SstPair]:
    """Read which SST files the backup has. Returns them in pairs, in key order. Raises CorruptObject; NotFoundYet if a
    part of the metadata does not exist; Unavailable."""
    files: list[BackupFile] = [*found.inline.files]
    for node in _leaves(backup, found.file_index):
        files += node.files
    try:
        return sst_pairs(files)
    except ValueError as error:
        raise CorruptObject(NAME, str(error)) from error


def read_schema_snap(backup: ObjectStore, found: FullBackup) -> bytes:
    """Encode the backup's schemas as the bytes of a `schema_snap` object. Raises the errors of `read_pairs`."""
    schemas: list[BackupSchema] = [*found.inline.schemas]
    for node in _leaves(backup, found.schema_index):
        schemas += node.schemas
    return schema_snap(NAME, found.end_version, ((one.database, one.table) for one in schemas))


def _leaves(backup: ObjectStore, node: MetaFile, depth: int = 0) -> Iterator[MetaFile]:
    """Yield the MetaFile `node` and every MetaFile below it, which are read from the store."""
    yield node
    if node.children and depth >= META_DEPTH_MAX:
        raise CorruptObject(NAME, f"its index has more than {META_DEPTH_MAX} levels of MetaFiles")
    for ref in node.children:
        yield from _leaves(backup, parse_meta_file(ref, ref.name, _get(backup, ref.name)), depth + 1)


def _get(backup: ObjectStore, key: str) -> bytes:
    size = backup.head(key).size
    if size > META_BYTES_MAX:
        raise CorruptObject(key, f"has {size} bytes; no more than {META_BYTES_MAX} are read")
    return backup.get(key)
