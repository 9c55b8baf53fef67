"""A PD and one TiKV store over real gRPC on one port, which tell a golden set's committed rows to any client.

It knows no locks, splits or leader moves: it is for what the agent does as a process, not for what TiKV may do.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import grpc

from support import golden
from support.certificates import Certificates
from support.golden import GoldenSet
from tistream.model import ts as tso
from tistream.schema.tidb.meta_key import encode_bytes, encode_key
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream.wire.tikv import kvrpcpb_pb2 as kvrpcpb
from tistream.wire.tikv import metapb_pb2 as metapb
from tistream.wire.tikv import pdpb_pb2 as pdpb

CLUSTER_ID = 7_263_500_178_321_457_241
STORE = 4
PREWRITE, COMMIT, COMMITTED, INITIALIZED = 1, 2, 4, 5
EVENT_ROWS = 512
TICK_S = 0.05


@dataclass
class Subscription:
    """One region of a client. `sent_ts`: rows up to it were sent."""

    request_id: int
    region_id: int
    start: bytes
    end: bytes
    sent_ts: int


@dataclass
class SmallTikv:
    """`seconds`: the time over which the set's commits become visible, from the first registration on; 0: at once."""

    loaded: GoldenSet
    seconds: float = 0.0
    tls: Certificates | None = None
    version: str = "8.5.4"
    has_v2: bool = True
    cluster_id: int = CLUSTER_ID
    safe_point: int = 0
    bounds: tuple[bytes, ...] = (b"m", b"t", b"t\x80\x00\x00\x00\x00\x00\x00\x80", b"u")
    calls: Counter[str] = field(default_factory=Counter)
    holds: dict[str, int] = field(default_factory=dict)
    registered: list[Any] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        rows = golden.committed_rows(self.loaded.name)
        self._rows = rows.to_dicts()
        self._commits = [row["commit_ts"] for row in self._rows]
        self._lock = threading.Lock()
        self._logical = 0
        self._began: float | None = None
        self._stopping = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(32), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self._handlers("pdpb.PD"), self._handlers("tikv")))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> SmallTikv:
        """Begin to serve, on a free port."""
        if self.tls is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            pair = (self.tls.key_file.read_bytes(), self.tls.cert_file.read_bytes())
            authority = self.tls.authority.file.read_bytes()
            credentials = grpc.ssl_server_credentials([pair], authority, require_client_auth=True)
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self._server.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        self._server.stop(0.2).wait(5)

    # --- what is told -----------------------------------------------------------------------------------------------

    def now_ts(self) -> int:
        """All commits up to it have happened."""
        end = self.loaded.end_ts
        if not self.seconds:
            return end
        with self._lock:
            passed = 0.0 if self._began is None else time.monotonic() - self._began
        share = min(1.0, passed / self.seconds)
        return int(self.loaded.snapshot_ts + share * (end - self.loaded.snapshot_ts))

    def _between(self, subscription: Subscription, low: int, high: int) -> list[dict[str, Any]]:
        found = self._rows[bisect_right(self._commits, low) : bisect_right(self._commits, high)]
        inside = (row for row in found if row["key"] >= subscription.start)
        return [row for row in inside if not subscription.end or row["key"] < subscription.end]

    def _feed(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
        arrived: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=lambda: _drain(requests, arrived), daemon=True).start()
        live: list[Subscription] = []
        while context.is_active() and not self._stopping.is_set():
            try:
                request = arrived.get(timeout=TICK_S)
            except queue.Empty:
                request = None
            if request is not None:
                yield from self._register(request, live)
                continue
            now = self.now_ts()
            for subscription in live:
                rows = self._between(subscription, subscription.sent_ts, now)
                for at in range(0, len(rows), EVENT_ROWS):
                    part = rows[at : at + EVENT_ROWS]
                    yield _event(subscription, [_row(PREWRITE, row) for row in part])
                    yield _event(subscription, [_row(COMMIT, row) for row in part])
                subscription.sent_ts = now
                told = cdcpb.ResolvedTs(
                    regions=[subscription.region_id], ts=now, request_id=subscription.request_id if self.has_v2 else 0
                )
                yield cdcpb.ChangeDataEvent(resolved_ts=told).SerializeToString()

    def _register(self, request: Any, live: list[Subscription]) -> Iterator[bytes]:
        with self._lock:
            self.registered.append(request)
            self._began = time.monotonic() if self._began is None else self._began
        if request.WhichOneof("request") == "deregister":
            live[:] = [one for one in live if one.request_id != request.request_id]
            return
        if request.header.cluster_id != self.cluster_id:
            error = cdcpb.Error()
            error.cluster_id_mismatch.current = self.cluster_id
            error.cluster_id_mismatch.request = request.header.cluster_id
            event = cdcpb.Event(region_id=request.region_id, request_id=request.request_id, error=error)
            yield cdcpb.ChangeDataEvent(events=[event]).SerializeToString()
            return
        now = self.now_ts()
        start, end = _raw(request.start_key), _raw(request.end_key)
        subscription = Subscription(request.request_id, request.region_id, start, end, now)
        rows = self._between(subscription, request.checkpoint_ts, now)
        rows.sort(key=lambda row: (row["key"], -row["commit_ts"]))
        for at in range(0, len(rows), EVENT_ROWS):
            yield _event(subscription, [_row(COMMITTED, row) for row in rows[at : at + EVENT_ROWS]])
        yield _event(subscription, [cdcpb.Event.Row(type=INITIALIZED)])
        live.append(subscription)

    # --- calls ------------------------------------------------------------------------------------------------------

    def _handlers(self, of: str) -> grpc.GenericRpcHandler:
        owner = self

        class Handler(grpc.GenericRpcHandler):
            def service(self, details: grpc.HandlerCallDetails) -> Any:
                service, _, rpc = details.method.removeprefix("/").partition("/")
                if (service == "pdpb.PD") != (of == "pdpb.PD"):
                    return None
                with owner._lock:
                    owner.calls[rpc] += 1
                if rpc in ("EventFeedV2", "EventFeed"):
                    if rpc == "EventFeedV2" and not owner.has_v2:
                        return None
                    return grpc.stream_stream_rpc_method_handler(
                        owner._feed, request_deserializer=cdcpb.ChangeDataRequest.FromString
                    )
                if rpc == "Tso":
                    return grpc.stream_stream_rpc_method_handler(
                        owner._tso, pdpb.TsoRequest.FromString, pdpb.TsoResponse.SerializeToString
                    )
                found = owner._unary().get(rpc)
                if found is None:
                    return None
                request, answer = found
                return grpc.unary_unary_rpc_method_handler(
                    lambda asked, _: answer(asked), request.FromString, lambda message: message.SerializeToString()
                )

        return Handler()

    def _unary(self) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
        return {
            "GetMembers": (pdpb.GetMembersRequest, self._members),
            "GetAllStores": (pdpb.GetAllStoresRequest, self._stores),
            "ScanRegions": (pdpb.ScanRegionsRequest, self._scan_regions),
            "UpdateServiceGCSafePoint": (pdpb.UpdateServiceGCSafePointRequest, self._hold),
            "GetGCSafePoint": (
                pdpb.GetGCSafePointRequest,
                lambda _: pdpb.GetGCSafePointResponse(header=self._header(), safe_point=self.safe_point),
            ),
            "KvScan": (kvrpcpb.ScanRequest, self._kv_scan),
        }

    def _header(self) -> pdpb.ResponseHeader:
        return pdpb.ResponseHeader(cluster_id=self.cluster_id)

    def _members(self, _: Any) -> Any:
        scheme = "http" if self.tls is None else "https"
        member = pdpb.Member(name="pd-1", member_id=1, client_urls=[f"{scheme}://{self.address}"])
        return pdpb.GetMembersResponse(header=self._header(), members=[member], leader=member)

    def _stores(self, _: Any) -> Any:
        store = metapb.Store(id=STORE, address=self.address, version=self.version)
        return pdpb.GetAllStoresResponse(header=self._header(), stores=[store])

    def _regions(self) -> list[pdpb.Region]:
        encoded = [b"", *(encode_bytes(bound) for bound in self.bounds), b""]
        leader = metapb.Peer(id=9, store_id=STORE)
        epoch = metapb.RegionEpoch(conf_ver=1, version=3)
        return [
            pdpb.Region(
                region=metapb.Region(id=100 + number, start_key=start, end_key=end, region_epoch=epoch, peers=[leader]),
                leader=leader,
            )
            for number, (start, end) in enumerate(pairwise(encoded))
        ]

    def _scan_regions(self, request: Any) -> Any:
        found = [
            one
            for one in self._regions()
            if (not request.end_key or one.region.start_key < request.end_key)
            and (not one.region.end_key or one.region.end_key > request.start_key)
        ]
        return pdpb.ScanRegionsResponse(header=self._header(), regions=found[: request.limit])

    def _hold(self, request: Any) -> Any:
        name = request.service_id.decode()
        with self._lock:
            if request.TTL <= 0:
                self.holds.pop(name, None)
            elif request.safe_point >= self.safe_point:
                self.holds[name] = request.safe_point
            lowest = min(self.holds.values(), default=self.safe_point)
        answer = max(self.safe_point, lowest) if request.TTL > 0 else self.safe_point
        return pdpb.UpdateServiceGCSafePointResponse(
            header=self._header(), service_id=request.service_id, TTL=request.TTL, min_safe_point=answer
        )

    def _tso(self, requests: Iterator[Any], _: grpc.ServicerContext) -> Iterator[Any]:
        for request in requests:
            with self._lock:
                self._logical += request.count
                last = self._logical
            now = pdpb.Timestamp(
                physical=tso.physical_ms(self.loaded.end_ts) + 1 + (last >> 18), logical=last & 0x3FFFF
            )
            yield pdpb.TsoResponse(header=self._header(), count=request.count, timestamp=now)

    def _kv_scan(self, request: Any) -> Any:
        pairs = [pair for pair in meta_pairs(self.loaded) if request.start_key <= pair[0]]
        pairs = [pair for pair in pairs if not request.end_key or pair[0] < request.end_key][: request.limit]
        return kvrpcpb.ScanResponse(pairs=[kvrpcpb.KvPair(key=key, value=value) for key, value in pairs])


def meta_pairs(loaded: GoldenSet) -> list[tuple[bytes, bytes]]:
    """The `m` keys of a set's schema, in key order, with the job history between them."""
    found = {encode_key(b"DDLJobHistory", b"1"): b"{}"}
    for entry in json.loads(loaded.schema_snap.data)["databases"]:
        name = b"DB:%d" % entry["db_info"]["id"]
        found[encode_key(b"DBs", name)] = json.dumps(entry["db_info"]).encode()
        for table in entry["tables"]:
            found[encode_key(name, b"Table:%d" % table["id"])] = json.dumps(table).encode()
    return sorted(found.items())


def _raw(encoded: bytes) -> bytes:
    from tistream.schema.tidb.meta_key import decode_bytes

    return decode_bytes(encoded, 0)[0] if encoded else b""


def _drain(requests: Iterator[Any], into: queue.Queue[Any]) -> None:
    try:
        for request in requests:
            into.put(request)
    except grpc.RpcError:
        return  # the client has gone


def _event(subscription: Subscription, rows: list[Any]) -> bytes:
    event = cdcpb.Event(region_id=subscription.region_id, request_id=subscription.request_id)
    event.entries.entries.extend(rows)
    return cdcpb.ChangeDataEvent(events=[event]).SerializeToString()


def _row(kind: int, row: dict[str, Any]) -> Any:
    made = cdcpb.Event.Row(
        type=kind, op_type=row["op"], key=row["key"], start_ts=row["start_ts"], txn_source=row["txn_source"] or 0
    )
    if kind != PREWRITE:
        made.commit_ts = row["commit_ts"]
    if kind != COMMIT:
        made.value, made.old_value = row["value"] or b"", row["old_value"] or b""
    return made
