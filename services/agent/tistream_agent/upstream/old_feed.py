"""Messages of EventFeed, the call of TiKVs before multiplexing, in the form of EventFeedV2. Pure.

There a call has one subscription of a region, and a resolved_ts has request_id 0 (upstream-doors 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from tistream.wire.tikv import cdcpb_pb2 as cdcpb


@dataclass(frozen=True, slots=True)
class Converted:
    """`messages`: in the form of EventFeedV2. `ended`: (region, request_id) of each subscription that has ended."""

    messages: list[bytes]
    ended: tuple[tuple[int, int], ...] = ()


def convert(message: bytes, requests: Mapping[int, int]) -> Converted:
    """The message, with a resolved_ts for each request instead of one for all regions.

    `requests`: the request_id of the call's subscription by region. A region without one is left out. A message that
    is not protobuf is returned as it is: the scanner refuses it.
    """
    try:
        found = cdcpb.ChangeDataEvent.FromString(message)
    except DecodeError:
        return Converted([message])
    ended = tuple((event.region_id, event.request_id) for event in found.events if event.HasField("error"))
    if not found.HasField("resolved_ts") or found.resolved_ts.request_id:
        return Converted([message], ended)
    resolved = [
        cdcpb.ChangeDataEvent(
            resolved_ts=cdcpb.ResolvedTs(regions=[region], ts=found.resolved_ts.ts, request_id=requests[region])
        ).SerializeToString()
        for region in found.resolved_ts.regions
        if region in requests
    ]
    return Converted(resolved, ended)
