"""A TiDB cluster's regions as PD names them, and what TiKV sends of them to an agent."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tistream.model.span import KeySpan
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream_agent.core import chain, steps
from tistream_agent.core.keys import Region, encoded_bound

BASE_TS = 1_000_000 << 18
STORES = 3
_ROWS = 100  # regions of a table


def spans(count: int) -> list[KeySpan]:
    """Raw spans of `count` regions, which tile all keys."""
    bounds = [b"", *(_key(number) for number in range(1, count)), b""]
    return [KeySpan(start, end) for start, end in pairwise(bounds)]


def regions(count: int) -> list[Region]:
    """The regions, led by the stores in turn."""
    return [
        Region(number + 1, encoded_bound(span.start), encoded_bound(span.end), 1, 1, number % STORES + 1)
        for number, span in enumerate(spans(count))
    ]


def position(count: int) -> chain.Position:
    """The chain of an agent that was killed: each region had been told another ts."""
    promises = tuple(chain.Promise(span, BASE_TS + number) for number, span in enumerate(spans(count)))
    return chain.Position(BASE_TS + 1, BASE_TS + 2, promises)


def _key(number: int) -> bytes:
    table, row = 1 << 63 | number // _ROWS, 1 << 63 | number % _ROWS * 10_000
    return b"t" + table.to_bytes(8, "big") + b"_r" + row.to_bytes(8, "big")


def initialized(request: steps.Register) -> bytes:
    """The end of a scan that found nothing."""
    event = cdcpb.Event(region_id=request.region_id, request_id=request.request_id)
    event.entries.entries.add(type=cdcpb.Event.INITIALIZED)
    return cdcpb.ChangeDataEvent(events=[event]).SerializeToString()


def resolved(requests: Iterable[steps.Register], ts: int) -> dict[int, list[bytes]]:
    """By stream, TiKV's messages: of the regions of a request, at most 8, 32, 128 and so on (upstream-formats 6.2)."""
    groups: dict[tuple[int, int], list[int]] = {}
    for one in requests:
        groups.setdefault((one.stream, one.request_id), []).append(one.region_id)
    out: dict[int, list[bytes]] = {}
    for (stream, request_id), regions_ in groups.items():
        at, size = 0, 8
        while at < len(regions_):
            told = cdcpb.ResolvedTs(regions=regions_[at : at + size], ts=ts, request_id=request_id)
            out.setdefault(stream, []).append(cdcpb.ChangeDataEvent(resolved_ts=told).SerializeToString())
            at, size = at + size, 4 * size
    return out
