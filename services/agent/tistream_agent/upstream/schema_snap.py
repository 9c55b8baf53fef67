"""Reads the schema of a TiDB as of one TSO from TiKV itself, by scanning the `m` keys (KvScan,
upstream-formats 6.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from tistream.errors import CorruptObject, Unavailable
from tistream.model.span import KeySpan
from tistream.schema.tidb.backup_snapshot import schema_snap
from tistream.schema.tidb.meta_key import decode_key, encode_bytes
from tistream.wire.tikv import kvrpcpb_pb2 as kvrpcpb
from tistream_agent.core.keys import raw_bound, with_prefix
from tistream_agent.upstream.pd import LedRegion, PdClient
from tistream_agent.upstream.stores import Channels

# The hashes `DB:…` and `DBs`. Between them lie `DDLJob…` lists and the job history, which is large and not read.
DB_SPAN = KeySpan(b"mDB:", b"mDB;")
DBS_SPAN = KeySpan(b"m" + encode_bytes(b"DBs"), b"m" + encode_bytes(b"DBs") + b"\xff")
SPANS = (DB_SPAN, DBS_SPAN)
PAGE = 256
_PAUSE_S = 0.5  # before a locked key or a region that moves is read again
_TRIES = 240
_CALL_S = 20.0
_WHERE = "the schema in TiKV"

Pair = tuple[bytes, bytes]


class SchemaReader:
    """Reads the schema's keys as of one TSO. `sleep` pauses for the given seconds. `prefix` is that of the tenant's
    keyspace in TiKV's keys."""

    def __init__(self, pd: PdClient, channels: Channels, sleep: Callable[[float], None], prefix: bytes = b"") -> None:
        self._pd, self._channels, self._sleep, self._prefix = pd, channels, sleep, prefix

    def read(self, ts: int) -> bytes:
        """Read the schema as of `ts`. Returns the bytes of a `schema_snap`. Raises Unavailable, and CorruptObject if
        the keys are not TiDB's."""
        addresses = {store.store_id: store.address for store in self._pd.stores()}
        pairs = [pair for span in SPANS for pair in self._span(with_prefix(span, self._prefix), ts, addresses)]
        return snapshot_of([(key[len(self._prefix) :], value) for key, value in pairs], ts)

    def _span(self, span: KeySpan, ts: int, addresses: dict[int, str]) -> Iterator[Pair]:
        start, tries, problem = span.start, 0, ""
        while not span.end or start < span.end:
            if tries == _TRIES:
                raise Unavailable(f"keys of the schema cannot be read for {_TRIES * _PAUSE_S:.0f} s: {problem}")
            region = self._region(start)
            leader = None if region is None or region.leader is None else addresses.get(region.leader.store_id)
            if region is None or leader is None:
                tries, problem = tries + 1, "PD knows no leader of their region"
                self._sleep(_PAUSE_S)
                continue
            bound = raw_bound(region.region.encoded_end)
            end = min(filter(None, (bound, span.end)), default=b"")
            answer = self._scan(leader, region, start, end, ts)
            if isinstance(answer, str):
                tries, problem = tries + 1, answer
                self._sleep(_PAUSE_S)
                continue
            tries = 0
            yield from answer
            if len(answer) == PAGE:
                start = answer[-1][0] + b"\x00"
            elif not end:
                return
            else:
                start = end

    def _region(self, start: bytes) -> LedRegion | None:
        """Ask PD for the region of a raw key. Returns None if PD has no region for it at the moment."""
        encoded = encode_bytes(start)
        for found in self._pd.led_regions(encoded, encoded + b"\x00"):
            region = found.region
            if region.encoded_start <= encoded and (not region.encoded_end or encoded < region.encoded_end):
                return found
        return None

    def _scan(self, address: str, region: LedRegion, start: bytes, end: bytes, ts: int) -> list[Pair] | str:
        """Read up to PAGE key-value pairs of a region from the raw key `start` on, below `end`, as of `ts`. Returns the
        pairs, or the reason why they cannot be read now."""
        request = kvrpcpb.ScanRequest(start_key=start, end_key=end, limit=PAGE, version=ts)
        request.context.region_id = region.region.region_id
        request.context.region_epoch.CopyFrom(region.meta.region_epoch)
        assert region.leader is not None
        request.context.peer.CopyFrom(region.leader)
        try:
            with self._channels.open(address) as channel:
                call = channel.unary_unary(
                    "/tikvpb.Tikv/KvScan",
                    request_serializer=kvrpcpb.ScanRequest.SerializeToString,
                    response_deserializer=kvrpcpb.ScanResponse.FromString,
                )
                answer: Any = call(request, timeout=_CALL_S)
        except grpc.RpcError as error:
            return f"TiKV at {address}: {error.code().name if isinstance(error, grpc.Call) else error}"
        if answer.HasField("region_error"):
            return f"region {region.region.region_id} has moved or is busy"
        if answer.HasField("error"):
            return f"TiKV at {address}: {str(answer.error).strip()[:200]}"
        pairs = []
        for pair in answer.pairs:
            if pair.HasField("error"):
                # The keys before the locked one are requested again, too: a page is small.
                return "a transaction that changes the schema holds a lock"
            pairs.append((bytes(pair.key), bytes(pair.value)))
        return pairs


def snapshot_of(pairs: list[Pair], ts: int) -> bytes:
    """Encode the key-value pairs of SPANS, which are TiDB's schema, as the bytes of a `schema_snap` as of `ts`. Raises
    CorruptObject if a pair is malformed."""
    databases: dict[int, bytes] = {}
    tables: list[tuple[int, bytes]] = []
    for raw, value in pairs:
        try:
            meta = decode_key(raw)
            if meta is None or meta.field is None:
                continue
            if meta.key == b"DBs" and meta.field.startswith(b"DB:"):
                databases[int(meta.field[3:])] = value
            elif meta.key.startswith(b"DB:") and meta.field.startswith(b"Table:"):
                tables.append((int(meta.key[3:]), value))
        except ValueError as error:
            raise CorruptObject(_WHERE, f"key {raw.hex()[:200]}: {error}") from error
    schemas = [(database, b"") for database in databases.values()]
    # A table whose database is not listed has been dropped: TiDB deletes its keys later.
    schemas += [(databases[database_id], table) for database_id, table in tables if database_id in databases]
    return schema_snap(_WHERE, ts, schemas)
