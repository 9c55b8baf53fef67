"""A client of PD: timestamps, regions, stores, and the hold on garbage collection (upstream-formats 6.8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from queue import SimpleQueue
from typing import Any

import grpc

from tistream.concurrency import new_lock
from tistream.errors import FatalError, InvalidRequest, Unavailable
from tistream.model.ts import LOGICAL_BITS
from tistream.wire.tikv import keyspacepb_pb2 as keyspacepb
from tistream.wire.tikv import metapb_pb2 as metapb
from tistream.wire.tikv import pdpb_pb2 as pdpb
from tistream_agent.core.keys import Region
from tistream_agent.upstream.pd_leader import LeaderConnection, OtherCluster, PdLeader, R, reason, unary
from tistream_agent.upstream.stores import Channels

DEADLINE_S = 5.0
PAGE = 1_024  # regions of one scan
NULL_KEYSPACE = 0xFFFFFFFF
_ATTEMPTS = 3
_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
_TIFLASH = ("engine", "tiflash")
_ENTRY_NOT_FOUND = 9  # type of the error in a header


class HoldTooLow(FatalError):
    """Raised if PD has refused a hold on GC, because versions that the hold would keep may be gone already.
    `safe_point`: the TSO at and below which versions may be gone."""

    code = "gc"

    def __init__(self, ts: int, safe_point: int) -> None:
        super().__init__(
            f"the GC safe point {safe_point} of the cluster is above {ts}: changes between them are gone. "
            "The tenant cannot go on: connect a new tenant, and backfill its tables (docs/backfill.md)"
        )
        self.ts = ts
        self.safe_point = safe_point


@dataclass(frozen=True, slots=True)
class TikvStore:
    """A TiKV store. `version` is the one that PD states, without a leading `v`. `up`: the store is neither offline nor
    a tombstone."""

    store_id: int
    address: str
    version: str
    up: bool


@dataclass(frozen=True, slots=True)
class LedRegion:
    """A region with the leader that PD names, for calls to TiKV about this region. `leader` is None if PD knows
    none."""

    region: Region
    meta: metapb.Region
    leader: metapb.Peer | None


class PdClient:
    """A client of PD. Thread-safe. A failed call is repeated, up to three attempts in all, each after PD's members have
    been asked for their leader.

    Args:
        addresses: those of some or all members.
        cluster_id: the id of the cluster that PD must belong to; None for the one in the first answer.
        on_call: counts calls by the name of their rpc.

    Methods raise Unavailable, and OtherCluster.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        channels: Channels,
        cluster_id: int | None = None,
        on_call: Callable[[str], object] = lambda _: None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._leader = PdLeader(addresses, channels, cluster_id, on_call, deadline_s)
        self._on_call = on_call
        self._deadline_s = deadline_s
        self._tso_lock = new_lock()
        self._tso: _TsoStream | None = None
        self._old_scan = False
        self._barriers = False

    def close(self) -> None:
        """Close the connections as soon as no call uses them; later calls open new ones."""
        with self._tso_lock:
            self._end_tso()
        self._leader.close()

    @property
    def cluster_id(self) -> int:
        """The id of the cluster. The first call asks PD for it."""
        return self._leader.cluster_id

    # --- calls ---------------------------------------------------------------------------------------------------

    def timestamps(self, count: int) -> int:
        """Take `count` consecutive timestamps. Returns the last one; the others are the `count` - 1 numbers below it.
        Raises Unavailable."""
        problem = ""
        for _ in range(_ATTEMPTS):
            with self._tso_lock:
                try:
                    return self._taken_timestamps(self._open_tso(), count)
                except (grpc.RpcError, StopIteration, _NotLeader) as error:
                    problem = reason(error)
                    self._give_tso_up()
        raise Unavailable(f"PD gives no timestamp: {problem}")

    def _taken_timestamps(self, stream: _TsoStream, count: int) -> int:
        self._on_call("Tso")
        answer = stream.take(pdpb.TsoRequest(header=self._header(), count=count))
        self._check("Tso", answer)
        if answer.count != count:
            raise Unavailable(f"PD gave {answer.count} timestamps for {count}")
        return int(answer.timestamp.physical) << LOGICAL_BITS | int(answer.timestamp.logical)

    def _open_tso(self) -> _TsoStream:
        """The stream to PD's leader; a new one if the connection of the old one was given up."""
        if self._tso is not None and self._tso.connection.given_up:
            self._end_tso()
        if self._tso is None:
            self._tso = _TsoStream(self._leader.take(), self._deadline_s)
        return self._tso

    def _give_tso_up(self) -> None:
        if self._tso is not None:
            self._leader.give_up(self._tso.connection)
            self._end_tso()

    def _end_tso(self) -> None:
        if self._tso is not None:
            self._tso.end()
            self._leader.put_back(self._tso.connection)
            self._tso = None

    def stores(self) -> list[TikvStore]:
        """The TiKV stores, without tombstones and without TiFlash."""
        answer = self._call(
            "GetAllStores", pdpb.GetAllStoresRequest(exclude_tombstone_stores=True), pdpb.GetAllStoresResponse
        )
        return [
            TikvStore(store.id, store.address, store.version.removeprefix("v"), store.state == 0)
            for store in answer.stores
            if _TIFLASH not in {(label.key, label.value) for label in store.labels}
        ]

    def regions(self, encoded_start: bytes, encoded_end: bytes) -> list[Region]:
        """The regions with keys from `encoded_start` to below `encoded_end` (empty: +infinity), memcomparable-encoded,
        in order, as PD has them: there may be gaps and overlaps."""
        return [found.region for found in self.led_regions(encoded_start, encoded_end)]

    def led_regions(self, encoded_start: bytes, encoded_end: bytes) -> Iterator[LedRegion]:
        """Like `regions`, with the data that a call to TiKV about one region needs. PD is asked for PAGE regions at a
        time while the caller iterates. Raises Unavailable, also if an answer of PD does not end above its start."""
        start = encoded_start
        while True:
            page = self._page(start, encoded_end)
            yield from page
            if len(page) < PAGE or not page[-1].region.encoded_end:
                return
            beyond = page[-1].region.encoded_end
            if beyond <= start:
                raise Unavailable(
                    f"PD's page of regions from {start.hex()} ends at {beyond.hex()}, which is not above it"
                )
            start = beyond
            if encoded_end and start >= encoded_end:
                return

    def _page(self, start: bytes, end: bytes) -> list[LedRegion]:
        if not self._old_scan:
            ranges = [pdpb.KeyRange(start_key=start, end_key=end)]
            try:
                batch = self._call(
                    "BatchScanRegions",
                    pdpb.BatchScanRegionsRequest(ranges=ranges, limit=PAGE),
                    pdpb.BatchScanRegionsResponse,
                )
                return [_led(one.region, one.leader) for one in batch.regions]
            except _Unimplemented:
                self._old_scan = True
        request = pdpb.ScanRegionsRequest(start_key=start, end_key=end, limit=PAGE)
        answer = self._call("ScanRegions", request, pdpb.ScanRegionsResponse)
        if answer.regions:
            return [_led(one.region, one.leader) for one in answer.regions]
        unknown = (metapb.Peer() for _ in answer.region_metas)  # of an old PD: regions and leaders side by side
        return [_led(*one) for one in zip(answer.region_metas, chain(answer.leaders, unknown), strict=False)]

    def keyspace(self, name: str) -> int:
        """The id of a keyspace. Raises InvalidRequest if no keyspace has that name."""
        try:
            request = keyspacepb.LoadKeyspaceRequest(name=name)
            answer = self._call("LoadKeyspace", request, keyspacepb.LoadKeyspaceResponse, service="keyspacepb.Keyspace")
        except _Unimplemented:
            raise InvalidRequest(f"this PD has no keyspaces, so no keyspace {name!r}: leave the keyspace out") from None
        except _Refused as error:
            if error.kind == _ENTRY_NOT_FOUND or "not exist" in str(error) or "not found" in str(error):
                raise InvalidRequest(f"PD has no keyspace {name!r}: correct the name ({error})") from None
            raise
        if not answer.HasField("keyspace") or answer.keyspace.name not in ("", name):
            raise InvalidRequest(f"PD names no keyspace {name!r}: correct the name")
        return int(answer.keyspace.id)

    # --- garbage collection --------------------------------------------------------------------------------------

    def safe_point(self) -> int:
        """The TSO at and below which versions may be gone; 0 if this version of PD does not state it."""
        try:
            answer = self._call("GetGCSafePoint", pdpb.GetGCSafePointRequest(), pdpb.GetGCSafePointResponse)
        except _Unimplemented:
            return 0
        return int(answer.safe_point)

    def hold_gc(
        self,
        service_id: str,
        ts: int,
        ttl_s: int,
        keyspace: int = NULL_KEYSPACE,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask PD to keep all versions above `ts` for `ttl_s` seconds, under the name `service_id`; a `ttl_s` of 0
        deletes this hold.

        Args:
            keyspace: the id of the keyspace whose garbage collection is held back; NULL_KEYSPACE for keys without a
                keyspace.
            check: called right before each attempt. What it raises is raised, and nothing is sent.

        Raises HoldTooLow if the versions may be gone already, and InvalidRequest if this version of PD has no holds, or
        none of a keyspace."""
        if keyspace == NULL_KEYSPACE and not self._barriers:
            request = pdpb.UpdateServiceGCSafePointRequest(service_id=service_id.encode(), TTL=ttl_s, safe_point=ts)
            try:
                answer = self._call(
                    "UpdateServiceGCSafePoint", request, pdpb.UpdateServiceGCSafePointResponse, check=check
                )
            except _Unimplemented:
                self._barriers = True
            else:
                if ttl_s > 0 and answer.min_safe_point > ts:
                    raise HoldTooLow(ts, int(answer.min_safe_point))
                return
        try:
            self._hold_by_barrier(service_id, ts, ttl_s, pdpb.KeyspaceScope(keyspace_id=keyspace), check)
        except _Unimplemented as error:
            if ttl_s > 0:
                raise InvalidRequest(
                    f"this PD has no call {error}, so nothing can hold back the garbage collection"
                    f"{'' if keyspace == NULL_KEYSPACE else ' of a keyspace'}: upgrade PD"
                ) from None

    def _hold_by_barrier(
        self, service_id: str, ts: int, ttl_s: int, scope: pdpb.KeyspaceScope, check: Callable[[], None]
    ) -> None:
        if ttl_s <= 0:
            self._call(
                "DeleteGCBarrier",
                pdpb.DeleteGCBarrierRequest(keyspace_scope=scope, barrier_id=service_id),
                pdpb.DeleteGCBarrierResponse,
            )
            return
        barrier = pdpb.SetGCBarrierRequest(
            keyspace_scope=scope, barrier_id=service_id, barrier_ts=ts, ttl_seconds=ttl_s
        )
        try:
            self._call("SetGCBarrier", barrier, pdpb.SetGCBarrierResponse, check=check)
        except _Refused as error:
            state = self._call("GetGCState", pdpb.GetGCStateRequest(keyspace_scope=scope), pdpb.GetGCStateResponse)
            if state.gc_state.txn_safe_point > ts:
                raise HoldTooLow(ts, int(state.gc_state.txn_safe_point)) from error
            raise

    def release_gc(self, service_id: str, keyspace: int = NULL_KEYSPACE) -> None:
        """Delete a hold on GC. It is no error if the hold does not exist."""
        self.hold_gc(service_id, 0, 0, keyspace)

    # --- connections ---------------------------------------------------------------------------------------------

    def _header(self) -> pdpb.RequestHeader:
        return pdpb.RequestHeader(cluster_id=self.cluster_id)

    def _call(
        self,
        rpc: str,
        request: Any,
        response: type[R],
        service: str = "pdpb.PD",
        check: Callable[[], None] = lambda: None,
    ) -> R:
        problem = ""
        for _ in range(_ATTEMPTS):
            request.header.CopyFrom(self._header())
            self._on_call(rpc)
            with self._leader.taken() as leader:
                check()
                try:
                    answer = unary(leader.channel, service, rpc, response)(request, timeout=self._deadline_s)
                    self._check(rpc, answer)
                    return answer
                except grpc.RpcError as error:
                    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                        raise _Unimplemented(rpc) from error
                    problem = reason(error)
                    self._leader.give_up(leader)
                    if error.code() not in _RETRIED and "leader" not in problem.lower():
                        break
                except _NotLeader as error:
                    problem = str(error)
                    self._leader.give_up(leader)
        raise Unavailable(f"PD does not answer {rpc}: {problem}")

    def _check(self, rpc: str, answer: Any) -> None:
        header = answer.header
        expected = self._leader.expected_id
        if expected is not None and header.cluster_id not in (0, expected):
            raise OtherCluster(
                f"PD answers as cluster {header.cluster_id}, and this agent is of {expected}: correct the "
                "addresses of PD, or connect the other cluster as a tenant of its own"
            )
        if not header.HasField("error") or header.error.type == 0:
            return
        if "leader" in header.error.message.lower():
            raise _NotLeader(header.error.message)
        raise _Refused(f"PD refuses {rpc}: {header.error.message}", header.error.type)


class _NotLeader(Exception):
    """Raised if the PD member that was asked is not the leader."""


class _Unimplemented(Exception):
    """Raised if this version of PD has no such call."""


class _Refused(Unavailable):
    """Raised if PD answered with an error in the header of its response. `kind`: the type of that error."""

    def __init__(self, text: str, kind: int) -> None:
        super().__init__(text)
        self.kind = kind


class _TsoStream:
    """The open gRPC stream on which PD issues timestamps. One request is under way at a time. `connection`: what it
    uses until it ends."""

    def __init__(self, connection: LeaderConnection, deadline_s: float) -> None:
        self.connection = connection
        self._requests: SimpleQueue[pdpb.TsoRequest | None] = SimpleQueue()
        self._deadline_s = deadline_s
        self._answers = connection.channel.stream_stream(
            "/pdpb.PD/Tso",
            request_serializer=pdpb.TsoRequest.SerializeToString,
            response_deserializer=pdpb.TsoResponse.FromString,
        )(iter(self._requests.get, None))

    def take(self, request: pdpb.TsoRequest) -> pdpb.TsoResponse:
        """Send a request for timestamps, and return the answer. Raises grpc.RpcError, also when the deadline has
        passed."""
        late = threading.Timer(self._deadline_s, self._answers.cancel)
        late.daemon = True
        late.start()
        try:
            self._requests.put(request)
            answer: pdpb.TsoResponse = next(iter(self._answers))
            return answer
        finally:
            late.cancel()

    def end(self) -> None:
        """Close the stream."""
        self._requests.put(None)
        self._answers.cancel()  # type: ignore[no-untyped-call]


def _led(meta: metapb.Region, leader: metapb.Peer) -> LedRegion:
    epoch = meta.region_epoch
    region = Region(meta.id, meta.start_key, meta.end_key, epoch.conf_ver, epoch.version, leader.store_id)
    return LedRegion(region, meta, leader if leader.store_id else None)
