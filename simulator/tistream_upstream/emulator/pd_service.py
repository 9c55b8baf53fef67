"""PD's gRPC calls, answered by the emulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc

from tistream.model.ts import LOGICAL_BITS
from tistream.wire.tikv import health_pb2 as health
from tistream.wire.tikv import keyspacepb_pb2 as keyspacepb
from tistream.wire.tikv import metapb_pb2 as metapb
from tistream.wire.tikv import pdpb_pb2 as pdpb
from tistream_upstream.emulator.model.upstream import Upstream
from tistream_upstream.emulator.shared_cluster import Service, Shared, bidirectional, unary

_LOGICAL = (1 << LOGICAL_BITS) - 1
_BEHIND = "ErrGCBarrierTSBehindTxnSafePoint"
Answer = Callable[[Upstream, Any, pdpb.ResponseHeader], Any]


def health_handler() -> Service:
    """Make the handler of the standard gRPC health check, which always answers "serving"."""

    def check(_: health.HealthCheckRequest, __: grpc.ServicerContext) -> health.HealthCheckResponse:
        return health.HealthCheckResponse(status=health.HealthCheckResponse.SERVING)

    return grpc.method_handlers_generic_handler(
        "grpc.health.v1.Health", {"Check": unary(check, health.HealthCheckRequest)}
    )


def pd_handlers(shared: Shared) -> list[Service]:
    """Make the handlers of the services `pdpb.PD`, keyspaces and health."""
    calls: dict[str, tuple[Any, Answer]] = {
        "GetClusterInfo": (pdpb.GetClusterInfoRequest, _cluster_info),
        "GetAllStores": (pdpb.GetAllStoresRequest, _Stores(shared).all),
        "GetStore": (pdpb.GetStoreRequest, _Stores(shared).one),
        "ScanRegions": (pdpb.ScanRegionsRequest, _scan),
        "BatchScanRegions": (pdpb.BatchScanRegionsRequest, _batch_scan),
        "GetRegion": (pdpb.GetRegionRequest, _region),
        "GetRegionByID": (pdpb.GetRegionByIDRequest, _region_by_id),
        "GetGCSafePoint": (pdpb.GetGCSafePointRequest, _safe_point),
        "UpdateServiceGCSafePoint": (pdpb.UpdateServiceGCSafePointRequest, _service_safe_point),
        "SetGCBarrier": (pdpb.SetGCBarrierRequest, _set_barrier),
        "DeleteGCBarrier": (pdpb.DeleteGCBarrierRequest, _delete_barrier),
        "GetGCState": (pdpb.GetGCStateRequest, _gc_state),
    }

    def handler(name: str, answer: Answer) -> Callable[[Any, grpc.ServicerContext], Any]:
        def handle(request: Any, context: grpc.ServicerContext) -> Any:
            _check_cluster(shared, request, context)
            return shared.call(name, lambda upstream: answer(upstream, request, _header(upstream)))

        return handle

    def members(_: pdpb.GetMembersRequest, __: grpc.ServicerContext) -> pdpb.GetMembersResponse:
        member = pdpb.Member(name="pd-1", member_id=1, client_urls=[shared.pd_url], peer_urls=[shared.pd_url])
        return shared.call(  # type: ignore[no-any-return]
            "GetMembers",
            lambda upstream: pdpb.GetMembersResponse(
                header=_header(upstream), members=[member], leader=member, etcd_leader=member
            ),
        )

    def tso(requests: Iterator[pdpb.TsoRequest], context: grpc.ServicerContext) -> Iterator[pdpb.TsoResponse]:
        for request in requests:
            _check_cluster(shared, request, context)
            yield shared.call("Tso", partial(_timestamps, count=request.count))

    found = {name: unary(handler(name, answer), request) for name, (request, answer) in calls.items()}
    found["GetMembers"] = unary(members, pdpb.GetMembersRequest)
    found["Tso"] = bidirectional(tso, pdpb.TsoRequest)
    load = unary(handler("LoadKeyspace", _keyspace), keyspacepb.LoadKeyspaceRequest)
    return [
        grpc.method_handlers_generic_handler("pdpb.PD", found),
        grpc.method_handlers_generic_handler("keyspacepb.Keyspace", {"LoadKeyspace": load}),
        health_handler(),
    ]


def _check_cluster(shared: Shared, request: Any, context: grpc.ServicerContext) -> None:
    expected, given = shared.upstream.config.cluster_id, request.header.cluster_id
    if given != expected:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"mismatch cluster id, need {expected} but got {given}")


def _header(upstream: Upstream, error: str = "") -> pdpb.ResponseHeader:
    told = pdpb.Error(type=pdpb.UNKNOWN, message=error) if error else None
    return pdpb.ResponseHeader(cluster_id=upstream.config.cluster_id, error=told)


def _timestamps(upstream: Upstream, count: int) -> pdpb.TsoResponse:
    if count <= 0:
        return pdpb.TsoResponse(header=_header(upstream, "tso count should be positive"))
    last = upstream.tso(count)
    timestamp = pdpb.Timestamp(physical=last >> LOGICAL_BITS, logical=last & _LOGICAL)
    return pdpb.TsoResponse(header=_header(upstream), count=count, timestamp=timestamp)


def _cluster_info(_: Upstream, __: Any, header: pdpb.ResponseHeader) -> pdpb.GetClusterInfoResponse:
    return pdpb.GetClusterInfoResponse(header=header, service_modes=[pdpb.PD_SVC_MODE])


class _Stores:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def all(self, upstream: Upstream, _: Any, header: pdpb.ResponseHeader) -> pdpb.GetAllStoresResponse:
        return pdpb.GetAllStoresResponse(header=header, stores=[self._store(upstream, one) for one in upstream.stores])

    def one(self, upstream: Upstream, request: Any, header: pdpb.ResponseHeader) -> pdpb.GetStoreResponse:
        if request.store_id not in upstream.stores:
            return pdpb.GetStoreResponse(header=_header(upstream, f"invalid store ID {request.store_id}, not found"))
        return pdpb.GetStoreResponse(header=header, store=self._store(upstream, request.store_id))

    def _store(self, upstream: Upstream, number: int) -> metapb.Store:
        store = upstream.stores[number]
        labels = [metapb.StoreLabel(key=key, value=value) for key, value in store.labels.items()]
        address = self._shared.addresses[number]
        return metapb.Store(id=number, address=address, labels=labels, version=store.version)


def _scan(upstream: Upstream, request: Any, header: pdpb.ResponseHeader) -> pdpb.ScanRegionsResponse:
    found = upstream.pd_regions.scan(request.start_key, request.end_key, request.limit)
    return pdpb.ScanRegionsResponse(
        header=header,
        regions=found,
        region_metas=[one.region for one in found],
        leaders=[one.leader for one in found],
    )


def _batch_scan(upstream: Upstream, request: Any, header: pdpb.ResponseHeader) -> pdpb.BatchScanRegionsResponse:
    ranges = [(one.start_key, one.end_key) for one in request.ranges]
    found = upstream.pd_regions.scan_ranges(ranges, request.limit)
    return pdpb.BatchScanRegionsResponse(header=header, regions=found)


def _region(upstream: Upstream, request: Any, header: pdpb.ResponseHeader) -> pdpb.GetRegionResponse:
    return _found(upstream.pd_regions.find(request.region_key), header)


def _region_by_id(upstream: Upstream, request: Any, header: pdpb.ResponseHeader) -> pdpb.GetRegionResponse:
    return _found(upstream.pd_regions.by_id(request.region_id), header)


def _found(found: pdpb.Region | None, header: pdpb.ResponseHeader) -> pdpb.GetRegionResponse:
    if found is None:
        return pdpb.GetRegionResponse(header=header)
    leader = found.leader if found.HasField("leader") else None
    return pdpb.GetRegionResponse(header=header, region=found.region, leader=leader)


def _safe_point(upstream: Upstream, _: Any, header: pdpb.ResponseHeader) -> pdpb.GetGCSafePointResponse:
    return pdpb.GetGCSafePointResponse(header=header, safe_point=upstream.gc.safe_point)


def _service_safe_point(
    upstream: Upstream, request: Any, header: pdpb.ResponseHeader
) -> pdpb.UpdateServiceGCSafePointResponse:
    name, ttl, ts = request.service_id.decode(), request.TTL, request.safe_point
    lowest = upstream.gc.update_service(name, ttl, ts, upstream.now_ms)
    return pdpb.UpdateServiceGCSafePointResponse(
        header=header, service_id=request.service_id, TTL=ttl, min_safe_point=lowest
    )


def _set_barrier(upstream: Upstream, request: Any, header: pdpb.ResponseHeader) -> pdpb.SetGCBarrierResponse:
    name, ts, ttl = request.barrier_id, request.barrier_ts, request.ttl_seconds
    if not upstream.gc.set_barrier(name, ts, ttl, upstream.now_ms):
        return pdpb.SetGCBarrierResponse(header=_header(upstream, _BEHIND))
    barrier = pdpb.GCBarrierInfo(barrier_id=name, barrier_ts=ts, ttl_seconds=ttl)
    return pdpb.SetGCBarrierResponse(header=header, new_barrier_info=barrier)


def _delete_barrier(upstream: Upstream, request: Any, header: pdpb.ResponseHeader) -> pdpb.DeleteGCBarrierResponse:
    upstream.gc.holds.pop(request.barrier_id, None)
    return pdpb.DeleteGCBarrierResponse(header=header)


def _gc_state(upstream: Upstream, request: Any, header: pdpb.ResponseHeader) -> pdpb.GetGCStateResponse:
    gc, now_ms = upstream.gc, upstream.now_ms
    barriers = [
        pdpb.GCBarrierInfo(barrier_id=name, barrier_ts=hold.ts, ttl_seconds=(hold.ends_ms - now_ms) // 1_000)
        for name, hold in gc.live(now_ms).items()
    ]
    state = pdpb.GCState(
        keyspace_scope=request.keyspace_scope,
        txn_safe_point=gc.txn_safe_point,
        gc_safe_point=gc.safe_point,
        gc_barriers=barriers,
    )
    return pdpb.GetGCStateResponse(header=header, gc_state=state)


def _keyspace(upstream: Upstream, request: Any, header: pdpb.ResponseHeader) -> keyspacepb.LoadKeyspaceResponse:
    if request.name != "DEFAULT":
        return keyspacepb.LoadKeyspaceResponse(header=_header(upstream, f"keyspace {request.name} does not exist"))
    return keyspacepb.LoadKeyspaceResponse(header=header, keyspace=keyspacepb.KeyspaceMeta(id=0, name="DEFAULT"))
