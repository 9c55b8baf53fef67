"""The gRPC calls of a TiKV store, answered by the emulated cluster: change streams, reads, raw writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream.wire.tikv import kvrpcpb_pb2 as kvrpcpb
from tistream_upstream.emulator.model.feed import Feed
from tistream_upstream.emulator.model.quirks import MULTIPLEXING
from tistream_upstream.emulator.model.timeline import Row
from tistream_upstream.emulator.model.upstream import Upstream
from tistream_upstream.emulator.pd_service import health_handler
from tistream_upstream.emulator.shared_cluster import Service, Shared, bidirectional, unary

_WAIT_S = 1.0


def store_handlers(shared: Shared, number: int) -> list[Service]:
    """Make the handlers of a store's services `cdcpb.ChangeData`, `tikvpb.Tikv` and health."""
    streams, keys = _ChangeData(shared, number), _Tikv(shared, number)
    feeds = {"EventFeed": bidirectional(streams.feed, cdcpb.ChangeDataRequest)}
    if shared.upstream.stores[number].quirks.multiplexing:
        feeds["EventFeedV2"] = bidirectional(streams.feed_v2, cdcpb.ChangeDataRequest)
    calls = {
        "KvScan": unary(keys.scan, kvrpcpb.ScanRequest),
        "RawBatchPut": unary(keys.raw_batch_put, kvrpcpb.RawBatchPutRequest),
        "RawBatchDelete": unary(keys.raw_batch_delete, kvrpcpb.RawBatchDeleteRequest),
        "RawScan": unary(keys.raw_scan, kvrpcpb.RawScanRequest),
        "RawGetKeyTTL": unary(keys.raw_ttl, kvrpcpb.RawGetKeyTTLRequest),
    }
    return [
        grpc.method_handlers_generic_handler("cdcpb.ChangeData", feeds),
        grpc.method_handlers_generic_handler("tikvpb.Tikv", calls),
        health_handler(),
    ]


class _ChangeData:
    def __init__(self, shared: Shared, number: int) -> None:
        self._shared, self._number = shared, number

    def feed(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Serve EventFeed, in which a stream has at most one subscription to each region."""
        return self._stream(requests, context, multiplexing=False)

    def feed_v2(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Serve EventFeedV2. The client names its features in the metadata; an unknown feature is refused."""
        given = [str(value) for key, value in context.invocation_metadata() if key == "features"]
        features = [one.strip() for value in given for one in value.split(",") if one.strip()]
        unknown = [one for one in features if one != MULTIPLEXING]
        if unknown:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"features are not supported: {', '.join(unknown)}")
        return self._stream(requests, context, multiplexing=bool(features))

    def _stream(self, requests: Iterator[Any], context: grpc.ServicerContext, multiplexing: bool) -> Iterator[Any]:
        shared = self._shared
        with shared.changed:
            store = shared.upstream.stores[self._number]
            feed = store.open(multiplexing) if store.up else None
            shared.streams += [] if feed is None else [feed]
        if feed is None:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"store {self._number} is down")
            return
        context.add_callback(lambda: self._closed(feed))
        reader = threading.Thread(target=self._read, args=(requests, feed), name="emulated-requests", daemon=True)
        reader.start()
        yield from self._messages(feed, context)

    def _read(self, requests: Iterator[Any], feed: Feed) -> None:
        shared = self._shared
        try:
            for request in requests:
                with shared.changed:
                    upstream = shared.upstream
                    if feed.closed:
                        return
                    if request.region_id in upstream.regions.by_id:
                        shared.held = False
                    store = upstream.stores[self._number]
                    store.request(feed, request, upstream.tso(), upstream.gc.safe_point)
                    shared.changed.notify_all()
        except grpc.RpcError:
            self._closed(feed)  # the client ended its stream with an error: its subscriptions end too

    def _messages(self, feed: Feed, context: grpc.ServicerContext) -> Iterator[Any]:
        shared = self._shared
        while True:
            with shared.changed:
                while not (feed.waiting or feed.closed or shared.stopping):
                    shared.changed.wait(_WAIT_S)
                message = next(feed.take(), None)
                if message is not None:
                    shared.upstream.counters.sent_messages += 1
                    shared.upstream.counters.sent_bytes += message.ByteSize()
            if message is None:
                break
            yield message
        if feed.closed:
            context.abort(grpc.StatusCode.UNAVAILABLE, feed.closed)

    def _closed(self, feed: Feed) -> None:
        with self._shared.changed:
            feed.closed = feed.closed or "the client ended the stream"
            if feed in self._shared.streams:
                self._shared.streams.remove(feed)
            self._shared.upstream.stores[self._number].close(feed)
            self._shared.changed.notify_all()


class _Tikv:
    def __init__(self, shared: Shared, number: int) -> None:
        self._shared, self._number = shared, number

    def scan(self, request: kvrpcpb.ScanRequest, _: grpc.ServicerContext) -> kvrpcpb.ScanResponse:
        return self._shared.call("KvScan", lambda one: one.scan(self._number, request))  # type: ignore[no-any-return]

    def raw_scan(self, request: kvrpcpb.RawScanRequest, _: grpc.ServicerContext) -> kvrpcpb.RawScanResponse:
        return self._shared.call(  # type: ignore[no-any-return]
            "RawScan", lambda one: one.reads.raw_scan(self._number, request, one.tso(), one.now_ms // 1_000)
        )

    def raw_ttl(self, request: kvrpcpb.RawGetKeyTTLRequest, _: grpc.ServicerContext) -> kvrpcpb.RawGetKeyTTLResponse:
        def answer(one: Upstream) -> kvrpcpb.RawGetKeyTTLResponse:
            error = one.reads.region_error(self._number, request.context)
            if error is not None:
                return kvrpcpb.RawGetKeyTTLResponse(region_error=error)
            ttl = one.reads.raw_ttl(request.key, one.tso(), one.now_ms // 1_000)
            return kvrpcpb.RawGetKeyTTLResponse(ttl=ttl or 0, not_found=ttl is None)

        return self._shared.call("RawGetKeyTTL", answer)  # type: ignore[no-any-return]

    def raw_batch_put(
        self, request: kvrpcpb.RawBatchPutRequest, _: grpc.ServicerContext
    ) -> kvrpcpb.RawBatchPutResponse:
        def answer(one: Upstream) -> kvrpcpb.RawBatchPutResponse:
            error = one.raw_refusal(self._number, request.context)
            if error is not None:
                return kvrpcpb.RawBatchPutResponse(region_error=error)
            rows = one.reads.puts(request, one.now_ms // 1_000)
            return kvrpcpb.RawBatchPutResponse(error=self._write(one, request.context.region_id, rows))

        return self._shared.call("RawBatchPut", answer)  # type: ignore[no-any-return]

    def raw_batch_delete(
        self, request: kvrpcpb.RawBatchDeleteRequest, _: grpc.ServicerContext
    ) -> kvrpcpb.RawBatchDeleteResponse:
        def answer(one: Upstream) -> kvrpcpb.RawBatchDeleteResponse:
            error = one.raw_refusal(self._number, request.context)
            if error is not None:
                return kvrpcpb.RawBatchDeleteResponse(region_error=error)
            rows = one.reads.deletes(request)
            return kvrpcpb.RawBatchDeleteResponse(error=self._write(one, request.context.region_id, rows))

        return self._shared.call("RawBatchDelete", answer)  # type: ignore[no-any-return]

    def _write(self, upstream: Upstream, region_id: int, rows: Sequence[Row]) -> str:
        reads = upstream.reads
        problem = reads.raw_problem(region_id, upstream.config.api, rows)
        if not problem:
            upstream.apply(reads.command(region_id, upstream.now_us, rows, upstream.tso))
        return problem
