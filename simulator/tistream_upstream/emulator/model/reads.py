"""Answers reads of transactional keys at a ts, and reads and writes of raw keys (API V2). Each request concerns one
region. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tistream.schema.tidb.meta_key import encode_bytes
from tistream.wire.tikv import errorpb_pb2 as errorpb
from tistream.wire.tikv import kvrpcpb_pb2 as kvrpcpb
from tistream_upstream.emulator.model.counters import Counters
from tistream_upstream.emulator.model.mvcc import Mvcc
from tistream_upstream.emulator.model.region import Region, RegionTable, raw_bound
from tistream_upstream.emulator.model.timeline import COMMITTED, DELETE, PREWRITE, PUT, Command, Row

_LOCK_TTL_MS = 3_000


@dataclass(slots=True)
class Reads:
    """Answers a store's requests for keys. `regions` and `mvcc` are those of the whole cluster."""

    regions: RegionTable
    mvcc: Mvcc
    counters: Counters

    def region_error(self, store_id: int, context: kvrpcpb.Context) -> errorpb.Error | None:
        """The error for a request whose region the store does not serve, or whose epoch is not the region's; None if
        the store can serve the request."""
        region = self.regions.by_id.get(context.region_id)
        if region is None or store_id not in region.peers:
            return errorpb.Error(
                message="region not found", region_not_found=errorpb.RegionNotFound(region_id=context.region_id)
            )
        if context.region_epoch.version != region.version:
            current = errorpb.EpochNotMatch(current_regions=[region.meta])
            return errorpb.Error(message="epoch not match", epoch_not_match=current)
        if region.store != store_id:
            led = errorpb.NotLeader(region_id=region.id, leader=region.leader)
            return errorpb.Error(message="not leader", not_leader=led)
        return None

    def scan(self, store_id: int, request: kvrpcpb.ScanRequest) -> kvrpcpb.ScanResponse:
        """Answer KvScan: the key-value pairs of the region in [start_key, end_key) at the ts `version`, at most
        `limit`. A locked key has the lock as the error of its pair."""
        error = self.region_error(store_id, request.context)
        if error is not None:
            return kvrpcpb.ScanResponse(region_error=error)
        pairs: list[kvrpcpb.KvPair] = []
        for key, row in self._clipped(request.context, request.start_key, request.end_key, request.version):
            if len(pairs) >= request.limit:
                break
            if row.type == PREWRITE:
                lock = kvrpcpb.LockInfo(primary_lock=key, lock_version=row.start_ts, key=key, lock_ttl=_LOCK_TTL_MS)
                pairs.append(kvrpcpb.KvPair(key=key, error=kvrpcpb.KeyError(locked=lock)))
            else:
                pairs.append(kvrpcpb.KvPair(key=key, value=b"" if request.key_only else row.value))
        self.counters.read_pairs += len(pairs)
        return kvrpcpb.ScanResponse(pairs=pairs)

    def raw_scan(self, store_id: int, request: kvrpcpb.RawScanRequest, ts: int, now_s: int) -> kvrpcpb.RawScanResponse:
        """Answer RawScan: the key-value pairs of the region in [start_key, end_key) at `ts`, at most `limit`. Pairs
        that have expired at `now_s` (Unix seconds) are left out."""
        error = self.region_error(store_id, request.context)
        if error is not None:
            return kvrpcpb.RawScanResponse(region_error=error)
        pairs: list[kvrpcpb.KvPair] = []
        for key, row in self._clipped(request.context, request.start_key, request.end_key, ts):
            if len(pairs) >= request.limit:
                break
            if not row.expire_ts or row.expire_ts > now_s:
                pairs.append(kvrpcpb.KvPair(key=key, value=b"" if request.key_only else row.value))
        self.counters.read_pairs += len(pairs)
        return kvrpcpb.RawScanResponse(kvs=pairs)

    def raw_ttl(self, key: bytes, ts: int, now_s: int) -> int | None:
        """The seconds until a raw key expires; 0 if it never does; None if it does not exist."""
        for _, row in self.mvcc.read(key, key + b"\0", ts):
            if not row.expire_ts:
                return 0
            return row.expire_ts - now_s if row.expire_ts > now_s else None
        return None

    def puts(self, request: kvrpcpb.RawBatchPutRequest, now_s: int) -> list[Row]:
        """The rows of a RawBatchPut, without their timestamps. `ttls` of the request has one value for all pairs, or
        one for each. `now_s`: Unix seconds, from which a ttl counts."""
        given: Sequence[int] = request.ttls or [request.ttl]
        ttls = given if len(given) == len(request.pairs) else [given[0]] * len(request.pairs)
        return [
            Row(COMMITTED, PUT, pair.key, pair.value, expire_ts=now_s + ttl if ttl else 0)
            for pair, ttl in zip(request.pairs, ttls, strict=True)
        ]

    def deletes(self, request: kvrpcpb.RawBatchDeleteRequest) -> list[Row]:
        """The rows of a RawBatchDelete, without their timestamps."""
        return [Row(COMMITTED, DELETE, key) for key in request.keys]

    def raw_problem(self, region_id: int, api: int, rows: Sequence[Row]) -> str:
        """The reason why a raw write is refused; an empty text if it is accepted."""
        if api != 2:
            return "invalid api version: raw keys need storage.api-version = 2"
        region = self.regions.by_id[region_id]
        for row in rows:
            if row.key[:1] != b"r" or not _holds(region, row.key):
                return f"invalid key {row.key.hex()}: it is not a raw key of region {region_id}"
        return ""

    def command(self, region_id: int, now_us: int, rows: Sequence[Row], ts: Callable[[], int]) -> Command:
        """Make the Raft command of a raw write. Each row gets a timestamp of its own, from `ts`."""
        stamped = []
        for row in rows:
            at = ts()
            stamped.append(row._replace(start_ts=at, commit_ts=at))
        self.counters.raw_written += len(rows)
        return Command(now_us, region_id, 0, stamped)

    def _clipped(self, context: kvrpcpb.Context, start: bytes, end: bytes, ts: int) -> Iterator[tuple[bytes, Row]]:
        region = self.regions.by_id[context.region_id]
        low = max(start, raw_bound(region.start))
        high = min(filter(None, (end, raw_bound(region.end))), default=b"")
        if not high or low < high:
            yield from self.mvcc.read(low, high, ts)


def _holds(region: Region, raw: bytes) -> bool:
    key = encode_bytes(raw)
    return region.start <= key and (not region.end or key < region.end)
