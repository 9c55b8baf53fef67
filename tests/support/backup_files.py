"""Writes what `br backup full` leaves in a bucket: backupmeta, MetaFiles and SST files in TiKV's layout."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tistream.schema.tidb.meta_key import encode_bytes

SHORT_VALUE_MAX = 255


def varint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(tag: int, value: int) -> bytes:
    """An integer field; absent if 0, as proto3 writes it."""
    return varint(tag << 3) + varint(value) if value else b""


def text(tag: int, value: bytes | str) -> bytes:
    """A bytes, string or message field; absent if empty."""
    body = value.encode() if isinstance(value, str) else value
    return varint(tag << 3 | 2) + varint(len(body)) + body if body else b""


def nested(tag: int, value: bytes) -> bytes:
    """A message field, also an empty one."""
    return varint(tag << 3 | 2) + varint(len(value)) + value


def file_message(
    name: str, body: bytes, start: bytes = b"", end: bytes = b"", *, cf: str = "", kvs: int = 0, iv: bytes = b""
) -> bytes:
    """A brpb.File."""
    digest = hashlib.sha256(body).digest()
    return (
        b"".join((text(1, name), text(2, digest), text(3, start), text(4, end), number(8, kvs), text(10, cf)))
        + number(11, len(body))
        + text(12, iv)
    )


def schema_message(database: Mapping[str, Any], table: Mapping[str, Any] | None) -> bytes:
    """A brpb.Schema."""
    return text(1, json.dumps(database)) + (text(2, json.dumps(table)) if table is not None else b"")


@dataclass
class Backup:
    """A full backup that is being written: `objects` is the bucket below its prefix."""

    end_version: int
    cluster_id: int = 7
    version: int = 1
    objects: dict[str, bytes] = field(default_factory=dict)
    files: list[bytes] = field(default_factory=list)
    schemas: list[bytes] = field(default_factory=list)

    def region(self, stem: str, start: bytes, end: bytes, rows: Iterable[tuple[bytes, int, int, bytes]]) -> None:
        """Add the SST files of one region: rows (raw key, start_ts, commit_ts, value), ordered by key."""
        write, default = [], []
        for key, start_ts, commit_ts, value in rows:
            prefix = b"z" + encode_bytes(key)
            record = b"P" + varint(start_ts)
            if len(value) <= SHORT_VALUE_MAX:
                record += b"v" + bytes((len(value),)) + value
            else:
                default.append((prefix + descending(start_ts), value))
            write.append((prefix + descending(commit_ts), record))
        for cf, entries, kvs in (("default", default, len(default)), ("write", write, len(write) - len(default))):
            if entries:
                name = f"{stem}_{cf}.sst"
                self.objects[name] = body = sst(entries)
                # TiKV sets cipher_iv whether it encrypts or not.
                self.files.append(file_message(name, body, start, end, cf=cf, kvs=kvs, iv=b"\x07" * 16))

    def schema(self, database: Mapping[str, Any], table: Mapping[str, Any] | None) -> None:
        """Add a table, or a database without tables."""
        self.schemas.append(schema_message(database, table))

    def finish(self, **more: bytes) -> dict[str, bytes]:
        """The whole bucket: `backupmeta` is written last. `more`: fields that are appended to it."""
        head = number(1, self.cluster_id) + text(2, '"8.5.4"\n') + number(6, self.end_version)
        if self.version == 0:
            body = head + b"".join(nested(4, file) for file in self.files)
            body += b"".join(nested(7, schema) for schema in self.schemas)
        else:
            body = head + number(12, self.version)
            for tag, name, entry, entries in (
                (13, "backupmeta.datafile.000000001", 2, self.files),
                (14, "backupmeta.schema.000000002", 3, self.schemas),
            ):
                self.objects[name] = leaf = b"".join(nested(entry, one) for one in entries)
                body += nested(tag, nested(1, file_message(name, leaf)))
        self.objects["backupmeta"] = body + b"".join(more.values())
        return self.objects


def descending(ts: int) -> bytes:
    """The eight timestamp bytes of a versioned key."""
    return (~ts & (1 << 64) - 1).to_bytes(8, "big")


def sst(entries: Sequence[tuple[bytes, bytes]], options: Any = None) -> bytes:
    """An SST file as RocksDB writes it, by default in the form of TiKV; keys must ascend."""
    from rocksdict import SstFileWriter

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "out.sst")
        writer = SstFileWriter(options or sst_options())
        writer.open(path)
        for key, value in entries:
            writer[key] = value
        writer.finish()
        return Path(path).read_bytes()


def sst_options(version: int = 2, block_bytes: int = 64 << 10, compression: str = "zstd", **more: int) -> Any:
    """Options of RocksDB: by default those of TiKV's backups. `more`: settings of BlockBasedOptions, by name."""
    import rocksdict

    table = rocksdict.BlockBasedOptions()
    table.set_format_version(version)
    table.set_block_size(block_bytes)
    for name, value in more.items():
        getattr(table, f"set_{name}")(value)
    options = rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(getattr(rocksdict.DBCompressionType, compression)())
    return options
