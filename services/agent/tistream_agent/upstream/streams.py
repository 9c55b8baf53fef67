"""The change streams of TiKV stores: EventFeedV2, or EventFeed if a store lacks it (upstream-formats 6.4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NamedTuple

import grpc

from tistream.concurrency import new_lock, start_thread
from tistream.errors import TiStreamError, Unavailable
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream_agent.core.steps import CloseStream, Deregister, OpenStream, Register, StreamEnded
from tistream_agent.inbox import Inbox
from tistream_agent.upstream.old_feed import convert
from tistream_agent.upstream.pd import PdClient, TikvStore
from tistream_agent.upstream.stores import Channels

log = logging.getLogger(__name__)

# A TiKV takes its features from this version of the first request. It must parse as semver: one that does not gets no
# resolved_ts at all.
TICDC_VERSION = "8.5.4"
_KV_APIS = (cdcpb.ChangeDataRequest.TiDB, cdcpb.ChangeDataRequest.RawKV)


class StreamKind(NamedTuple):
    """A kind of change stream: its gRPC method, and the metadata of a call."""

    method: str
    metadata: tuple[tuple[str, str], ...] = ()


EVENT_FEED_V2 = StreamKind("/cdcpb.ChangeData/EventFeedV2", (("features", "stream-multiplexing"),))
EVENT_FEED = StreamKind("/cdcpb.ChangeData/EventFeed")


@dataclass(slots=True, eq=False)
class _Feed:
    """One gRPC call. With EventFeed, `regions` has the request_id of each subscribed region."""

    requests: SimpleQueue[bytes | None] = field(default_factory=SimpleQueue)
    regions: dict[int, int] = field(default_factory=dict)
    call: Any = None
    closed: bool = False

    def close(self) -> None:
        self.closed = True
        self.requests.put(None)
        if self.call is not None:
            self.call.cancel()


@dataclass(slots=True, eq=False)
class _Stream:
    """A change stream of one store. `old`: the store supports only EventFeed. Then a second subscription to the same
    region, as after a merge of regions, needs another gRPC call; so a stream may have several calls, which begin and
    end together."""

    number: int
    store_id: int
    old: bool
    feeds: list[_Feed] = field(default_factory=list)

    def close(self) -> None:
        for feed in self.feeds:
            feed.close()


class StoreStreams:
    """Opens, uses and reads change streams. Each stream has a thread that puts the received messages into the inbox.
    `on_bytes` is called with the size of each message."""

    def __init__(
        self,
        pd: PdClient,
        channels: Channels,
        inbox: Inbox,
        cluster_id: int,
        on_bytes: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._pd, self._channels, self._inbox = pd, channels, inbox
        self._cluster_id, self._on_bytes = cluster_id, on_bytes
        self._lock = new_lock()
        self._streams: dict[int, _Stream] = {}
        self._stores: dict[int, TikvStore] = {}
        self._old: set[int] = set()  # stores without EventFeedV2

    def open(self, command: OpenStream) -> None:
        """Begin a stream. Registrations may follow at once. A failure is reported as the event StreamEnded."""
        with self._lock:
            stream = _Stream(command.stream, command.tikv_store_id, command.tikv_store_id in self._old)
            self._streams[stream.number] = stream
            self._begin(stream)

    def register(self, command: Register) -> None:
        """Send a registration. If the stream has ended, do nothing."""
        request = self._request(command.request_id)
        request.region_id = command.region_id
        request.region_epoch.conf_ver = command.conf_ver
        request.region_epoch.version = command.version
        request.checkpoint_ts = command.checkpoint_ts
        request.start_key, request.end_key = command.encoded_start, command.encoded_end
        request.extra_op = cdcpb.ChangeDataRequest.ReadOldValue
        request.kv_api = _KV_APIS[command.kv_api]
        request.register.SetInParent()
        self._send(command.stream, request)

    def deregister(self, command: Deregister) -> None:
        """End the subscription of a region. If the stream has ended, do nothing."""
        request = self._request(command.request_id)
        request.region_id = command.region_id
        request.deregister.SetInParent()
        self._send(command.stream, request)

    def end(self, command: CloseStream) -> None:
        """Close a stream."""
        with self._lock:
            stream = self._streams.pop(command.stream, None)
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """Close all streams: TiKV ends their subscriptions."""
        with self._lock:
            streams = list(self._streams.values())
            self._streams.clear()
        for stream in streams:
            stream.close()

    def _request(self, request_id: int) -> cdcpb.ChangeDataRequest:
        request = cdcpb.ChangeDataRequest(request_id=request_id)
        request.header.cluster_id, request.header.ticdc_version = self._cluster_id, TICDC_VERSION
        return request

    def _send(self, number: int, request: cdcpb.ChangeDataRequest) -> None:
        data = request.SerializeToString()
        with self._lock:
            stream = self._streams.get(number)
            if stream is None:
                return
            feeds = stream.feeds[:]
            if stream.old and request.HasField("register"):
                free = (feed for feed in feeds if request.region_id not in feed.regions)
                feeds = [next(free, None) or self._begin(stream)]
                feeds[0].regions[request.region_id] = request.request_id
        for feed in feeds:
            feed.requests.put(data)

    def _begin(self, stream: _Stream) -> _Feed:
        feed = _Feed()
        stream.feeds.append(feed)
        start_thread(f"stream-{stream.number}-of-{stream.store_id}", lambda: self._run(stream, feed))
        return feed

    def _run(self, stream: _Stream, feed: _Feed) -> None:
        reason, unreadable = "the store ended it", False
        try:
            with self._channels.open(self._address(stream.store_id)) as channel:
                self._read(stream, feed, channel)
        except grpc.RpcError as error:
            reason = self._status(stream, error)
            unreadable = _is_too_large(error)
        except TiStreamError as error:
            reason = str(error)
        except Exception as error:  # the machine must learn that the stream has ended, or its regions stand still
            log.exception("a stream ended in an unexpected way", extra={"store": stream.store_id})
            reason = f"unexpected {type(error).__name__}: {error}"
        with self._lock:
            known = self._streams.pop(stream.number, None) is not None
            self._stores.pop(stream.store_id, None)  # the store may have moved
        stream.close()
        if known:
            log.info("stream ended", extra={"store": stream.store_id, "reason": reason})
            self._inbox.put(StreamEnded(stream.number, reason, unreadable))

    def _read(self, stream: _Stream, feed: _Feed, channel: grpc.Channel) -> None:
        kind = EVENT_FEED if stream.old else EVENT_FEED_V2
        method = channel.stream_stream(kind.method, request_serializer=None, response_deserializer=None)
        feed.call = method(_until_none(feed.requests), metadata=kind.metadata)
        if feed.closed:
            feed.call.cancel()
        for message in feed.call:
            self._on_bytes(len(message))
            for one in self._converted(feed, message) if stream.old else (message,):
                if not self._inbox.receive(stream.number, one):
                    feed.call.cancel()
                    return

    def _converted(self, feed: _Feed, message: bytes) -> list[bytes]:
        with self._lock:
            found = convert(message, feed.regions)
            for region_id, request_id in found.ended:
                if feed.regions.get(region_id) == request_id:
                    del feed.regions[region_id]
        return found.messages

    def _status(self, stream: _Stream, error: grpc.RpcError) -> str:
        code = error.code() if isinstance(error, grpc.Call) else None
        details = error.details() if isinstance(error, grpc.Call) else str(error)
        if code is grpc.StatusCode.UNIMPLEMENTED:
            with self._lock:
                self._old.add(stream.store_id)  # the next stream to it is EventFeed
        return f"{code.name if code is not None else 'error'}: {details}"

    def _address(self, store_id: int) -> str:
        with self._lock:
            store = self._stores.get(store_id)
        if store is None:
            found = {store.store_id: store for store in self._pd.stores()}
            with self._lock:
                self._stores = found
            store = found.get(store_id)
        if store is None:
            raise Unavailable(f"PD knows no TiKV store {store_id}")
        return store.address


def _is_too_large(error: grpc.RpcError) -> bool:
    """Whether a stream has ended because gRPC does not receive a message of that size here. A TiKV may end a stream
    with the same status for reasons of its own."""
    if not isinstance(error, grpc.Call) or error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return False
    return "message larger than max" in (error.details() or "")


def _until_none(requests: SimpleQueue[bytes | None]) -> Iterator[bytes]:
    return iter(requests.get, None)
