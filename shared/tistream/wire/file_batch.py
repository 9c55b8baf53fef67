"""The request with which a dispatcher sends new change files to a sorter: references to the files, and their watermark
rows, clipped to the span of each task.

The body of `POST /v1/files` is one Arrow IPC stream: a table of watermark rows (WATERMARKS) whose schema metadata holds
the JSON of the files under `tistream.files`. Changes themselves are not copied: for each task, a file lists the row
groups that may hold keys of the task's span. Every file of a store is sent to every task of its tenant, even if it
contains nothing for the task, because it advances the task's position in the store's chain.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tistream import arrow_ipc
from tistream.format.source_file import weight

CONTENT_TYPE = "application/vnd.apache.arrow.stream"

WATERMARKS = pa.schema(
    [
        pa.field("file", pa.int32(), nullable=False),  # index into FileBatch.files
        pa.field("task_id", pa.int64(), nullable=False),
        pa.field("start_key", pa.binary(), nullable=False),  # clipped to the task's span
        pa.field("end_key", pa.binary(), nullable=False),  # clipped; empty = +inf
        pa.field("region_id", pa.int64(), nullable=False),
        pa.field("region_version", pa.int64(), nullable=False),
        pa.field("first_index", pa.int64(), nullable=False),
        pa.field("log_index", pa.int64(), nullable=False),
        pa.field("base_ts", pa.int64()),
        pa.field("resolved_ts", pa.int64(), nullable=False),
        pa.field(
            "after",
            pa.list_(pa.struct([pa.field("region_id", pa.int64()), pa.field("log_index", pa.int64())])),
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class RowGroupRef:
    """One row group of changes in a change file: its byte range, the CRC-32 of its bytes, its lowest and highest key
    (both inclusive; None where the footer has no statistics), and its unpacked size in bytes according to the footer
    (0: unknown)."""

    index: int
    offset: int
    length: int
    rows: int
    crc32: int
    key_min: bytes | None = None
    key_max: bytes | None = None
    unpacked: int = 0

    @property
    def weight(self) -> int:
        """Approximate memory of the row group in a reader, in bytes."""
        return weight(self.length, self.unpacked)


@dataclass(frozen=True, slots=True)
class FileRef:
    """One change file. `row_groups` maps task_id to the indexes (into `groups`) of the row groups that may contain the
    task's keys.

    `chain_ts` is the ts of the first file of the file's chain. `footer_start` is the offset of the Parquet footer, so
    that a reader needs no further request to find it. `arrived_ms` is the time at which the dispatcher first saw the
    file.
    """

    cluster_id: str
    tenant_id: str
    store_id: int
    ts: int
    prev_ts: int
    chain_ts: int
    key: str
    size: int
    footer_start: int
    arrived_ms: int
    groups: tuple[RowGroupRef, ...]
    row_groups: dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Files of one tenant, each store's in chain order, with their clipped watermarks. `flushed_ts`: the lowest
    flushed_ts of all tasks of the tenant, up to which readers may have read; None if that of some task is unknown."""

    route_version: int
    files: tuple[FileRef, ...]
    watermarks: pa.Table
    flushed_ts: int | None = None


def encode(batch: FileBatch) -> bytes:
    """Encode a batch as a request body."""
    files = [
        {
            **{name: getattr(file, name) for name in _FILE_PLAIN},
            "groups": [_group_json(group) for group in file.groups],
            # A separate member, because older sorters do not accept longer `groups`.
            "unpacked": [group.unpacked for group in file.groups],
            "row_groups": {str(task): list(indexes) for task, indexes in file.row_groups.items()},
        }
        for file in batch.files
    ]
    header: dict[str, Any] = {"version": 1, "route_version": batch.route_version, "files": files}
    if batch.flushed_ts is not None:
        header["flushed_ts"] = batch.flushed_ts
    table = batch.watermarks.cast(WATERMARKS).replace_schema_metadata({"tistream.files": json.dumps(header)})
    return arrow_ipc.to_bytes(table)


def _group_json(group: RowGroupRef) -> list[Any]:
    bounds = [None if bound is None else bound.hex() for bound in (group.key_min, group.key_max)]
    return [group.index, group.offset, group.length, group.rows, group.crc32, *bounds]


def _groups(file: dict[str, Any]) -> tuple[RowGroupRef, ...]:
    unpacked = file.get("unpacked") or [0] * len(file["groups"])  # older dispatchers do not send it
    return tuple(_group(data, stated) for data, stated in zip(file["groups"], unpacked, strict=True))


def _group(data: list[Any], unpacked: int) -> RowGroupRef:
    index, offset, length, rows, crc32, *bounds = data
    key_min, key_max = (None if bound is None else bytes.fromhex(bound) for bound in bounds)
    return RowGroupRef(index, offset, length, rows, crc32, key_min, key_max, int(unpacked))


_FILE_PLAIN = (
    "cluster_id",
    "tenant_id",
    "store_id",
    "ts",
    "prev_ts",
    "chain_ts",
    "key",
    "size",
    "footer_start",
    "arrived_ms",
)


def decode(body: bytes) -> FileBatch:
    """Parse a request body. Raises ValueError if it is malformed."""
    try:
        return _decode(body)
    except (KeyError, TypeError, AttributeError, OSError, pa.ArrowException) as error:
        raise ValueError(f"not a file batch: {type(error).__name__}: {error}") from error


def _decode(body: bytes) -> FileBatch:
    table = arrow_ipc.from_bytes(body)
    header: dict[str, Any] = json.loads((table.schema.metadata or {})[b"tistream.files"])
    if header["version"] != 1:
        raise ValueError(f"file batch version {header['version']}")
    if table.schema.remove_metadata() != WATERMARKS:
        raise ValueError(f"watermark columns {table.schema.names}")
    files = tuple(
        FileRef(
            **{name: file[name] for name in _FILE_PLAIN},
            groups=_groups(file),
            row_groups={int(task): tuple(indexes) for task, indexes in file["row_groups"].items()},
        )
        for file in header["files"]
    )
    flushed_ts = header.get("flushed_ts")  # older dispatchers do not send it
    if flushed_ts is not None and (not isinstance(flushed_ts, int) or flushed_ts < 0):
        raise ValueError(f"flushed_ts {flushed_ts!r}")
    return FileBatch(header["route_version"], files, table.replace_schema_metadata(None), flushed_ts)
