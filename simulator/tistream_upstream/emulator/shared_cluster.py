"""The emulated cluster behind a lock, which all servers use, and helpers that make handlers of gRPC calls."""

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
    """The emulated cluster, behind a lock. `changed` is notified when a stream has something to send, or has ended."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.changed = threading.Condition()
        self.stopping = False
        self.held = False  # its time stands until the first registration of a region that exists
        self.streams: list[Feed] = []  # that clients have open
        self.addresses: dict[int, str] = {}  # of stores
        self.pd_url = ""

    def advance(self, to_us: int) -> None:
        """Advance the cluster's clock, and wake the streams that have something to send. The caller must hold the lock
        (`changed`)."""
        self.upstream.advance(to_us)
        if any(feed.waiting or feed.closed for feed in self.streams):
            self.changed.notify_all()

    def call(self, rpc: str, answer: Callable[[Upstream], Any]) -> Any:
        """Call `answer` with the cluster while the lock is held, and return its result. Counts the call under the name
        `rpc`."""
        with self.changed:
            self.upstream.counters.calls[rpc] += 1
            return answer(self.upstream)


def unary(handler: Callable[[Any, grpc.ServicerContext], Any], request: Any) -> Method:
    """Make the handler of a gRPC call that has one request of the given message class, and one answer."""
    return grpc.unary_unary_rpc_method_handler(
        handler, request_deserializer=request.FromString, response_serializer=lambda answer: answer.SerializeToString()
    )


def bidirectional(handler: Callable[[Any, grpc.ServicerContext], Any], request: Any) -> Method:
    """Make the handler of a gRPC call with a stream of requests of the given message class, and a stream of answers."""
    return grpc.stream_stream_rpc_method_handler(
        handler, request_deserializer=request.FromString, response_serializer=lambda answer: answer.SerializeToString()
    )
