"""Reference of a run: versions of keys, sorted by key, in one immutable Parquet object (design-time.md 1)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RunRef:
    """A run in a manifest. It holds the versions in (low_ts, high_ts] of its keys. low_ts None: a base run, which holds
    of each key at most one version at or below high_ts, and no deletes.

    `first` and `last` are the bounds of its rows, inclusive: (table_id, key). `checksum` is the zlib CRC-32 of the
    object, eight hex digits; `size` is in bytes.
    """

    key: str
    size: int
    checksum: str
    rows: int
    low_ts: int | None
    high_ts: int
    first: tuple[int, bytes]
    last: tuple[int, bytes]

    def to_json(self) -> dict[str, Any]:
        """A JSON object; keys are hexadecimal."""
        out = asdict(self)
        for name in ("first", "last"):
            table_id, key = out[name]
            out[name] = [table_id, key.hex()]
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunRef:
        bounds = {name: (data[name][0], bytes.fromhex(data[name][1])) for name in ("first", "last")}
        return cls(**{**data, **bounds})
