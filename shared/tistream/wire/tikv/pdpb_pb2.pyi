from tistream.wire.tikv import metapb_pb2 as _metapb_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RequestHeader(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: int
    def __init__(self, cluster_id: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("type", "message")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    type: int
    message: str
    def __init__(self, type: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class ResponseHeader(_message.Message):
    __slots__ = ("cluster_id", "error")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    cluster_id: int
    error: Error
    def __init__(self, cluster_id: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "member_id", "peer_urls", "client_urls")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_URLS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_URLS_FIELD_NUMBER: _ClassVar[int]
    name: str
    member_id: int
    peer_urls: _containers.RepeatedScalarFieldContainer[str]
    client_urls: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., member_id: _Optional[int] = ..., peer_urls: _Optional[_Iterable[str]] = ..., client_urls: _Optional[_Iterable[str]] = ...) -> None: ...

class GetMembersRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ...) -> None: ...

class GetMembersResponse(_message.Message):
    __slots__ = ("header", "members", "leader", "etcd_leader")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    ETCD_LEADER_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    members: _containers.RepeatedCompositeFieldContainer[Member]
    leader: Member
    etcd_leader: Member
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., leader: _Optional[_Union[Member, _Mapping]] = ..., etcd_leader: _Optional[_Union[Member, _Mapping]] = ...) -> None: ...

class Timestamp(_message.Message):
    __slots__ = ("physical", "logical")
    PHYSICAL_FIELD_NUMBER: _ClassVar[int]
    LOGICAL_FIELD_NUMBER: _ClassVar[int]
    physical: int
    logical: int
    def __init__(self, physical: _Optional[int] = ..., logical: _Optional[int] = ...) -> None: ...

class TsoRequest(_message.Message):
    __slots__ = ("header", "count")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    count: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., count: _Optional[int] = ...) -> None: ...

class TsoResponse(_message.Message):
    __slots__ = ("header", "count", "timestamp")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    count: int
    timestamp: Timestamp
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., count: _Optional[int] = ..., timestamp: _Optional[_Union[Timestamp, _Mapping]] = ...) -> None: ...

class GetAllStoresRequest(_message.Message):
    __slots__ = ("header", "exclude_tombstone_stores")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_TOMBSTONE_STORES_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    exclude_tombstone_stores: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., exclude_tombstone_stores: _Optional[bool] = ...) -> None: ...

class GetAllStoresResponse(_message.Message):
    __slots__ = ("header", "stores")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    stores: _containers.RepeatedCompositeFieldContainer[_metapb_pb2.Store]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., stores: _Optional[_Iterable[_Union[_metapb_pb2.Store, _Mapping]]] = ...) -> None: ...

class Region(_message.Message):
    __slots__ = ("region", "leader")
    REGION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    region: _metapb_pb2.Region
    leader: _metapb_pb2.Peer
    def __init__(self, region: _Optional[_Union[_metapb_pb2.Region, _Mapping]] = ..., leader: _Optional[_Union[_metapb_pb2.Peer, _Mapping]] = ...) -> None: ...

class KeyRange(_message.Message):
    __slots__ = ("start_key", "end_key")
    START_KEY_FIELD_NUMBER: _ClassVar[int]
    END_KEY_FIELD_NUMBER: _ClassVar[int]
    start_key: bytes
    end_key: bytes
    def __init__(self, start_key: _Optional[bytes] = ..., end_key: _Optional[bytes] = ...) -> None: ...

class ScanRegionsRequest(_message.Message):
    __slots__ = ("header", "start_key", "limit", "end_key")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    START_KEY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    END_KEY_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    start_key: bytes
    limit: int
    end_key: bytes
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., start_key: _Optional[bytes] = ..., limit: _Optional[int] = ..., end_key: _Optional[bytes] = ...) -> None: ...

class ScanRegionsResponse(_message.Message):
    __slots__ = ("header", "region_metas", "leaders", "regions")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REGION_METAS_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    region_metas: _containers.RepeatedCompositeFieldContainer[_metapb_pb2.Region]
    leaders: _containers.RepeatedCompositeFieldContainer[_metapb_pb2.Peer]
    regions: _containers.RepeatedCompositeFieldContainer[Region]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., region_metas: _Optional[_Iterable[_Union[_metapb_pb2.Region, _Mapping]]] = ..., leaders: _Optional[_Iterable[_Union[_metapb_pb2.Peer, _Mapping]]] = ..., regions: _Optional[_Iterable[_Union[Region, _Mapping]]] = ...) -> None: ...

class BatchScanRegionsRequest(_message.Message):
    __slots__ = ("header", "ranges", "limit", "contain_all_key_range")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CONTAIN_ALL_KEY_RANGE_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    ranges: _containers.RepeatedCompositeFieldContainer[KeyRange]
    limit: int
    contain_all_key_range: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., ranges: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ..., limit: _Optional[int] = ..., contain_all_key_range: _Optional[bool] = ...) -> None: ...

class BatchScanRegionsResponse(_message.Message):
    __slots__ = ("header", "regions")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    regions: _containers.RepeatedCompositeFieldContainer[Region]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., regions: _Optional[_Iterable[_Union[Region, _Mapping]]] = ...) -> None: ...

class GetGCSafePointRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ...) -> None: ...

class GetGCSafePointResponse(_message.Message):
    __slots__ = ("header", "safe_point")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    safe_point: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., safe_point: _Optional[int] = ...) -> None: ...

class UpdateServiceGCSafePointRequest(_message.Message):
    __slots__ = ("header", "service_id", "TTL", "safe_point")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    service_id: bytes
    TTL: int
    safe_point: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., service_id: _Optional[bytes] = ..., TTL: _Optional[int] = ..., safe_point: _Optional[int] = ...) -> None: ...

class UpdateServiceGCSafePointResponse(_message.Message):
    __slots__ = ("header", "service_id", "TTL", "min_safe_point")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    MIN_SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    service_id: bytes
    TTL: int
    min_safe_point: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., service_id: _Optional[bytes] = ..., TTL: _Optional[int] = ..., min_safe_point: _Optional[int] = ...) -> None: ...

class KeyspaceScope(_message.Message):
    __slots__ = ("keyspace_id",)
    KEYSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    keyspace_id: int
    def __init__(self, keyspace_id: _Optional[int] = ...) -> None: ...

class GCBarrierInfo(_message.Message):
    __slots__ = ("barrier_id", "barrier_ts", "ttl_seconds")
    BARRIER_ID_FIELD_NUMBER: _ClassVar[int]
    BARRIER_TS_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    barrier_id: str
    barrier_ts: int
    ttl_seconds: int
    def __init__(self, barrier_id: _Optional[str] = ..., barrier_ts: _Optional[int] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class SetGCBarrierRequest(_message.Message):
    __slots__ = ("header", "keyspace_scope", "barrier_id", "barrier_ts", "ttl_seconds")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    BARRIER_ID_FIELD_NUMBER: _ClassVar[int]
    BARRIER_TS_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    keyspace_scope: KeyspaceScope
    barrier_id: str
    barrier_ts: int
    ttl_seconds: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., keyspace_scope: _Optional[_Union[KeyspaceScope, _Mapping]] = ..., barrier_id: _Optional[str] = ..., barrier_ts: _Optional[int] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class SetGCBarrierResponse(_message.Message):
    __slots__ = ("header", "new_barrier_info")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NEW_BARRIER_INFO_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    new_barrier_info: GCBarrierInfo
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., new_barrier_info: _Optional[_Union[GCBarrierInfo, _Mapping]] = ...) -> None: ...

class DeleteGCBarrierRequest(_message.Message):
    __slots__ = ("header", "keyspace_scope", "barrier_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    BARRIER_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    keyspace_scope: KeyspaceScope
    barrier_id: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., keyspace_scope: _Optional[_Union[KeyspaceScope, _Mapping]] = ..., barrier_id: _Optional[str] = ...) -> None: ...

class DeleteGCBarrierResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ...) -> None: ...

class GCState(_message.Message):
    __slots__ = ("keyspace_scope", "is_keyspace_level_gc", "txn_safe_point", "gc_safe_point", "gc_barriers")
    KEYSPACE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    IS_KEYSPACE_LEVEL_GC_FIELD_NUMBER: _ClassVar[int]
    TXN_SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    GC_SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    GC_BARRIERS_FIELD_NUMBER: _ClassVar[int]
    keyspace_scope: KeyspaceScope
    is_keyspace_level_gc: bool
    txn_safe_point: int
    gc_safe_point: int
    gc_barriers: _containers.RepeatedCompositeFieldContainer[GCBarrierInfo]
    def __init__(self, keyspace_scope: _Optional[_Union[KeyspaceScope, _Mapping]] = ..., is_keyspace_level_gc: _Optional[bool] = ..., txn_safe_point: _Optional[int] = ..., gc_safe_point: _Optional[int] = ..., gc_barriers: _Optional[_Iterable[_Union[GCBarrierInfo, _Mapping]]] = ...) -> None: ...

class GetGCStateRequest(_message.Message):
    __slots__ = ("header", "keyspace_scope")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    keyspace_scope: KeyspaceScope
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., keyspace_scope: _Optional[_Union[KeyspaceScope, _Mapping]] = ...) -> None: ...

class GetGCStateResponse(_message.Message):
    __slots__ = ("header", "gc_state")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    GC_STATE_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    gc_state: GCState
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., gc_state: _Optional[_Union[GCState, _Mapping]] = ...) -> None: ...
