"""Encodes log ranges as change files by the push contract (design.md 2). Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tistream.format.change_file import SCHEMA, VERSION, WATERMARK
from tistream.model.ids import TenantKey
from tistream_upstream.tikv.regions import Entry, Range

_DICTIONARY = ["type", "op_type", "region_id", "region_version", "log_index", "start_ts", "commit_ts", "txn_source"]
_STATISTICS = ["key"]
_ENTRY_BYTES = 48  # size of an entry besides its key and values


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Maximum size of a row group of changes."""

    rows: int = 65_536
    bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Tenant and store of a file, and the ts of the previous file (0: a new chain)."""

    tenant: TenantKey
    store_id: int
    prev_ts: int


class _Sink:
    """A file in memory for the Parquet writer. The bytes of a row group are final once it is written."""

    closed = False

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: Any) -> int:
        self.data += data
        return len(data)

    def tell(self) -> int:
        return len(self.data)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def encode(identity: FileIdentity, ranges: Sequence[Range], limits: GroupLimits) -> bytes:
    """The bytes of a change file: the entries of all ranges, by region in log order, then their watermarks."""
    order: dict[int, int] = {}
    for one in ranges:
        order.setdefault(one.region_id, len(order))
    by_region = sorted(ranges, key=lambda one: order[one.region_id])  # the sort is stable, so log order is kept
    sink = _Sink()
    crcs: list[int] = []
    with pq.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=_DICTIONARY,
        write_statistics=_STATISTICS,
        store_schema=False,
    ) as writer:
        for table in [*_change_groups(by_region, limits), _watermarks(by_region)]:
            start = len(sink.data)
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            crcs.append(zlib.crc32(memoryview(sink.data)[start:]))
        writer.add_key_value_metadata(_metadata(identity, crcs))
    return bytes(sink.data)


def _metadata(identity: FileIdentity, crcs: Sequence[int]) -> dict[str, str]:
    return {
        "tistream.version": VERSION,
        "tistream.cluster_id": identity.tenant.cluster_id,
        "tistream.tenant_id": identity.tenant.tenant_id,
        "tistream.store_id": str(identity.store_id),
        "tistream.prev_ts": str(identity.prev_ts),
        "tistream.first_watermark_row_group": str(len(crcs) - 1),
        "tistream.old_value": "1",
        "tistream.row_group_crc32": ",".join(f"{crc:08x}" for crc in crcs),
    }


def _change_groups(ranges: Sequence[Range], limits: GroupLimits) -> Iterator[pa.Table]:
    """Row groups within the limits. A group may have entries of several regions, and a region several groups."""
    pieces: list[tuple[Range, Sequence[Entry]]] = []
    rows = size = 0
    for one in ranges:
        entries = iter(one.entries)
        while True:
            piece: list[Entry] = []
            for entry in islice(entries, limits.rows - rows):
                piece.append(entry)
                size += _ENTRY_BYTES + len(entry.key) + len(entry.value or b"") + len(entry.old_value or b"")
                if size >= limits.bytes:
                    break
            if not piece:
                break
            pieces.append((one, piece))
            rows += len(piece)
            if rows >= limits.rows or size >= limits.bytes:
                yield _changes(pieces)
                pieces, rows, size = [], 0, 0
    if pieces:
        yield _changes(pieces)


def _changes(pieces: Sequence[tuple[Range, Sequence[Entry]]]) -> pa.Table:
    entries = [entry for _, piece in pieces for entry in piece]
    columns: dict[str, Any] = dict(zip(Entry._fields, zip(*entries, strict=True), strict=True))
    columns["region_id"] = [one.region_id for one, piece in pieces for _ in piece]
    columns["region_version"] = [one.version for one, piece in pieces for _ in piece]
    return _table(columns, len(entries))


def _watermarks(ranges: Sequence[Range]) -> pa.Table:
    count = len(ranges)
    columns: dict[str, Any] = {
        "type": [WATERMARK] * count,
        "op_type": [0] * count,
        "region_id": [one.region_id for one in ranges],
        "region_version": [one.version for one in ranges],
        "log_index": [one.last for one in ranges],
        "key": [one.span.start for one in ranges],
        "end_key": [one.span.end for one in ranges],
        "first_index": [one.first for one in ranges],
        "base_ts": [one.base_ts for one in ranges],
        "resolved_ts": [one.resolved_ts for one in ranges],
        "after": [[{"region_id": r, "log_index": i} for r, i in one.after] or None for one in ranges],
    }
    return _table(columns, count)


def _table(columns: dict[str, Any], rows: int) -> pa.Table:
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
