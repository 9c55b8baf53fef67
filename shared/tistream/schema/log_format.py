"""Encodes and decodes the objects of the schema registry's log (docs/formats.md). The log consists of immutable
objects, numbered from 1 without a hole.

b"TSSL" | u32 LE version | u32 LE crc32 of the rest | zstd( JSON lines: one header, then one per record )

Object 1 is the snapshot: all its records have commit_ts = high_ts = snapshot_ts. Each further object has every record
of the window (low_ts, high_ts], where low_ts is the high_ts of the object before it. A *base* begins with records that
restate the whole log up to its base_ts, so that readers may begin there. A base has version 2, all others version 1.
If a record is a RestoredTables, the versions are 4 and 3: a program that does not know such records would serve tables
that lack rows, so it must refuse the object.
"""

from __future__ import annotations

import io
import struct
import zlib
from bisect import bisect_right
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import zstandard

from tistream.errors import CorruptObject
from tistream.model.ids import TenantKey
from tistream.schema import records
from tistream.schema.records import Record, RestoredTables

MAGIC = b"TSSL"
VERSION = 1
BASE_VERSION = 2
RESTORED = 2  # is added to the version if a record is a RestoredTables
_VERSIONS = (1, 2, 3, 4)
_BASES = (BASE_VERSION, BASE_VERSION + RESTORED)
_HEAD_BYTES = 12


@dataclass(frozen=True, slots=True)
class BaseHead:
    """What the header of a base has in addition to that of other objects.

    The first `restated` records all have commit_ts = base_ts and restate every record up to base_ts (base.py). The
    others are all records with base_ts < commit_ts <= high_ts, including those of earlier objects. `begin`: the number
    of records up to base_ts since the first object of the log, so that the numbers of the other records stay the same.
    `log_id`, `snapshot_ts`: the first object's nonce and high_ts.
    """

    base_ts: int
    restated: int
    begin: int
    log_id: str
    snapshot_ts: int


@dataclass(frozen=True, slots=True)
class LogObject:
    """One object of the schema log. `nonce` identifies the process that wrote it."""

    tenant: TenantKey
    number: int
    low_ts: int
    high_ts: int
    nonce: str
    records: tuple[Record, ...]
    base: BaseHead | None = None

    @property
    def new_records(self) -> tuple[Record, ...]:
        """The records with commit_ts in (low_ts, high_ts], which earlier objects of the log do not have."""
        if self.base is None:
            return self.records
        later = self.records[self.base.restated :]
        return later[bisect_right(later, self.low_ts, key=lambda record: record.commit_ts) :]


def encode(log: LogObject) -> bytes:
    """Encode an object of the log. Equal arguments give equal bytes."""
    header: dict[str, Any] = {
        "cluster_id": log.tenant.cluster_id,
        "tenant_id": log.tenant.tenant_id,
        "number": log.number,
        "low_ts": log.low_ts,
        "high_ts": log.high_ts,
        "nonce": log.nonce,
        "records": len(log.records),
    }
    if log.base is not None:
        header["base"] = asdict(log.base)
    version = VERSION if log.base is None else BASE_VERSION
    if any(isinstance(record.change, RestoredTables) for record in log.records):
        version += RESTORED
    lines = [orjson.dumps(header), *map(encode_record, log.records)]
    body = zstandard.compress(b"\n".join(lines), 3)
    return MAGIC + struct.pack("<II", version, zlib.crc32(body)) + body


def encode_record(record: Record) -> bytes:
    """Encode a record as a line of JSON."""
    return orjson.dumps(records.to_json(record))


def decode_record(line: bytes) -> Record:
    """Decode a line of JSON that `encode_record` encoded. Raises ValueError or KeyError."""
    return records.from_json(orjson.loads(line))


def _checked_version(key: str, data: bytes) -> int:
    if data[:4] != MAGIC or len(data) < _HEAD_BYTES:
        raise CorruptObject(key, "not a schema log object (bad magic)")
    version, crc = struct.unpack_from("<II", data, 4)
    if version not in _VERSIONS:
        raise CorruptObject(key, f"schema log version {version}; this program knows 1 to {_VERSIONS[-1]}")
    if zlib.crc32(data[_HEAD_BYTES:]) != crc:
        raise CorruptObject(key, "schema log object fails its CRC-32")
    return int(version)


def beginning(key: str, data: bytes) -> tuple[int, tuple[int, ...]]:
    """Read object 1 of the log or a base. Returns the tenant's snapshot_ts and the ids of its tables at that point,
    ascending. Only one record is in memory at a time. Raises CorruptObject."""
    version = _checked_version(key, data)
    try:
        with zstandard.ZstdDecompressor().stream_reader(data[_HEAD_BYTES:]) as stream:
            lines = iter(io.BufferedReader(stream))
            header = orjson.loads(next(lines))
            snapshot_ts = header["base"]["snapshot_ts"] if version in _BASES else header["high_ts"]
            parsed = (orjson.loads(line) for line in lines)
            ids = {record["table_id"] for record in parsed if record["kind"] == "table"}
    except (KeyError, TypeError, ValueError, StopIteration, zstandard.ZstdError) as error:
        raise CorruptObject(key, f"schema log object: {type(error).__name__}: {error}") from error
    return snapshot_ts, tuple(sorted(ids))


def decode(key: str, data: bytes) -> LogObject:
    """Decode the bytes of an object of the log. Raises CorruptObject with `key` and the reason."""
    version = _checked_version(key, data)
    try:
        first, *lines = zstandard.decompress(data[_HEAD_BYTES:]).split(b"\n")
        header = orjson.loads(first)
        log = LogObject(
            tenant=TenantKey(header["cluster_id"], header["tenant_id"]),
            number=header["number"],
            low_ts=header["low_ts"],
            high_ts=header["high_ts"],
            nonce=header["nonce"],
            records=tuple(map(decode_record, lines)),
            base=BaseHead(**header["base"]) if version in _BASES else None,
        )
    except (KeyError, TypeError, ValueError, zstandard.ZstdError) as error:
        raise CorruptObject(key, f"schema log object: {type(error).__name__}: {error}") from error
    if len(log.records) != header["records"]:
        raise CorruptObject(key, f"schema log object has {len(log.records)} of {header['records']} records")
    return log
