"""Messages of EventFeed, the call of TiKVs before multiplexing, in the form of EventFeedV2. Pure.

There a stream has one subscription of a region, and a resolved_ts has request_id 0 (upstream-doors 1).
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from tistream.wire.tikv import cdcpb_pb2 as cdcpb


def with_request_ids(message: bytes, requests: Mapping[int, int]) -> list[bytes]:
    """The message, with a resolved_ts for each request instead of one for all regions.

    `requests`: the newest request_id by region. A region without one is left out. A message that is not protobuf is
    returned as it is: the scanner refuses it.
    """
    try:
        found = cdcpb.ChangeDataEvent.FromString(message)
    except DecodeError:
        return [message]
    if not found.HasField("resolved_ts") or found.resolved_ts.request_id:
        return [message]
    return [
        cdcpb.ChangeDataEvent(
            resolved_ts=cdcpb.ResolvedTs(regions=[region], ts=found.resolved_ts.ts, request_id=requests[region])
        ).SerializeToString()
        for region in found.resolved_ts.regions
        if region in requests
    ]
