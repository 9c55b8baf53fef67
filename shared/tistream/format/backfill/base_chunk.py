"""The base chunk, a Parquet file with all rows as of one ts that have their keys in a span (docs/backfill.md). Pure.

key binary, value binary, commit_ts int64 null          sorted by key, each key once
    tistream.base_version  1
    tistream.start_key, tistream.end_key                    the span, hexadecimal; an empty end_key is +infinity
    tistream.base_ts                                        the TSO as of which the rows are complete
    tistream.rows                                           their number
    tistream.row_group_crc32                                as in a change file
    tistream.cluster_id, tistream.tenant_id                 optional; they must be those of the key

Any program that can write to the object store may push chunks, so every reader checks them. No checksum covers the
footer. A reader finds a damaged footer because the rows do not agree with it: they must lie in the span, in order, in
the stated number.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tistream.errors import CorruptObject, InvariantBroken
from tistream.format import change_file as cf
from tistream.format.parquet_footer import NeedMore, ParquetFooter, read_footer
from tistream.format.sparse_file import SparseFile
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan, shown_key
from tistream.model.ts import MAX_TS

VERSION = "1"
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("commit_ts", pa.int64()),
    ]
)
UNKNOWN_TS = 1  # the commit_ts of a base run's row if its chunk does not state one; no real TSO is so low
FOOTER_BYTES_MAX = 4 << 20
GROUP_ROWS, GROUP_BYTES = 65_536, 8 << 20  # limits of a row group that this program writes
GROUP_ROWS_MAX, GROUP_BYTES_MAX = 4_194_304, 512 << 20  # limits of a row group that this program reads
ADDED_BYTES_MAX = 256 << 20

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")


@dataclass(frozen=True, slots=True)
class ChunkId:
    """The identity of a chunk, as its object key states it: the tenant, the backfill, and the chunk's number (>= 0) in
    it."""

    tenant: TenantKey
    backfill_id: str
    number: int


@dataclass(frozen=True, slots=True)
class BaseChunk:
    """The checked footer of a chunk. `tail` has the bytes that were read at the object's end; they include the
    footer."""

    key: str
    size: int
    id: ChunkId
    span: KeySpan
    base_ts: int
    rows: int
    groups: tuple[cf.ChangeRowGroup, ...]
    footer: ParquetFooter = field(repr=False, compare=False)
    tail: bytes = field(repr=False, compare=False)


def parse_footer(key: str, identity: ChunkId, tail: bytes, size: int) -> BaseChunk | NeedMore:
    """Parse a chunk's footer from the object's last bytes. Returns NeedMore if these are too few. Raises
    CorruptObject."""
    footer = read_footer(key, tail, size, FOOTER_BYTES_MAX)
    if isinstance(footer, NeedMore):
        return footer
    metadata = cf.footer_metadata(key, footer, "base_version")
    for name, wanted in (("cluster_id", identity.tenant.cluster_id), ("tenant_id", identity.tenant.tenant_id)):
        found = metadata.get(f"tistream.{name}", wanted)
        if found != wanted:
            raise CorruptObject(key, f"wrong identity: its footer says {name} {found[:80]!r}, its key {wanted!r}")
    span = _span(key, metadata)
    base_ts, rows = cf.footer_decimal(key, metadata, "base_ts"), cf.footer_decimal(key, metadata, "rows")
    if not 0 < base_ts <= MAX_TS:
        raise CorruptObject(key, f"tistream.base_ts {base_ts} is not a TSO")
    cf.check_columns(key, footer, SCHEMA)
    crcs = cf.footer_crcs(key, metadata, len(footer.groups))
    groups = []
    for index, (group, crc) in enumerate(zip(footer.groups, crcs, strict=True)):
        if group.rows > GROUP_ROWS_MAX or group.unpacked > GROUP_BYTES_MAX:
            has = f"row group {index} has {group.rows} rows of {group.unpacked} bytes"
            raise CorruptObject(key, f"{has}; no more than {GROUP_ROWS_MAX} of {GROUP_BYTES_MAX} are read")
        groups.append(cf.ChangeRowGroup(index, *group.range, group.rows, crc, None, None, group.unpacked))
    if sum(group.rows for group in groups) != rows:
        raise CorruptObject(key, f"tistream.rows is {rows}, but its row groups have {sum(g.rows for g in groups)} rows")
    return BaseChunk(key, size, identity, span, base_ts, rows, tuple(groups), footer, tail)


def read_group(chunk: BaseChunk, source: SparseFile, index: int, after: bytes | None = None) -> pa.Table:
    """Decode and check one row group. Returns a table with the columns of SCHEMA.

    `after` is the last key of the preceding row group, which this group's keys must follow; None for the first group.
    Raises CorruptObject for a wrong CRC, a null, a key outside of the span or out of order, or a commit_ts above
    base_ts.
    """
    key, group = chunk.key, chunk.groups[index]
    cf.check_group(key, group, chunk.footer, source)
    table = cf.decode_groups(
        key, chunk.footer, source, [index], None, ADDED_BYTES_MAX, GROUP_BYTES_MAX + ADDED_BYTES_MAX, SCHEMA
    ).combine_chunks()
    for name in ("key", "value"):
        if table.column(name).null_count:
            raise CorruptObject(key, f"row group {index}: column {name} holds nulls, which are not allowed")
    table = table.cast(SCHEMA)
    if not table.num_rows:
        return table
    keys = table.column("key").chunk(0)
    _check_order(chunk, index, keys, after)
    for found in (keys[0].as_py(), keys[-1].as_py()):
        if found not in chunk.span:
            start, end = shown_key(chunk.span.start), shown_key(chunk.span.end)
            raise CorruptObject(key, f"row group {index}: key {shown_key(found)} is not in [{start}, {end})")
    highest = pc.max(table.column("commit_ts")).as_py()
    if highest is not None and highest > chunk.base_ts:
        raise CorruptObject(key, f"row group {index}: commit_ts {highest} is above its base_ts {chunk.base_ts}")
    return table


def write_chunk(tables: Iterable[pa.Table], identity: ChunkId, span: KeySpan, base_ts: int) -> bytes:
    """Encode rows as a chunk. `tables` have the columns of SCHEMA, of any binary type, and the rows in key order. One
    table at a time is in memory. Raises InvariantBroken if a key is out of order or outside of the span."""
    sink = io.BytesIO()
    crcs: list[str] = []
    rows, after = 0, None
    with pq.ParquetWriter(
        sink,
        SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        column_encoding={"key": "DELTA_BYTE_ARRAY", "value": "PLAIN", "commit_ts": "PLAIN"},
        write_statistics=["key"],
        store_schema=False,
    ) as writer:
        written = sink.tell()
        for table in tables:
            for part in _parts(table.select(SCHEMA.names).cast(SCHEMA).combine_chunks()):
                after = _checked_last(part, span, after)
                writer.write_table(part, row_group_size=part.num_rows)
                crcs.append(f"{zlib.crc32(sink.getbuffer()[written:]):08x}")
                written, rows = sink.tell(), rows + part.num_rows
        metadata = {
            "base_version": VERSION,
            "cluster_id": identity.tenant.cluster_id,
            "tenant_id": identity.tenant.tenant_id,
            "start_key": span.start.hex(),
            "end_key": span.end.hex(),
            "base_ts": str(base_ts),
            "rows": str(rows),
            "row_group_crc32": ",".join(crcs),
        }
        writer.add_key_value_metadata({f"tistream.{name}": value for name, value in metadata.items()})
    return sink.getvalue()


def check_span(chunk: BaseChunk, planned: KeySpan) -> None:
    """Check that the chunk has the span that the plan gives to its number. Raises CorruptObject."""
    if chunk.span != planned:
        found = f"[{shown_key(chunk.span.start)}, {shown_key(chunk.span.end)})"
        wanted = f"[{shown_key(planned.start)}, {shown_key(planned.end)})"
        raise CorruptObject(chunk.key, f"its span {found} is not that of chunk {chunk.id.number} in the plan, {wanted}")


def _span(key: str, metadata: Mapping[str, str]) -> KeySpan:
    bounds = []
    for name in ("start_key", "end_key"):
        text = cf.footer_text(key, metadata, name)
        if not _HEX.fullmatch(text):
            raise CorruptObject(key, f"tistream.{name} {text[:40]!r} is not hexadecimal")
        bounds.append(bytes.fromhex(text))
    start, end = bounds
    if end and start >= end:
        raise CorruptObject(key, f"its start_key {shown_key(start)} is not below its end_key {shown_key(end)}")
    return KeySpan(start, end)


def _check_order(chunk: BaseChunk, index: int, keys: pa.Array, after: bytes | None) -> None:
    bad = _first_not_rising(keys, after)
    if bad is not None:
        raise CorruptObject(chunk.key, f"row group {index}: key {shown_key(bad)} is not above the key before it")


def _first_not_rising(keys: pa.Array, after: bytes | None) -> bytes | None:
    """The first key that is not above the key before it, or None. `after` is the key that comes before the first
    one."""
    first: bytes = keys[0].as_py()
    if after is not None and first <= after:
        return first
    at: int = pc.index(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1)), False).as_py()
    found: bytes | None = keys[at + 1].as_py() if at >= 0 else None
    return found


def _checked_last(part: pa.Table, span: KeySpan, after: bytes | None) -> bytes:
    """Check rows before they are written. Returns their last key. Raises InvariantBroken if a key is out of order or
    outside of the span."""
    keys = part.column("key").chunk(0)
    last: bytes = keys[-1].as_py()
    shown = f"[{shown_key(span.start)}, {shown_key(span.end)})"
    if (bad := _first_not_rising(keys, after)) is not None:
        raise InvariantBroken(28, f"a chunk of {shown}: key {shown_key(bad)} is not above the key before it")
    if keys[0].as_py() not in span or last not in span:
        raise InvariantBroken(28, f"a chunk of {shown} has a key outside of it")
    return last


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Cut a table into the tables of row groups, of at most GROUP_ROWS rows and about GROUP_BYTES bytes each."""
    bytes_each: int = max(1, table.nbytes // max(1, table.num_rows))
    rows = max(1, min(GROUP_ROWS, GROUP_BYTES // bytes_each))
    return (table.slice(at, rows).combine_chunks() for at in range(0, table.num_rows, rows))
