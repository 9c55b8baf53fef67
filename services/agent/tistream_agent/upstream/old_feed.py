"""Converts messages of EventFeed, the change stream of older TiKV versions, to the form of EventFeedV2.

Pure. In EventFeed a call has at most one subscription for each region, and a resolved_ts has request_id 0
(upstream-formats 6.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from tistream.wire.tikv import cdcpb_pb2 as cdcpb


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of a conversion. `messages` are in the form of EventFeedV2. `ended` has the (region, request_id) of
    each subscription that has ended."""

    messages: list[bytes]
    ended: tuple[tuple[int, int], ...] = ()


def convert(message: bytes, requests: Mapping[int, int]) -> Converted:
    """Convert a message: a resolved_ts for several regions becomes one for each request.

    `requests` has the request_id of the call's subscription, by region. Regions without a subscription are left out. A
    message that is not protobuf is returned unchanged; the parser (core/scanner.py) rejects it.
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
