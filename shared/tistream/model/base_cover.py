"""The cover of a tenant: the spans of keys whose rows are all known, each with the ts from which on they are. Backfills
add to it (docs/backfill.md). Pure.

A *base* states that all rows of a span are known as of its base_ts. With the changes in the log they are then known at
every later ts too. Where two bases overlap, the newer one counts. The bases of a cover are in key order and do not
overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

from tistream.model.span import KeySpan


@dataclass(frozen=True, slots=True)
class Base:
    """States that all rows of `span` are known as of `base_ts`, a TSO."""

    span: KeySpan
    base_ts: int


@dataclass(frozen=True, slots=True)
class Hole:
    """A span of keys without a base: its rows from before the log are not known."""

    span: KeySpan


Cover = tuple[Base, ...]


def laid_over(cover: Cover, added: Iterable[Base]) -> Cover:
    """Add bases to a cover. Where bases overlap, the one with the newest base_ts counts. Adjacent bases with equal
    base_ts become one. The order of `added` does not matter."""
    waiting = sorted([*cover, *added], key=lambda base: base.span.start, reverse=True)
    cuts = sorted({bound for base in waiting for bound in (_low(base.span), _high(base.span))})
    open_bases: list[tuple[int, tuple[int, bytes]]] = []  # a heap: the newest base first
    out: list[Base] = []
    for low, high in pairwise(cuts):
        while waiting and _low(waiting[-1].span) <= low:
            base = waiting.pop()
            heappush(open_bases, (-base.base_ts, _high(base.span)))
        while open_bases and open_bases[0][1] <= low:
            heappop(open_bases)
        if not open_bases:
            continue
        newest, span = -open_bases[0][0], KeySpan(low[1], high[1])
        if out and out[-1].base_ts == newest and out[-1].span.end == span.start:
            out[-1] = Base(KeySpan(out[-1].span.start, span.end), newest)
        else:
            out.append(Base(span, newest))
    return tuple(out)


def clipped(cover: Cover, span: KeySpan) -> Cover:
    """Restrict a cover to `span`: the bases that overlap it, cut at its ends."""
    first = max(0, bisect_right(cover, span.start, key=lambda base: base.span.start) - 1)
    out = []
    for base in cover[first:]:
        if span.end and base.span.start >= span.end:
            break
        part = base.span.clip(span)
        if part is not None:
            out.append(Base(part, base.base_ts))
    return tuple(out)


def base_ts_of(cover: Cover, spans: Iterable[KeySpan]) -> int | Hole:
    """The lowest ts at which all rows of `spans` are known: the highest base_ts of the bases that cover them. Returns
    the first Hole if some keys have no base, and 0 if `spans` is empty."""
    highest = 0
    for span in spans:
        at: bytes | None = span.start
        for base in clipped(cover, span):
            if at is None or base.span.start > at:
                break
            highest = max(highest, base.base_ts)
            at = base.span.end or None
            if at == span.end:
                break
        reached = at is None or (bool(span.end) and at == span.end)
        if not reached:
            assert at is not None
            return Hole(KeySpan(at, _next_start(cover, at, span)))
    return highest


def holes(cover: Cover, spans: Iterable[KeySpan]) -> Iterator[KeySpan]:
    """The parts of `spans` that have no base, in order."""
    for span in spans:
        rest: KeySpan | None = span
        while rest is not None:
            found = base_ts_of(cover, [rest])
            if not isinstance(found, Hole):
                break
            yield found.span
            end = found.span.end
            rest = KeySpan(end, span.end) if end and end != span.end else None


def _next_start(cover: Cover, at: bytes, span: KeySpan) -> bytes:
    starts = [base.span.start for base in clipped(cover, span) if base.span.start > at]
    return min(starts) if starts else span.end


_INFINITE = (1, b"")


def _low(span: KeySpan) -> tuple[int, bytes]:
    return 0, span.start


def _high(span: KeySpan) -> tuple[int, bytes]:
    return (0, span.end) if span.end else _INFINITE
