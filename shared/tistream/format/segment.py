"""The committed segment: an immutable Parquet file of rows in commit order (design.md 4, docs/formats.md)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

OP_PUT = 1
OP_DELETE = 2

SCHEMA = pa.schema(
    [
        pa.field("table_id", pa.int64(), nullable=False),
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("start_ts", pa.int64(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("op", pa.int8(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("old_value", pa.binary()),
        pa.field("txn_source", pa.int64()),
    ]
)
ORDER = ("table_id", "commit_ts", "start_ts", "key")


@dataclass(frozen=True, slots=True)
class RowGroupInfo:
    """What a reader must know of a row group before it fetches it; all bounds inclusive."""

    rows: int
    table_id_min: int
    table_id_max: int
    commit_ts_min: int
    commit_ts_max: int


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment as a manifest names it. It exists if and only if a manifest does so.

    `row_groups` are in file order; a row group holds one table's rows, or several small tables' whole.
    `checksum` is the zlib CRC-32 of the whole object, eight hex digits; `size` is in bytes.
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
        """Plain JSON; row groups as arrays in RowGroupInfo's field order."""
        out = {name: getattr(self, name) for name in ("key", "size", "checksum", "rows")}
        out["row_groups"] = [list(asdict(group).values()) for group in self.row_groups]
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SegmentRef:
        groups = tuple(RowGroupInfo(*group) for group in data["row_groups"])
        return cls(data["key"], data["size"], data["checksum"], data["rows"], groups)
