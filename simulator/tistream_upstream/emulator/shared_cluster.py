"""The emulated cluster under a lock, which its servers share, and helpers that make handlers of gRPC calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import grpc

from tistream_upstream.emulator.model.feed import Feed
from tistream_upstream.emulator.model.upstream import Upstream

Service: TypeAlias = "grpc.GenericRpcHandler[Any, Any]"
Method: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Shared:
    """The emulated cluster under a lock. `changed` is notified when a stream has something to send, or has ended."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.changed = threading.Condition()
        self.stopping = False
        self.held = False  # its time stands until the first registration of a region that exists
        self.streams: list[Feed] = []  # that clients have open
        self.addresses: dict[int, str] = {}  # of stores
        self.pd_url = ""

    def advance(self, to_us: int) -> None:
        """Advance the cluster's clock, under the lock; what streams have to send since then is sent."""
        self.upstream.advance(to_us)
        if any(feed.waiting or feed.closed for feed in self.streams):
            self.changed.notify_all()

    def call(self, rpc: str, answer: Callable[[Upstream], Any]) -> Any:
        """Answer a call under the lock, and count it."""
        with self.changed:
            self.upstream.counters.calls[rpc] += 1
            return answer(self.upstream)


def unary(handler: Callable[[Any, grpc.ServicerContext], Any], request: Any) -> Method:
    """The handler of a call with one request of the given message class."""
    return grpc.unary_unary_rpc_method_handler(
        handler, request_deserializer=request.FromString, response_serializer=lambda answer: answer.SerializeToString()
    )


def bidirectional(handler: Callable[[Any, grpc.ServicerContext], Any], request: Any) -> Method:
    """The handler of a stream of requests of the given message class, which is answered by a stream."""
    return grpc.stream_stream_rpc_method_handler(
        handler, request_deserializer=request.FromString, response_serializer=lambda answer: answer.SerializeToString()
    )
