"""Decides how the keys of a tenant are divided into territories (docs/agent.md, "Several agents"). Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tistream.model.span import WHOLE, KeySpan, merge_spans
from tistream_agent.core.chain import Position
from tistream_agent.core.keys import KeyMap, Region, raw_bound
from tistream_agent.core.received.range_logs import bounds_among, ranges_of

REGIONS_MAX = 20_000  # of a territory; each has a watermark in every file, and a slice in every manifest


def first_keys(keys: KeyMap, regions: Iterable[Region]) -> list[bytes]:
    """The start keys of those `regions` that begin at a key of the tenant, in order, as keys of the platform. A region
    that begins before the tenant's first key, or in the gap between its keys, is left out."""
    wire, gap = keys.on_wire(WHOLE), keys.gap_on_wire
    assert wire is not None
    found = {raw_bound(region.encoded_start) for region in regions}
    inside = sorted(one for one in found if one in wire and not (gap is not None and one in gap))
    return [one[len(keys.prefix) :] for one in inside]


def not_taken(taken: Sequence[KeySpan]) -> list[KeySpan]:
    """The keys that no territory has yet. `taken`: the spans of those that exist."""
    free, at = list[KeySpan](), b""
    for span in merge_spans(taken, max(1, len(taken))):
        if at < span.start:
            free.append(KeySpan(at, span.start))
        at = span.end
        if not at:
            return free
    return [*free, KeySpan(at, b"")]


def covers(position: Position, span: KeySpan) -> bool:
    """Whether the promises of a chain's newest file (`position`) cover every key of `span`, so that the chain can
    continue with these keys."""
    missing = not_taken([promise.span for promise in position.promises])
    return not any(one.overlaps(span) for one in missing)


def divided(span: KeySpan, starts: Sequence[bytes], most: int = REGIONS_MAX) -> list[KeySpan]:
    """Cut a span of keys into territories of about equal size, none with more than `most` regions. `starts`: the first
    keys of all regions."""
    inside = [one for one in starts if one in span and one != span.start]
    return ranges_of(span, bounds_among(inside, len(inside) // most + 1))


def oversized(taken: Mapping[int, KeySpan], starts: Sequence[bytes], most: int) -> Iterator[tuple[int, int]]:
    """Yield the id and the number of regions of each territory that has more than `most` regions. `starts`: the first
    keys of all regions, in order."""
    for number, span in sorted(taken.items()):
        beyond = bisect_left(starts, span.end) if span.end else len(starts)
        regions = beyond - bisect_left(starts, span.start)
        if regions > most:
            yield number, regions
