"""RawKV of a TiKV cluster: checks whether its stores stream changes, and makes the `schema_snap` of a RawKV tenant,
which has no schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import orjson

from tistream.concurrency import new_event
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream_agent.upstream.stores import Channels
from tistream_agent.upstream.streams import EVENT_FEED, EVENT_FEED_V2, TICDC_VERSION, StreamKind

_NO_REGION = (1 << 63) - 1  # TiKV checks the API version before it looks for the region (upstream-formats 6.5)


def raw_snapshot(ts: int) -> bytes:
    """Encode the `schema_snap` of a RawKV tenant whose changes begin at `ts` (TSO)."""
    return orjson.dumps({"version": 1, "kind": "raw", "snapshot_ts": ts, "databases": []})


def raw_refusal(channels: Channels, address: str, cluster_id: int, call_s: float) -> str:
    """Ask a store whether it streams the changes of RawKV. The call may take `call_s` seconds. Returns an empty text if
    it does, otherwise the reason: its refusal, or the failure of the call. The request names a region that does not
    exist, so nothing is scanned."""
    header = cdcpb.Header(cluster_id=cluster_id, ticdc_version=TICDC_VERSION)
    request = cdcpb.ChangeDataRequest(
        header=header, region_id=_NO_REGION, request_id=1, kv_api=cdcpb.ChangeDataRequest.RawKV
    )
    try:
        with channels.open(address) as channel:
            try:
                return _answer(channel, EVENT_FEED_V2, request, call_s)
            except grpc.RpcError as error:
                if not isinstance(error, grpc.Call) or error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
                return _answer(channel, EVENT_FEED, request, call_s)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)


def _answer(channel: grpc.Channel, kind: StreamKind, request: cdcpb.ChangeDataRequest, call_s: float) -> str:
    """Send a registration on a change stream of this kind. Returns the reason why it is refused, as
    `raw_refusal` does. Raises grpc.RpcError."""
    answered = new_event()

    def requests() -> Iterator[Any]:
        yield request
        answered.wait(call_s)  # a stream whose client has no more to say may be ended before its answer

    call = channel.stream_stream(
        kind.method,
        request_serializer=cdcpb.ChangeDataRequest.SerializeToString,
        response_deserializer=cdcpb.ChangeDataEvent.FromString,
    )(requests(), timeout=call_s, metadata=kind.metadata)
    try:
        for message in call:
            for event in message.events:
                return _refusal(event.error)
    finally:
        answered.set()
        call.cancel()  # type: ignore[no-untyped-call]
    return "it has ended the stream without an answer"


def _refusal(error: cdcpb.Error) -> str:
    if not error.HasField("compatibility"):
        return ""
    required = error.compatibility.required_version
    return (
        f"its API is V1, which has no timestamps: RawKV needs storage.api-version = 2 and TiKV {required or '6.2.0'} "
        "or newer"
    )
