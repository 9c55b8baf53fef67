"""The map of a territory's keys, which one agent reads. Every key is in exactly one piece, a span of keys with one
state. Pure.

A piece waits for PD's answer, must be registered at a region's leader, or has a subscription. A change replaces one
piece by pieces that tile it (cover it without gap and overlap). This is asserted each time, so the pieces always tile
the territory. Every piece has the ts from which it must be registered next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from sortedcontainers import SortedDict, SortedSet

from tistream.model.span import KeySpan
from tistream_agent.core.keys import Region


@dataclass(frozen=True, slots=True)
class WaitsForRegion:
    """The state of a piece whose region PD must be asked for.

    `scan` is the call under way; 0 if no call is under way, and then none begins before `not_before_ms`. `failures`
    counts the subscriptions in a row that have ended without progress, for the back-off.
    """

    not_before_ms: int
    scan: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class ToRegister:
    """The state of a piece that can be registered, because its region and the region's leader are known. `call` is the
    TSO call under way for its log id; 0 if no call is under way."""

    region: Region
    not_before_ms: int
    call: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The state of a piece that has a subscription, `request_id`."""

    region: Region
    request_id: int
    failures: int = 0


State = WaitsForRegion | ToRegister | Subscribed


# Of a piece, for metrics; the scan of a subscription that is not `scanning` has ended.
WAITING, TO_REGISTER, SCANNING, LIVE = PIECE_STATES = ("waiting_for_pd", "to_register", "scanning", "live")


@dataclass(frozen=True, slots=True)
class Piece:
    """A span of keys in TiKV's form, with the ts up to which the files are complete for them, and their state since
    `since_ms`.

    `received_ts` is the highest resolved_ts that this process has received for all of the keys; 0 if it has received
    none. `hold_ts`: in a range log, the limit that late locks set until the next scan of the piece ends; 0: no limit.
    """

    span: KeySpan
    base_ts: int
    state: State
    since_ms: int
    received_ts: int = 0
    hold_ts: int = 0

    @property
    def reached_ts(self) -> int:
        """The ts that a range log may promise for the piece while it has no subscription."""
        return min(self.base_ts, self.hold_ts or self.base_ts)


class Territory:
    """The pieces of a territory, which can be looked up by their start key."""

    def __init__(self, span: KeySpan, pieces: Iterable[Piece]) -> None:
        """`pieces` must cover `span` without gap and overlap."""
        self.span = span
        self._pieces: SortedDict[bytes, Piece] = SortedDict({piece.span.start: piece for piece in pieces})
        self._subscribed: dict[int, bytes] = {}
        self._unsubscribed: set[bytes] = set()  # starts of pieces that are not subscribed
        self.waiting: set[bytes] = set()  # starts of pieces of which PD is to be asked
        # By store, (base_ts, start) of the pieces that are to be registered there and have no TSO call.
        self.known: dict[int, SortedSet[tuple[int, bytes]]] = {}
        for piece in self._pieces.values():
            self._index(piece)
        self.check()

    def __len__(self) -> int:
        return len(self._pieces)

    def pieces(self) -> list[Piece]:
        """All pieces in key order."""
        return list(self._pieces.values())

    def at(self, start: bytes) -> Piece:
        """The piece that begins at this key."""
        piece: Piece = self._pieces[start]
        return piece

    def subscribed(self, request_id: int) -> Piece | None:
        """The piece that has this subscription; None if the subscription has ended."""
        start = self._subscribed.get(request_id)
        return None if start is None else self.at(start)

    def unsubscribed(self) -> list[Piece]:
        """The pieces without a subscription, in any order."""
        return [self.at(start) for start in self._unsubscribed]

    def overlapping(self, span: KeySpan) -> list[Piece]:
        """The pieces that have a key in `span`, in key order."""
        first = max(0, self._pieces.bisect_right(span.start) - 1)
        beyond = self._pieces.bisect_left(span.end) if span.end else len(self._pieces)
        keys = self._pieces.keys()[first:beyond]
        return [piece for key in keys if (piece := self._pieces[key]).span.overlaps(span)]

    def put(self, piece: Piece) -> None:
        """Replace the piece with the same span by `piece`."""
        self.replace(self.at(piece.span.start), [piece])

    def replace(self, old: Piece, new: Sequence[Piece]) -> None:
        """Replace a piece by pieces that cover it. Asserts that they do so without gap and overlap, and that no promise
        is lowered."""
        assert self._pieces.get(old.span.start) is old, f"{old.span} is not a piece of the territory"
        assert_tiled(old.span, [piece.span for piece in new])
        assert all(piece.base_ts >= old.base_ts for piece in new), f"{old.span}: a promise went back"
        del self._pieces[old.span.start]
        self._forget(old)
        for piece in new:
            self._pieces[piece.span.start] = piece
            self._index(piece)

    def join(self, pieces: Sequence[Piece]) -> Piece:
        """Join neighbouring pieces of one region that must be registered, because each region gets one subscription.
        The promise of the joined piece is the lowest of theirs."""
        first, last = pieces[0], pieces[-1]
        assert_tiled(KeySpan(first.span.start, last.span.end), [piece.span for piece in pieces])
        base_ts = min(piece.base_ts for piece in pieces)
        received_ts = min(piece.received_ts for piece in pieces)
        hold_ts = min((piece.hold_ts for piece in pieces if piece.hold_ts), default=0)
        span = KeySpan(first.span.start, last.span.end)
        out = replace(first, span=span, base_ts=base_ts, received_ts=received_ts, hold_ts=hold_ts)
        for piece in pieces:
            assert isinstance(piece.state, ToRegister)
            assert not piece.state.call
            assert self._pieces.pop(piece.span.start) is piece
            self._forget(piece)
        self._pieces[out.span.start] = out
        self._index(out)
        return out

    def check(self) -> None:
        """Assert that the pieces tile the territory and that the indexes agree with them."""
        pieces = self.pieces()
        assert_tiled(self.span, [piece.span for piece in pieces])
        assert self.waiting == {
            p.span.start for p in pieces if isinstance(p.state, WaitsForRegion) and not p.state.scan
        }
        assert self._unsubscribed == {p.span.start for p in pieces if not isinstance(p.state, Subscribed)}
        known = {one for its in self.known.values() for one in its}
        assert known == {
            (p.base_ts, p.span.start) for p in pieces if isinstance(p.state, ToRegister) and not p.state.call
        }
        subscribed = {p.state.request_id: p.span.start for p in pieces if isinstance(p.state, Subscribed)}
        assert self._subscribed == subscribed

    def _index(self, piece: Piece) -> None:
        if not isinstance(piece.state, Subscribed):
            self._unsubscribed.add(piece.span.start)
        match piece.state:
            case WaitsForRegion(scan=0):
                self.waiting.add(piece.span.start)
            case ToRegister(call=0, region=region):
                self.known.setdefault(region.leader_store, SortedSet()).add((piece.base_ts, piece.span.start))
            case Subscribed(request_id=request_id):
                assert request_id not in self._subscribed, f"request {request_id} has two pieces"
                self._subscribed[request_id] = piece.span.start

    def _forget(self, piece: Piece) -> None:
        """Remove a piece from the indexes."""
        self._unsubscribed.discard(piece.span.start)
        match piece.state:
            case WaitsForRegion():
                self.waiting.discard(piece.span.start)
            case ToRegister(region=region):
                if (its := self.known.get(region.leader_store)) is not None:
                    its.discard((piece.base_ts, piece.span.start))
            case Subscribed(request_id=request_id):
                del self._subscribed[request_id]


def assert_tiled(span: KeySpan, parts: Sequence[KeySpan]) -> None:
    """Assert that the parts, in this order, cover the span without gap and overlap."""
    assert parts, f"{span} has no part"
    assert (parts[0].start, parts[-1].end) == (span.start, span.end), f"the parts of {span} have other bounds"
    for left, right in pairwise(parts):
        assert left.end == right.start > b"", f"a hole or an overlap at {right.start.hex()}"


def cut_by_regions(
    piece: Piece,
    regions: Sequence[tuple[KeySpan, Region]],
    now_ms: int,
    hole_wait_ms: int,
    failures: int = 0,
    gap: KeySpan | None = None,
) -> list[Piece]:
    """Cut a piece at the bounds of the regions in PD's answer, which are given with their raw spans.

    The keys of a region with a leader can be registered. Keys without a region, and those of a region without a leader,
    wait for `hole_wait_ms`. Of overlapping regions the one with the highest version counts. `failures`: as in
    WaitsForRegion. Keys of the `gap`, which the tenant does not use, are added to the part beside them: they need no
    region, and regions in the gap are ignored.
    """
    inside = [(part, region) for found, region in regions if (part := found.clip(piece.span)) is not None]
    empty = None if gap is None else gap.clip(piece.span)
    if empty is not None and empty != piece.span:
        inside = [one for one in inside if one[0].clip(empty) != one[0]]
    else:
        empty = None
    inside.sort(key=lambda one: one[0].start)
    bounds = sorted(
        {piece.span.start}
        | {p.start for p, _ in inside}
        | {p.end for p, _ in inside if p.end in piece.span}
        | (set() if empty is None else {one for one in (empty.start, empty.end) if one in piece.span})
    )
    out: list[Piece] = []
    owners: list[Region | None] = []
    over: list[tuple[KeySpan, Region]] = []
    at = 0
    for number, bound in enumerate(bounds):
        part = KeySpan(bound, bounds[number + 1] if number + 1 < len(bounds) else piece.span.end)
        while at < len(inside) and inside[at][0].start <= bound:
            over.append(inside[at])
            at += 1
        over = [one for one in over if bound in one[0]]
        owner = max((region for _, region in over), key=lambda region: (region.version, region.conf_ver), default=None)
        if owner is not None and not owner.leader_store:
            owner = None
        if owner is None and empty is not None and part.clip(empty) == part:
            if out:
                out[-1] = replace(out[-1], span=KeySpan(out[-1].span.start, part.end))
            continue
        state: State
        if owner is None:
            state = WaitsForRegion(now_ms + hole_wait_ms, failures=failures)
        else:
            state = ToRegister(owner, now_ms, failures=failures)
        if out and owners[-1] is owner:
            out[-1] = replace(out[-1], span=KeySpan(out[-1].span.start, part.end))
        else:
            span = part if out else KeySpan(piece.span.start, part.end)
            out.append(replace(piece, span=span, state=state, since_ms=now_ms))
            owners.append(owner)
    return out
