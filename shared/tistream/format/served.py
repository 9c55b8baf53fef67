"""A tenant's served object records a resolved_ts that API servers have returned to readers (docs/adr/0023).

API servers write it at intervals, so readers may have received a higher resolved_ts since.

JSON `{"version":1,"snapshot_ts":"S","resolved_ts":"R","written_ms":M}`. For one `snapshot_ts`, `resolved_ts` only
rises. An object with another `snapshot_ts` was written for an earlier tenant of the same name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tistream.errors import CorruptObject
from tistream.model.ts import MAX_TS

VERSION = 1


@dataclass(frozen=True, slots=True)
class Served:
    """A `resolved_ts` that was returned to readers, with the tenant's snapshot_ts, which identifies the tenant.
    written_ms: Unix time of the write, in milliseconds."""

    snapshot_ts: int
    resolved_ts: int
    written_ms: int


def encode(served: Served) -> bytes:
    """Encode the served object."""
    fields = {"snapshot_ts": str(served.snapshot_ts), "resolved_ts": str(served.resolved_ts)}
    return json.dumps({"version": VERSION, **fields, "written_ms": served.written_ms}).encode()


def decode(key: str, body: bytes) -> Served:
    """Decode the served object. Raises CorruptObject."""
    try:
        data = json.loads(body)
        version, snapshot_ts, resolved_ts = data["version"], int(data["snapshot_ts"]), int(data["resolved_ts"])
        written_ms = int(data["written_ms"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObject(key, f"is not a valid served object: {error!r}") from error
    if version != VERSION:
        raise CorruptObject(key, f"served version {version!r}; this program knows {VERSION}")
    if not 0 <= snapshot_ts <= resolved_ts <= MAX_TS:
        raise CorruptObject(key, f"has the invalid resolved_ts {resolved_ts} for snapshot_ts {snapshot_ts}")
    return Served(snapshot_ts, resolved_ts, written_ms)
