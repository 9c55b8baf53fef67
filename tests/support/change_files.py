"""Writing push-contract change files (design.md 2): whole ones from rows, and altered or damaged copies."""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("type", pa.int32()),
        ("op_type", pa.int32()),
        ("region_id", pa.int64()),
        ("region_version", pa.int64()),
        ("log_index", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("old_value", pa.binary()),
        ("start_ts", pa.int64()),
        ("commit_ts", pa.int64()),
        ("txn_source", pa.int64()),
        ("generation", pa.int64()),
        ("end_key", pa.binary()),
        ("first_index", pa.int64()),
        ("base_ts", pa.int64()),
        ("resolved_ts", pa.int64()),
        ("after", pa.list_(pa.struct([("region_id", pa.int64()), ("log_index", pa.int64())]))),
    ]
)

CRC = "tistream.row_group_crc32"
Row = Mapping[str, Any]


def change_file(
    cluster_id: str,
    tenant_id: str,
    store_id: int,
    prev_ts: int,
    *,
    changes: Sequence[Row],
    watermarks: Sequence[Row],
    rows_per_group: int = 65_536,
) -> bytes:
    """A file of `changes` followed by `watermarks`; rows as dictionaries of SCHEMA's columns, absent ones null."""
    groups = [table(changes[at : at + rows_per_group]) for at in range(0, len(changes), rows_per_group)]
    metadata = {
        "tistream.version": "1",
        "tistream.cluster_id": cluster_id,
        "tistream.tenant_id": tenant_id,
        "tistream.store_id": str(store_id),
        "tistream.prev_ts": str(prev_ts),
        "tistream.first_watermark_row_group": str(len(groups)),
        "tistream.old_value": "1",
    }
    return encode([*groups, table(watermarks)], metadata)


def table(rows: Sequence[Row]) -> pa.Table:
    """Rows as one table of SCHEMA."""
    return pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names} for row in rows], schema=SCHEMA)


def encode(groups: Sequence[pa.Table], metadata: Mapping[str, str]) -> bytes:
    """The row groups as one Parquet file with this footer metadata; the CRCs are added unless `metadata` has them."""
    sink, crcs = io.BytesIO(), list[str]()
    with pq.ParquetWriter(sink, groups[0].schema, compression="zstd", store_schema=False) as writer:
        start = sink.tell()
        for group in groups:
            writer.write_table(group, row_group_size=max(1, group.num_rows))
            crcs.append(f"{zlib.crc32(sink.getbuffer()[start:]):08x}")
            start = sink.tell()
        writer.add_key_value_metadata(dict(metadata) if CRC in metadata else {**metadata, CRC: ",".join(crcs)})
    return sink.getvalue()


def row_group_ranges(data: bytes) -> list[tuple[int, int]]:
    """[start, end) of each row group: from its first page to its last."""
    parquet = pq.read_metadata(io.BytesIO(data))
    ranges = []
    for index in range(parquet.num_row_groups):
        group = parquet.row_group(index)
        columns = [group.column(c) for c in range(group.num_columns)]
        starts = [
            c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset for c in columns if c.num_values
        ]
        ends = [start + c.total_compressed_size for start, c in zip(starts, columns, strict=True)]
        ranges.append((min(starts), max(ends)))
    return ranges


def row_group_crcs(data: bytes) -> list[int]:
    """CRC-32 of each row group's bytes."""
    return [zlib.crc32(data[start:end]) for start, end in row_group_ranges(data)]


def metadata_of(data: bytes) -> dict[str, str]:
    """The footer's `tistream.` metadata."""
    pairs = pq.read_metadata(io.BytesIO(data)).metadata or {}
    return {name.decode(): value.decode() for name, value in pairs.items() if name.startswith(b"tistream.")}


def groups_of(data: bytes) -> list[pa.Table]:
    """Each row group as a table."""
    file = pq.ParquetFile(io.BytesIO(data))
    return [file.read_row_group(index) for index in range(file.num_row_groups)]


def restated(data: bytes, **changes: str) -> bytes:
    """A copy with other values of `tistream.<name>`, which must be there: all else stays byte for byte.

    In the footer's Thrift a value is a field header (0x18), a length below 128 and the text; only the footer's own
    length at the end of the file depends on it.
    """
    length = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - length], data[-8 - length : -8]
    old = metadata_of(data)
    for name, value in changes.items():
        before, after = old[f"tistream.{name}"].encode(), value.encode()
        assert len(before) < 128
        assert len(after) < 128
        head = f"tistream.{name}".encode() + b"\x18"
        assert footer.count(head + bytes([len(before)]) + before) == 1
        footer = footer.replace(head + bytes([len(before)]) + before, head + bytes([len(after)]) + after)
    return body + footer + len(footer).to_bytes(4, "little") + data[-4:]


def with_metadata(data: bytes, **changes: str | None) -> bytes:
    """A sound file with the same rows, written anew, and `tistream.<name>` set, or removed (None)."""
    metadata = {name: value for name, value in metadata_of(data).items() if name != CRC}
    for name, value in changes.items():
        metadata.pop(f"tistream.{name}", None)
        if value is not None:
            metadata[f"tistream.{name}"] = value
    return encode(groups_of(data), metadata)


def truncated(data: bytes, keep: float = 0.5) -> bytes:
    """The first part of the file, as an upload that was cut off leaves it."""
    return data[: int(len(data) * keep)]


def flipped(data: bytes, at: int) -> bytes:
    """The file with one bit flipped."""
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def flipped_change_group(data: bytes) -> bytes:
    """A bit flipped in the middle of the first row group of changes."""
    assert int(metadata_of(data)["tistream.first_watermark_row_group"]) > 0, "the file has no changes"
    start, end = row_group_ranges(data)[0]
    return flipped(data, (start + end) // 2)


def flipped_watermark_group(data: bytes) -> bytes:
    """A bit flipped in the middle of the last row group."""
    start, end = row_group_ranges(data)[-1]
    return flipped(data, (start + end) // 2)


def flipped_footer(data: bytes) -> bytes:
    """A bit flipped at the start of the footer's Thrift, where it breaks the structure and not just a statistic."""
    return flipped(data, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
