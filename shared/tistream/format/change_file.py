"""Parses the change file of the push contract (design.md 2), a Parquet file of changes followed by watermarks. Pure.

This module checks footers, and `change_rows` checks rows. Row groups are read by byte range, and only after their
CRC-32 was checked, because Parquet readers do not check it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tistream.errors import CorruptObject
from tistream.format import unpacking, watermark_size
from tistream.format.parquet_footer import NeedMore, ParquetFooter, RowGroup, read_footer
from tistream.format.sparse_file import SparseFile
from tistream.model import keyspace
from tistream.model.ids import TenantKey

VERSION = "1"
PREWRITE, COMMIT, ROLLBACK, COMMITTED, WATERMARK = 1, 2, 3, 4, 100
OP_NONE, OP_PUT, OP_DELETE = 0, 1, 2

AFTER = pa.list_(pa.struct([pa.field("region_id", pa.int64()), pa.field("log_index", pa.int64())]))
SCHEMA = pa.schema(
    [
        pa.field("type", pa.int32(), nullable=False),  # 1 PREWRITE, 2 COMMIT, 3 ROLLBACK, 4 COMMITTED, 100 WATERMARK
        pa.field("op_type", pa.int32(), nullable=False),  # 1 PUT, 2 DELETE; 0 if it has no meaning, as in a watermark
        pa.field("region_id", pa.int64(), nullable=False),  # the region that logged the entry; a watermark's region
        pa.field("region_version", pa.int64(), nullable=False),  # version of the region's epoch
        pa.field("log_index", pa.int64()),  # entry's index in the region's Raft log; a watermark's last index covered
        pa.field("key", pa.binary(), nullable=False),  # raw, without a timestamp; start key of a watermark's region
        pa.field("value", pa.binary()),  # of PREWRITE and COMMITTED
        pa.field("old_value", pa.binary()),  # of PREWRITE and COMMITTED
        pa.field("start_ts", pa.int64()),  # of the transaction
        pa.field("commit_ts", pa.int64()),  # of the transaction
        pa.field("txn_source", pa.int64()),  # TiDB's bits of the same name
        pa.field(
            "generation", pa.int64()
        ),  # flush number of a pipelined transaction, from 1; the highest of a (key, start_ts) wins
        pa.field("end_key", pa.binary()),  # of a watermark: end key of the region; empty: +infinity
        pa.field("first_index", pa.int64()),  # of a watermark: first index covered; `log_index + 1` for an empty range
        pa.field("base_ts", pa.int64()),  # of a watermark: set after a scan (design.md 2)
        pa.field("resolved_ts", pa.int64()),  # of a watermark: no commit at or below it will follow
        pa.field("after", AFTER),  # of a watermark, after a split or merge: the logs that this one continues
    ]
)
EXPIRE = pa.field("expire_ts", pa.int64())  # of COMMITTED of RawKV: seconds of Unix time; null or 0: it does not expire
RAW_SCHEMA = SCHEMA.append(EXPIRE)  # of files of tenants of RawKV; older readers ignore the column
CHANGE_COLUMNS = tuple(SCHEMA.names[:12])
WATERMARK_COLUMNS = ("type", "region_id", "region_version", "log_index", "key", *SCHEMA.names[12:])

# Limits of the memory that one file can make a reader use: a few bytes can encode any number of equal rows.
FOOTER_BYTES_MAX = 4 << 20  # about 2,500 row groups
WATERMARK_ROWS_MAX = 1_000_000  # per file; each region of the store has one or few
GROUP_ROWS_MAX = 16_000_000  # of changes, 250 times the recommended size
GROUP_BYTES_MAX = 2 << 30  # unpacked

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")
_HEX = re.compile(r"[0-9a-fA-F]{8}")


class RowGroupLike(Protocol):
    """The members of a row group that a reader needs. ChangeRowGroup has them, and so have the references to row groups
    that other processes send."""

    @property
    def index(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def crc32(self) -> int: ...
    @property
    def key_min(self) -> bytes | None: ...
    @property
    def key_max(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class ChangeRowGroup:
    """One row group: the bytes `[offset, offset + length)` of the file, their CRC-32, and bounds of the keys.

    The bounds are inclusive. They need not be keys of the row group, because writers shorten them. They are None if the
    file has no statistics. `unpacked` is the unpacked size that the footer states, in bytes.
    """

    index: int
    offset: int
    length: int
    rows: int
    crc32: int
    key_min: bytes | None
    key_max: bytes | None
    unpacked: int


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A change file whose footer was checked. `tail` has the bytes that were read at the object's end; they include the
    footer."""

    key: str
    size: int
    tenant: TenantKey
    store_id: int
    ts: int
    prev_ts: int
    footer_start: int
    groups: tuple[ChangeRowGroup, ...]
    first_watermark_row_group: int
    footer: ParquetFooter = field(repr=False, compare=False)
    tail: bytes = field(repr=False, compare=False)

    @property
    def change_groups(self) -> tuple[ChangeRowGroup, ...]:
        return self.groups[: self.first_watermark_row_group]

    @property
    def watermark_groups(self) -> tuple[ChangeRowGroup, ...]:
        return self.groups[self.first_watermark_row_group :]


def parse_footer(key: str, identity: tuple[TenantKey, int, int], tail: bytes, size: int) -> ChangeFile | NeedMore:
    """Parse a change file's footer from the object's last bytes.

    Args:
        key: the object's key, for errors.
        identity: (tenant, store_id, ts) of the key (`layout.parse_change_file`).
        tail: any number of the object's last bytes. If they are too few, NeedMore is returned.
        size: the object's size in bytes.

    Raises:
        CorruptObject: the footer is damaged or breaks the push contract.
    """
    footer = read_footer(key, tail, size, FOOTER_BYTES_MAX)
    if isinstance(footer, NeedMore):
        return footer
    tenant, store_id, ts = identity
    metadata = footer_metadata(key, footer)
    _check_identity(key, metadata, tenant, store_id)
    prev_ts = footer_decimal(key, metadata, "prev_ts")
    if prev_ts >= ts:
        raise CorruptObject(key, f"tistream.prev_ts {prev_ts} is not below its own ts {ts}")
    first_watermark, count = footer_decimal(key, metadata, "first_watermark_row_group"), len(footer.groups)
    if first_watermark > count:
        raise CorruptObject(key, f"first_watermark_row_group {first_watermark} of only {count} row groups")
    check_columns(key, footer)
    crcs = footer_crcs(key, metadata, count)
    groups = tuple(_group(key, index, footer.groups[index], crc) for index, crc in enumerate(crcs))
    _check_keyspaces(key, groups[:first_watermark])
    watermarks = sum(group.rows for group in groups[first_watermark:])
    if watermarks > WATERMARK_ROWS_MAX:
        raise CorruptObject(key, f"{watermarks} watermark rows; no more than {WATERMARK_ROWS_MAX} are read")
    stated = watermark_size.stated_bytes(footer.groups[first_watermark:])
    if stated > watermark_size.BYTES_MAX:
        raise CorruptObject(
            key, f"its watermarks take {stated} bytes; no more than {watermark_size.BYTES_MAX} are read"
        )
    return ChangeFile(key, size, tenant, store_id, ts, prev_ts, footer.start, groups, first_watermark, footer, tail)


def _check_keyspaces(key: str, groups: Sequence[ChangeRowGroup]) -> None:
    """Check that no row group of changes has a key bound with the prefix of a keyspace. The rows themselves are checked
    in change_rows. Watermarks may have keys of any keyspace."""
    for bound in (bound for group in groups for bound in (group.key_min, group.key_max)):
        if bound is not None and (reason := keyspace.refusal(bound)) is not None:
            raise CorruptObject(key, reason)


def _group(key: str, index: int, group: RowGroup, crc32: int) -> ChangeRowGroup:
    low, high = key_bounds(group)
    if low is not None and high is not None and low > high:
        raise CorruptObject(key, f"row group {index}: its lowest key is above its highest")
    if group.rows > GROUP_ROWS_MAX:
        raise CorruptObject(key, f"row group {index}: {group.rows} rows; no more than {GROUP_ROWS_MAX} are read")
    if group.unpacked > GROUP_BYTES_MAX:
        raise CorruptObject(
            key, f"row group {index}: unpacks to {group.unpacked} bytes; no more than {GROUP_BYTES_MAX} are read"
        )
    return ChangeRowGroup(index, *group.range, group.rows, crc32, low, high, group.unpacked)


def key_bounds(group: RowGroup) -> tuple[bytes | None, bytes | None]:
    """Read the lowest and highest key of a row group from its statistics; (None, None) without statistics."""
    for chunk in group.chunks:
        if chunk.column == "key":
            return chunk.low, chunk.high
    return None, None


def footer_metadata(key: str, footer: ParquetFooter, version_name: str = "version") -> dict[str, str]:
    """The footer's key-value metadata as text. Raises CorruptObject if the version in `tistream.{version_name}` is
    unknown."""
    try:
        metadata = {name.decode(): text.decode() for name, text in footer.key_values.items()}
    except UnicodeDecodeError as error:
        raise CorruptObject(key, "its footer metadata is not UTF-8") from error
    version = footer_text(key, metadata, version_name)
    if version != VERSION:
        raise CorruptObject(key, f"push contract {version_name} {version[:20]!r}; this program knows {VERSION}")
    return metadata


def _check_identity(key: str, metadata: Mapping[str, str], tenant: TenantKey, store_id: int) -> None:
    expected = {"cluster_id": tenant.cluster_id, "tenant_id": tenant.tenant_id, "store_id": str(store_id)}
    for name, value in expected.items():
        found = footer_text(key, metadata, name)
        if found != value:
            raise CorruptObject(key, f"wrong identity: its footer says {name} {found[:80]!r}, its key {value!r}")
    old_value = footer_text(key, metadata, "old_value")
    if old_value != "1":
        raise CorruptObject(key, f"tistream.old_value is {old_value[:20]!r}; version 1 knows '1' only")


def footer_crcs(key: str, metadata: Mapping[str, str], count: int) -> list[int]:
    """Parse the metadata `tistream.row_group_crc32`. Returns one CRC-32 for each of `count` row groups. Raises
    CorruptObject."""
    text = footer_text(key, metadata, "row_group_crc32")
    parts = text.split(",") if text else []
    if len(parts) != count:
        raise CorruptObject(key, f"tistream.row_group_crc32 has {len(parts)} entries for {count} row groups")
    for part in parts:
        if not _HEX.fullmatch(part):
            raise CorruptObject(key, f"tistream.row_group_crc32: {part[:20]!r} is not eight hex digits")
    return [int(part, 16) for part in parts]


def check_columns(key: str, footer: ParquetFooter, schema: pa.Schema = SCHEMA) -> None:
    """Check that the file has the required columns of `schema`, and that each column has the type that `schema` gives
    it. Raises CorruptObject."""
    try:
        found = footer.metadata.schema.to_arrow_schema()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptObject(key, f"its schema cannot be read: {error}") from error
    for column in schema:
        places = found.get_all_field_indices(column.name)
        if len(places) > 1:
            raise CorruptObject(key, f"column {column.name} occurs {len(places)} times")
        if not places:
            if not column.nullable:
                raise CorruptObject(key, f"column {column.name} is missing")
        elif not _same_type(found.field(places[0]).type, column.type):
            raise CorruptObject(key, f"column {column.name} is {found.field(places[0]).type}, not {column.type}")


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column has the wanted type. A struct inside a list may have more members than wanted, in any order."""
    if not pa.types.is_list(wanted) or not pa.types.is_list(found) or not pa.types.is_struct(found.value_type):
        return bool(found == wanted)
    members = {member.name: member.type for member in found.value_type}
    return all(members.get(member.name) == member.type for member in wanted.value_type)


def footer_text(key: str, metadata: Mapping[str, str], name: str) -> str:
    """The value of `tistream.{name}` in the footer's `metadata`. Raises CorruptObject if it is missing."""
    try:
        return metadata[f"tistream.{name}"]
    except KeyError:
        raise CorruptObject(key, f"footer metadata tistream.{name} is missing") from None


def footer_decimal(key: str, metadata: Mapping[str, str], name: str) -> int:
    """The value of `tistream.{name}` in the footer's `metadata` as an integer below 2^63. Raises CorruptObject."""
    text = footer_text(key, metadata, name)
    if not _DECIMAL.fullmatch(text) or int(text) >= 2**63:
        raise CorruptObject(key, f"tistream.{name} {text[:40]!r} is not a decimal integer")
    return int(text)


def check_group(key: str, group: RowGroupLike, footer: ParquetFooter, source: SparseFile) -> None:
    """Check that `group`, which may be a reference from another process, still describes this file: the footer states
    the same byte range, rows and key bounds, and the bytes in `source` have the CRC-32 of `group`. Raises
    CorruptObject."""
    found = footer.groups[group.index] if group.index < len(footer.groups) else None
    if found is None or found.range != (group.offset, group.length) or found.rows != group.rows:
        raise CorruptObject(key, f"row group {group.index} is not where the footer placed it before: it was replaced")
    if zlib.crc32(source.view(group.offset, group.length)) != group.crc32:
        raise CorruptObject(key, f"row group {group.index} fails its CRC-32")
    if group.key_min is not None and (group.key_min, group.key_max) != key_bounds(found):
        raise CorruptObject(key, f"row group {group.index} has other key bounds than when routed: it was replaced")


def decode_groups(
    key: str,
    footer: ParquetFooter,
    source: SparseFile,
    indexes: Sequence[int],
    columns: Sequence[str] | None = None,
    added_max: int = unpacking.ADDED_BYTES_MAX,
    bytes_max: int | None = None,
    schema: pa.Schema = SCHEMA,
) -> pa.Table:
    """Decode row groups in the order of `indexes`. The result has the columns of `schema`, or only those in `columns`,
    in the order of `schema`.

    Columns that the file lacks are null. Columns that `schema` lacks are left out. Raises CorruptObject. Limits protect
    against small files that unpack to gigabytes: the result may exceed its expected size by `added_max` bytes
    (tistream.format.unpacking), and may have `bytes_max` bytes in all.
    """
    wanted = pa.schema([column for column in schema if columns is None or column.name in columns])
    present = {chunk.column for chunk in footer.groups[0].chunks} if footer.groups else set()
    try:
        names = [name for name in wanted.names if name in present]
        known = unpacking.checked_pages(footer, source, indexes, names)
        encoded = [
            name for name in names if name in known.with_dictionary and pa.types.is_binary(wanted.field(name).type)
        ]
        file = pq.ParquetFile(
            pa.PythonFile(source, mode="r"), metadata=footer.metadata, pre_buffer=False, read_dictionary=encoded
        )
        unpacking.look_through(file, known, footer, added_max, bytes_max)
        found = file.read_row_groups(list(indexes), columns=names, use_threads=False)
        if encoded:
            found = unpacking.written_out(found, [footer.groups[index] for index in indexes], added_max, bytes_max)
        table = pa.table(
            [_column(found, column) for column in wanted],
            schema=pa.schema([column.with_nullable(True) for column in wanted]),
        )
        if bytes_max is not None and table.nbytes > bytes_max:
            raise ValueError(f"they unpack to {table.nbytes} bytes; no more than {bytes_max} are read")
        return table
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptObject(key, f"row groups {list(indexes)} cannot be decoded: {error}") from error


def _column(table: pa.Table, column: pa.Field) -> pa.ChunkedArray:
    if column.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, column.type)])
    found = table.column(column.name)
    if pa.types.is_list(column.type) and found.type != column.type:
        return _after(found)
    return found


def _after(found: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert the column `after` to the type AFTER. Writers of Parquet name the elements of a list as they like, and
    may add members; the result has the two known members, in order."""
    chunks = []
    for chunk in found.chunks:
        members = [chunk.values.field("region_id"), chunk.values.field("log_index")]
        values = pa.StructArray.from_arrays(members, fields=list(AFTER.value_type), mask=chunk.values.is_null())
        chunks.append(pa.ListArray.from_arrays(chunk.offsets, values, type=AFTER, mask=chunk.is_null()))
    return pa.chunked_array(chunks, AFTER)
