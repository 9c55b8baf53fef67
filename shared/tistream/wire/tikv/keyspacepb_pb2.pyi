from tistream.wire.tikv import pdpb_pb2 as _pdpb_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeyspaceMeta(_message.Message):
    __slots__ = ("id", "name", "state")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    state: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., state: _Optional[int] = ...) -> None: ...

class LoadKeyspaceRequest(_message.Message):
    __slots__ = ("header", "name")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    header: _pdpb_pb2.RequestHeader
    name: str
    def __init__(self, header: _Optional[_Union[_pdpb_pb2.RequestHeader, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class LoadKeyspaceResponse(_message.Message):
    __slots__ = ("header", "keyspace")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_FIELD_NUMBER: _ClassVar[int]
    header: _pdpb_pb2.ResponseHeader
    keyspace: KeyspaceMeta
    def __init__(self, header: _Optional[_Union[_pdpb_pb2.ResponseHeader, _Mapping]] = ..., keyspace: _Optional[_Union[KeyspaceMeta, _Mapping]] = ...) -> None: ...
