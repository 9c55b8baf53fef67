"""Answers RawValue: the value that a key of RawKV had at a timestamp."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass

import pyarrow as pa

from tistream import trace
from tistream.errors import UnknownName
from tistream.follow.tenant_view import TenantView
from tistream.format.segment import OP_PUT
from tistream.model import raw_row
from tistream.model.tenant_kind import TenantKind
from tistream.model.ts import physical_ms
from tistream.pool.versions.lookup import PLACES
from tistream.pool.versions.pool_reads import PoolReads
from tistream.wire.changes import RawValue
from tistream_api.encode.raw_encoding import expire_at
from tistream_api.points.point_reads import PointReads
from tistream_api.pull.admitted import ReadCaller
from tistream_api.pull.start import check_kind
from tistream_api.request.point_queries import NOW


@dataclass(frozen=True, slots=True)
class RawKey:
    """A key of RawKV: its keyspace, and the user's key."""

    keyspace: int
    user: bytes


def answer(points: PointReads, view: TenantView, key: RawKey, ts: int | None, asking: ReadCaller) -> RawValue:
    """The answer of RawValue. If `ts` is None, it has the newest value. Raises the errors of `raw_value`, and
    InvalidRequest, Gone, Unavailable, TooManyRequests."""
    check_kind(view, TenantKind.RAW)
    admitted = points.admission.begin(view, "RawValue", asking, trace.here())
    try:
        asking.has_slot()
        view.wait_fresh(asking.alive)
        at = points.times.readable(view, "ts", NOW if ts is None else ts)
        admitted.room.take()
        reads = points.pool_reads(view, at)
        steps = (raw_value(reads, one, at) for one in [key])  # made inside a working step
        found = next(points.working.each(admitted.tenant, steps, asking.alive))
        admitted.count(1, 1, 0)
        return found
    finally:
        admitted.release()


def raw_value(reads: PoolReads, key: RawKey, ts: int) -> RawValue:
    """The newest version of a key at or below `ts` (TSO). Raises UnknownName if no version exists, if it is a delete,
    or if it had expired at `ts`; and the errors of `reads`."""
    place = [[raw_row.table_id(key.keyspace)], [raw_row.prefix(key.keyspace) + key.user]]
    (row,) = reads.newest(pa.table(place, schema=PLACES), ts).to_pylist()
    where = f"key {key.user.hex()[:200]} of keyspace {key.keyspace}"
    if row["commit_ts"] is None:
        raise UnknownName(f"{where} has no version at or below {ts}")
    if row["op"] != OP_PUT:
        raise UnknownName(f"{where} was deleted at {row['commit_ts']}")
    expire_ts = row[raw_row.EXPIRE] or 0
    if expire_ts and expire_ts * 1_000 <= physical_ms(ts):
        raise UnknownName(f"{where} expired at {expire_at(expire_ts)}")
    return RawValue(
        ts=str(ts),
        keyspace=str(key.keyspace),
        key=b64encode(key.user).decode(),
        commit_ts=str(row["commit_ts"]),
        value=b64encode(row["value"] or b"").decode(),
        expire_at=expire_at(expire_ts),
    )
