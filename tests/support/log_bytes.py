"""Log backups made by hand: slices, metadata, prefixes, byte by byte as TiKV writes them (docs/log-backup.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import zstandard

from tistream.format.br import messages
from tistream.logbackup import memcomparable
from tistream.storage.backends.memory import MemoryObjectStore

PUT, DELETE, LOCK, ROLLBACK = b"P", b"D", b"L", b"R"
Entry = tuple[bytes, int, bytes]  # raw key, ts, value


def varint(number: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def record(kind: bytes, start_ts: int, short: bytes | None = None, *, more: bytes = b"") -> bytes:
    """A write record; `more` are further options."""
    value = b"" if short is None else b"v" + bytes([len(short)]) + short
    return kind + varint(start_ts) + value + more


def row_key(table_id: int, handle: int) -> bytes:
    """The raw key of a row with an integer handle."""
    return b"t" + (table_id ^ 1 << 63).to_bytes(8, "big") + b"_r" + (handle ^ 1 << 63).to_bytes(8, "big")


def index_key(table_id: int, tail: bytes) -> bytes:
    """The raw key of an index entry."""
    return b"t" + (table_id ^ 1 << 63).to_bytes(8, "big") + b"_i" + tail


def framed(entries: Sequence[Entry]) -> bytes:
    """Encode entries as the unpacked bytes of a slice of a log backup."""
    out = bytearray()
    for key, ts, value in entries:
        versioned = memcomparable.versioned_key(key, ts)
        out += len(versioned).to_bytes(4, "little") + versioned + len(value).to_bytes(4, "little") + value
    return bytes(out)


def streamed(plain: bytes) -> bytes:
    """A zstd frame without a content size, as TiKV streams it."""
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(plain) + stream.flush()


@dataclass(frozen=True, slots=True)
class Part:
    """One slice to write. `changed` overrides fields of its DataFileInfo."""

    entries: Sequence[Entry]
    cf: str = "write"
    type: int = 1
    min_begin_ts: int = 1
    changed: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Log:
    """A log backup in memory. Each flush puts data, then metadata."""

    objects: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    flushes: int = 0

    def begin(self, **changed: Any) -> None:
        """`br log start`."""
        stated = {"cluster_id": 7, "cluster_version": "8.5.5", "start_version": 100, **changed}
        self.objects.put("backupmeta", messages.unparse("BackupMeta", stated))
        self.objects.put("backup.lock", b"")

    def flush(self, *parts: Part, store_id: int = 1, name: str | None = None, **changed: Any) -> str:
        """One flush of a store. Returns the name of its metadata; `changed` overrides fields of Metadata."""
        self.flushes += 1
        path = f"v1/20261120/14/{store_id}/{self.flushes}.log"
        body, infos = b"", []
        for part in parts:
            plain = framed(part.entries)
            stored = streamed(plain)
            times = [ts for _, ts, _ in part.entries]
            keys = sorted(memcomparable.versioned_key(key, ts) for key, ts, _ in part.entries)
            infos.append(
                {
                    "sha256": hashlib.sha256(plain).digest(),
                    "number_of_entries": len(part.entries),
                    "min_ts": min(times),
                    "max_ts": max(times),
                    "region_id": 1,
                    "start_key": keys[0],
                    "end_key": keys[-1],
                    "cf": part.cf,
                    "type": part.type,
                    "table_id": 5,
                    "length": len(plain),
                    "min_begin_ts_in_default_cf": part.min_begin_ts,
                    "range_offset": len(body),
                    "range_length": len(stored),
                    "compression_type": 3,
                    **part.changed,
                }
            )
            body += stored
        self.objects.put(path, body)
        group = {"path": path, "length": len(body), "data_files_info": infos}
        stated = {"store_id": store_id, "meta_version": 1, "file_groups": [group], **changed}
        name = name or f"{self.flushes:020d}-uuid.meta"
        self.objects.put(f"v1/backupmeta/{name}", messages.unparse("Metadata", stated))
        return name

    def restored(self, to_ts: int, from_ts: int, ids: Sequence[int], **changed: Any) -> str:
        """BR lists the tables of a restore that ran beside the log. Returns the name of the object; `changed` overrides
        fields of its message."""
        stated: dict[str, Any] = {"restore_commit_ts": to_ts, "restore_start_ts": from_ts, "rewrite_ts": 7}
        stated |= {"table_ids": list(ids), "db_ids": [2]} | changed
        order = ("restore_commit_ts", "restore_start_ts", "rewrite_ts")
        numbers = [*(stated[one] for one in order), *stated["table_ids"], *stated["db_ids"]]
        digest = hashlib.sha256(b"".join(one.to_bytes(8, "little") for one in numbers)).digest()
        name = f"R{to_ts:016X}_S{from_ts:016X}.meta"
        body = messages.unparse("LogRestoreTableIDsBlocklistFile", {"checksum": digest, **stated})
        self.objects.put(f"v1/log_restore_tables_blocklists/{name}", body)
        return name

    def checkpoint(self, ts: int, store_id: int = 1) -> None:
        """A store copies the checkpoint."""
        self.objects.put(f"v1/global_checkpoint/{store_id}.ts", ts.to_bytes(8, "little"))
