"""Parses the objects below a log backup's prefix that are neither data nor metadata: `backupmeta`, the checkpoints, the
safe point, and the marks of restores."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tistream.errors import CorruptObject, SourceRefused
from tistream.format.br import messages
from tistream.model.ts import MAX_TS
from tistream.schema.records import RestoredTables

BACKUPMETA, BACKUP_LOCK = "backupmeta", "backup.lock"
CHECKPOINTS, METAS, MIGRATIONS = "v1/global_checkpoint/", "v1/backupmeta/", "v1/migrations/"
SAFE_POINT = "v1_stream_trancate_safepoint.txt"  # TiDB's own spelling
RESTORES = "v1/log_restore_tables_blocklists/"
RESTORE_BYTES_MAX = 4 << 20
TOO_OLD = (6, 5, 0)  # tikv/tikv#14099: up to this version, a checkpoint can be too high

_VERSION = re.compile(r'"?v?([0-9]+)\.([0-9]+)\.([0-9]+)')
_CHECKPOINT = re.compile(r"v1/global_checkpoint/([0-9]{1,20})\.ts")
_RESTORE = re.compile(r"R([0-9A-Fa-f]{16})_S[0-9A-Fa-f]{16}\.meta")
_DECIMAL = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class LogBackup:
    """The content of `backupmeta`: the upstream cluster, its version, and the ts at which the log began (`br log
    truncate` may have cut it since)."""

    cluster_id: int
    cluster_version: str
    start_ts: int


def parse_backupmeta(data: bytes) -> LogBackup:
    """Parse the `backupmeta` of a prefix.

    Raises:
        CorruptObject: it is damaged.
        SourceRefused: the prefix holds a full backup, or a log whose checkpoint cannot be relied on.
    """
    found = messages.parse("BackupMeta", BACKUPMETA, data)
    if found.end_version > 0:
        raise SourceRefused(
            f"the prefix holds a full backup (end_version {found.end_version}), not a log: name the prefix that "
            "`br log start` was given"
        )
    version = _VERSION.match(found.cluster_version)
    if version is None:
        raise SourceRefused(f"backupmeta: cluster_version {found.cluster_version[:40]!r} is not of the form 8.5.0")
    if tuple(map(int, version.groups())) <= TOO_OLD:
        raise SourceRefused(
            f"the log is written by TiKV {found.cluster_version[:40]}, whose checkpoint can be too high "
            "(tikv/tikv#14099): upgrade to 7.5.7 or newer, and start a new log backup"
        )
    if not 0 < found.start_version <= MAX_TS:
        raise SourceRefused(f"backupmeta: start_version {found.start_version} is not a timestamp")
    return LogBackup(found.cluster_id, found.cluster_version, found.start_version)


def store_of_checkpoint(key: str) -> int | None:
    """The store id in the key of a checkpoint object; None for any other key."""
    found = _CHECKPOINT.fullmatch(key)
    return None if found is None else int(found[1])


def parse_checkpoint(key: str, data: bytes) -> int:
    """The ts in `v1/global_checkpoint/{store}.ts`: 8 bytes, little-endian. Raises CorruptObject."""
    if len(data) != 8:
        raise CorruptObject(key, f"a checkpoint has 8 bytes, not {len(data)}")
    ts = int.from_bytes(data, "little")
    if ts > MAX_TS:
        raise CorruptObject(key, f"checkpoint {ts} is not a timestamp")
    return ts


def global_checkpoint(checkpoints: Mapping[int, int]) -> int:
    """The watermark of the whole log. `checkpoints` has the checkpoint that each store has written. Each store copies
    the global checkpoint, at different times, so the highest one is returned; 0 without checkpoints."""
    return max(checkpoints.values(), default=0)


def parse_safe_point(data: bytes) -> int:
    """Parse the ts below which data may be gone (`br log truncate`). Raises CorruptObject."""
    try:
        text = data.decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise CorruptObject(SAFE_POINT, "is not decimal text") from error
    if not _DECIMAL.fullmatch(text) or int(text) > MAX_TS:
        raise CorruptObject(SAFE_POINT, f"{text[:40]!r} is not a decimal timestamp")
    return int(text)


def restore_commit_ts(name: str) -> int | None:
    """Parse the name of an object below RESTORES, which BR leaves there after a restore. Returns the ts at which the
    restore ended: no row that it wrote has a higher commit_ts. Returns None if the name has another form."""
    found = _RESTORE.fullmatch(name)
    return None if found is None else int(found[1], 16)


def parse_restored(name: str, data: bytes) -> RestoredTables:
    """Parse the object below RESTORES in which BR lists the tables of a restore that ran beside the log backup. Raises
    CorruptObject."""
    key, message = RESTORES + name, "LogRestoreTableIDsBlocklistFile"
    found = messages.parse(message, key, data, RESTORE_BYTES_MAX)
    numbers = (found.restore_commit_ts, found.restore_start_ts, found.rewrite_ts, *found.table_ids, *found.db_ids)
    if hashlib.sha256(b"".join(one.to_bytes(8, "little") for one in numbers)).digest() != found.checksum:
        raise CorruptObject(key, "fails its SHA-256, or a version of BR wrote it that is not known here")
    from_ts, to_ts = found.restore_start_ts, found.restore_commit_ts
    if not 0 < from_ts <= to_ts <= MAX_TS or to_ts != restore_commit_ts(name):
        raise CorruptObject(key, f"names a restore from {from_ts} to {to_ts}")
    if max(found.table_ids, default=0) > MAX_TS:
        raise CorruptObject(key, "has a table id of more than 63 bits")
    return RestoredTables(name, from_ts, to_ts, tuple(sorted(set(found.table_ids))))
