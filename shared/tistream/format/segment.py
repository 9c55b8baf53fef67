"""The committed segment, an immutable, sorted Parquet file: its schema, and how a manifest refers to it (design.md 4,
docs/formats.md)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

OP_PUT = 1
OP_DELETE = 2

SCHEMA = pa.schema(
    [
        pa.field("table_id", pa.int64(), nullable=False),  # physical; 0 for `m` keys; `-1 - keyspace` of RawKV
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("start_ts", pa.int64(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),  # raw
        pa.field("op", pa.int8(), nullable=False),  # 1 put, 2 delete
        pa.field("value", pa.binary()),  # row bytes of TiDB
        pa.field("old_value", pa.binary()),  # row bytes of TiDB
        pa.field("txn_source", pa.int64()),  # bits of TiDB; for RawKV, the time of the row's expiry (raw_row)
    ]
)
ORDER = ("table_id", "commit_ts", "start_ts", "key")


@dataclass(frozen=True, slots=True)
class RowGroupInfo:
    """Statistics of a row group. Readers use them to choose the row groups to fetch. All bounds are inclusive."""

    rows: int
    table_id_min: int
    table_id_max: int
    commit_ts_min: int
    commit_ts_max: int


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A manifest's reference to a segment. An object that no manifest names is not a segment.

    `row_groups` are in file order. A row group has rows of one table, or all rows of several small tables. `checksum`
    is the zlib CRC-32 of the whole object, eight hex digits; `size` is in bytes.
    """

    key: str
    size: int
    checksum: str
    rows: int
    row_groups: tuple[RowGroupInfo, ...]

    @property
    def commit_ts_min(self) -> int:
        return min(group.commit_ts_min for group in self.row_groups)

    @property
    def commit_ts_max(self) -> int:
        return max(group.commit_ts_max for group in self.row_groups)

    def to_json(self) -> dict[str, Any]:
        """Encode the reference as a JSON object, with row groups as arrays in RowGroupInfo's field order."""
        out = {name: getattr(self, name) for name in ("key", "size", "checksum", "rows")}
        out["row_groups"] = [list(asdict(group).values()) for group in self.row_groups]
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SegmentRef:
        groups = tuple(RowGroupInfo(*group) for group in data["row_groups"])
        return cls(data["key"], data["size"], data["checksum"], data["rows"], groups)
