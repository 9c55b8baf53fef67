"""Plans how the pieces of a territory (spans of keys, territory.py) become subscriptions to change streams: which
regions and timestamps (for log ids) to request from PD, and at which stores to register. Pure.

The log id of a subscription is a TSO that PD gives after the previous subscription of the same keys was closed
(docs/agent.md, "Logs"). The chain's files have all changes of a piece up to a ts. TiKV is asked for the changes after
this ts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tistream.model.span import KeySpan
from tistream_agent.core import pacing
from tistream_agent.core.keys import Region, encoded_bound
from tistream_agent.core.pacing import StorePace
from tistream_agent.core.region_error import RegionError
from tistream_agent.core.steps import Command, OpenStream, Register, ScanRegions, TakeTimestamps
from tistream_agent.core.subscription import EndedSubscription, OpenedSubscription, Subscriptions
from tistream_agent.core.territory import Piece, Subscribed, Territory, ToRegister, WaitsForRegion, cut_by_regions
from tistream_agent.core.wire import ErrorKind

SCANS = 4  # calls of PD under way
_LEADERS_MAX = 3  # stores in a row that name another leader; then PD is asked


@dataclass(slots=True)
class _Batch:
    """The request_id that consecutive registrations at one store share. A region may occur once in it."""

    request_id: int = 0
    _store: int = 0
    _regions: set[int] = field(default_factory=set)

    def sent_as(self, store: int, region_id: int, request_id: int) -> int:
        """Return the request_id to send for the next registration, and record the registration: the request_id of the
        previous one if both can share it, otherwise `request_id`, a new one."""
        if store != self._store or region_id in self._regions:
            self.request_id, self._store, self._regions = request_id, store, set()
        self._regions.add(region_id)
        return self.request_id


@dataclass(slots=True)
class Planner:
    """Finds the region and the store of each piece of a territory that has no subscription, and registers the piece
    there, by the commands that its methods return. `kv_api`: steps.KV_TIDB or steps.KV_RAW. `paces`: for each store,
    how many registrations may be under way at a time."""

    territory: Territory
    subscriptions: Subscriptions
    kv_api: int
    paces: dict[int, StorePace] = field(default_factory=dict)
    streams: dict[int, int] = field(default_factory=dict)  # stream -> store, of streams that have not ended
    registrations: int = 0
    _scans: dict[int, KeySpan] = field(default_factory=dict)
    _call: int = 0  # the TSO call under way; 0: none
    _chosen: list[bytes] = field(default_factory=list)  # starts of the pieces that the call is for
    _last_scan_ms: int = -pacing.PD_COALESCE_MS
    _number: int = 0  # of the last scan, call, stream or request

    def _next(self) -> int:
        self._number += 1
        return self._number

    def pace(self, store_id: int) -> StorePace:
        """The limit of registrations at a store."""
        return self.paces.setdefault(store_id, StorePace())

    # -- what to do now -----------------------------------------------------------------------------------------------

    def plan(self, now_ms: int) -> list[Command]:
        """The calls to PD that are due now."""
        return self._scan_regions(now_ms) + self._take_timestamps(now_ms)

    def _scan_regions(self, now_ms: int) -> list[Command]:
        """Ask PD for regions, with one call for each sequence of neighbouring pieces that need them. There are at least
        50 ms between two such calls."""
        if not self.territory.waiting or now_ms - self._last_scan_ms < pacing.PD_COALESCE_MS:
            return []
        due = [
            piece
            for start in sorted(self.territory.waiting)
            if isinstance(state := (piece := self.territory.at(start)).state, WaitsForRegion)
            and state.not_before_ms <= now_ms
        ]
        out: list[Command] = []
        at = 0
        while at < len(due) and len(self._scans) < SCANS:
            run = [due[at]]
            at += 1
            while at < len(due) and due[at].span.start == run[-1].span.end:
                run.append(due[at])
                at += 1
            scan = self._next()
            span = KeySpan(run[0].span.start, run[-1].span.end)
            self._scans[scan] = span
            for piece in run:
                assert isinstance(piece.state, WaitsForRegion)
                self.territory.put(replace(piece, state=replace(piece.state, scan=scan)))
            out.append(ScanRegions(scan, encoded_bound(span.start), encoded_bound(span.end)))
            self._last_scan_ms = now_ms
        return out

    def _take_timestamps(self, now_ms: int) -> list[Command]:
        """Take timestamps from PD: one call for as many log ids as the limits of the stores permit. The pieces that are
        furthest behind come first."""
        if self._call:
            return []
        chosen: list[Piece] = []
        for store, known in self.territory.known.items():
            pace = self.pace(store)
            room = 0 if pace.not_before_ms > now_ms else pace.room
            for _, start in known if room else ():
                piece = self.territory.at(start)
                assert isinstance(piece.state, ToRegister)
                if piece.state.not_before_ms <= now_ms:
                    chosen.append(piece)
                    room -= 1
                if not room:
                    break
        if not chosen:
            return []
        self._call = self._next()
        for piece in chosen:
            assert isinstance(piece.state, ToRegister)
            self.territory.put(replace(piece, state=replace(piece.state, call=self._call)))
        self._chosen = [piece.span.start for piece in chosen]
        return [TakeTimestamps(self._call, len(chosen))]

    def look_at_clock(self) -> list[Command]:
        """Take one timestamp to learn PD's clock, unless a call for timestamps is under way."""
        if self._call:
            return []
        self._call = self._next()
        return [TakeTimestamps(self._call, 1)]

    # -- answers ------------------------------------------------------------------------------------------------------

    def regions_found(self, scan: int, regions: Sequence[Region], now_ms: int) -> None:
        """Cut the pieces that waited for the call `scan` at the bounds of `regions`, PD's answer. Then join
        neighbouring pieces that are in one region."""
        span = self._scans.pop(scan, None)
        if span is None:
            return
        found = [(its, region) for region in regions if region.is_known and (its := region.raw_span()) is not None]
        found.sort(key=lambda one: one[0].start)
        near: list[tuple[KeySpan, Region]] = []  # those that may have keys of the piece
        at = 0
        for piece in self.territory.overlapping(span):
            end = piece.span.end
            while at < len(found) and (not end or found[at][0].start < end):
                near.append(found[at])
                at += 1
            near = [one for one in near if not one[0].end or one[0].end > piece.span.start]
            state = piece.state
            if isinstance(state, WaitsForRegion) and state.scan == scan:
                gap = self.subscriptions.keys.gap_on_wire
                cut = cut_by_regions(piece, near, now_ms, pacing.HOLE_WAIT_MS, state.failures, gap)
                self.territory.replace(piece, cut)
        self._join(span)

    def _join(self, span: KeySpan) -> None:
        """Join those neighbouring pieces of `span` that are in one region, and with range logs also in one range, and
        for which no timestamp has been requested yet."""
        run: list[Piece] = []
        for piece in [*self.territory.overlapping(span), None]:
            state = None if piece is None else piece.state
            free = isinstance(state, ToRegister) and not state.call
            same = free and isinstance(state, ToRegister) and run and state.region == _region(run[-1])
            if run and not (same and piece is not None and self._in_one_log(run[-1], piece)):
                if len(run) > 1:
                    self.territory.join(run)
                run = []
            if free and piece is not None:
                run.append(piece)

    def _in_one_log(self, left: Piece, right: Piece) -> bool:
        ranges = self.subscriptions.ranges
        return ranges is None or ranges.of(left.span.start) == ranges.of(right.span.start)

    def scan_failed(self, scan: int, now_ms: int) -> None:
        """Record that PD did not answer a call for regions: its pieces wait, and their regions are requested again."""
        span = self._scans.pop(scan, None)
        for piece in [] if span is None else self.territory.overlapping(span):
            state = piece.state
            if isinstance(state, WaitsForRegion) and state.scan == scan:
                self.territory.put(
                    replace(piece, state=WaitsForRegion(now_ms + pacing.HOLE_WAIT_MS, failures=state.failures))
                )

    def timestamps_failed(self, call: int) -> None:
        """Record that PD did not answer a call for timestamps: the next `plan` makes another call."""
        if call == self._call:
            self._release()

    def timestamps_taken(self, call: int, last: int, above: int, now_ms: int) -> list[Command] | None:
        """Register the spans of keys (pieces) that wait for this call, each with a timestamp of its own as log id.
        `last` is the highest timestamp of the answer. Returns None if not all of them are above `above`."""
        if call != self._call:
            return []
        chosen = [self.territory.at(start) for start in self._chosen]
        if last - max(1, len(chosen)) < above:
            return None
        self._release()
        out: list[Command] = []
        batch = _Batch()
        for log_id, piece in zip(range(last - len(chosen) + 1, last + 1), chosen, strict=True):
            assert isinstance(piece.state, ToRegister)
            out += self._register(self.territory.at(piece.span.start), log_id, batch, now_ms)
        return out

    def _release(self) -> None:
        for start in self._chosen:
            piece = self.territory.at(start)
            assert isinstance(piece.state, ToRegister)
            self.territory.put(replace(piece, state=replace(piece.state, call=0)))
        self._call, self._chosen = 0, []

    def _register(self, piece: Piece, log_id: int, batch: _Batch, now_ms: int) -> list[Command]:
        state = piece.state
        assert isinstance(state, ToRegister)
        assert piece.span.clip(self.territory.span) == piece.span, "a registration outside of the territory"
        store = state.region.leader_store
        pace = self.pace(store)
        if pace.not_before_ms > now_ms:  # its stream ended meanwhile: this log id is not used
            return []
        out: list[Command] = []
        stream = next((one for one, its in self.streams.items() if its == store), 0)
        if not stream:
            stream = self._next()
            self.streams[stream] = store
            out.append(OpenStream(stream, store))
        request_id = self._next()
        region = state.region
        self.subscriptions.open(
            OpenedSubscription(
                *(request_id, stream, region.region_id, store, log_id, piece.base_ts, piece.span, piece.received_ts),
                sent_as=batch.sent_as(store, region.region_id, request_id),
                hold_ts=piece.hold_ts,
            )
        )
        asked = self._asked(piece.span, region)
        subscribed = Subscribed(region, request_id, state.failures)
        self.territory.put(replace(piece, state=subscribed, since_ms=now_ms))
        pace.sent(request_id)
        self.registrations += 1
        out.append(
            Register(
                *(stream, batch.request_id, region.region_id, region.conf_ver, region.version, piece.base_ts),
                *(encoded_bound(asked.start), encoded_bound(asked.end), self.kv_api),
            )
        )
        return out

    def _asked(self, span: KeySpan, region: Region) -> KeySpan:
        """The part of a piece's keys (`span`) to request from TiKV: those in its region, without the gap (keys that the
        tenant does not use, keys.KeyMap) at their start or end."""
        its, gap = region.raw_span(), self.subscriptions.keys.gap_on_wire
        asked = (None if its is None else span.clip(its)) or span
        if gap is None or asked.clip(gap) == asked:
            return asked
        start = gap.end if asked.start in gap else asked.start
        return KeySpan(start, gap.start if gap.start < asked.end <= gap.end else asked.end)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def initialized(self, request_id: int) -> None:
        """Record that the scan of a subscription has ended."""
        piece = self.territory.subscribed(request_id)
        if piece is not None and isinstance(piece.state, Subscribed):
            self.pace(piece.state.region.leader_store).scanned(request_id)

    def ended(self, ended: EndedSubscription, now_ms: int) -> None:
        """Put the keys of a subscription that has ended back to the pieces to register, from the ts that the
        subscription has reached."""
        request_id = ended.opened.request_id
        piece = self.territory.subscribed(request_id)
        assert piece is not None
        assert isinstance(piece.state, Subscribed)
        store = piece.state.region.leader_store
        self.pace(store).ended(request_id)
        failures = 1 if ended.initialized else piece.state.failures + 1
        state = self._after(piece.state.region, ended.error, failures, now_ms)
        base_ts = max(piece.base_ts, ended.reached_ts)
        received_ts = max(piece.received_ts, ended.received_ts)
        self.territory.put(
            replace(
                piece, base_ts=base_ts, state=state, since_ms=now_ms, received_ts=received_ts, hold_ts=ended.hold_ts
            )
        )

    def _after(
        self, region: Region, error: RegionError | None, failures: int, now_ms: int
    ) -> WaitsForRegion | ToRegister:
        """The next state of a piece whose subscription has ended with an error (upstream-formats 6.6). `error` is None
        if its stream ended. `failures`: how many subscriptions in a row have ended without progress. If the store is
        busy, its limit of registrations is halved."""
        match None if error is None else error.kind:
            case None | ErrorKind.EPOCH_NOT_MATCH:
                # PD may be behind TiKV for longer than a moment. A store's pace has the waits after its streams.
                wait = 0 if error is None or failures < 2 else pacing.doubled(pacing.NOT_FOUND_MS, failures - 1)
                return WaitsForRegion(now_ms + wait, failures=failures)
            case ErrorKind.NOT_LEADER if error is not None and error.leader_store and failures < _LEADERS_MAX:
                return ToRegister(replace(region, leader_store=error.leader_store), now_ms, failures=failures)
            case ErrorKind.NOT_LEADER:
                wait = max(pacing.NOT_LEADER_WAIT_MS, pacing.doubled(pacing.NOT_FOUND_MS, failures))
                return WaitsForRegion(now_ms + wait, failures=failures)
            case ErrorKind.SERVER_IS_BUSY | ErrorKind.CONGESTED:
                self.pace(region.leader_store).congested()
                stated = 0 if error is None else min(error.backoff_ms, pacing.BUSY_STATED_MS)
                wait = stated or pacing.doubled(pacing.BUSY_MS, failures)
                return ToRegister(region, now_ms + wait, failures=failures)
            case ErrorKind.DUPLICATE_REQUEST:
                return ToRegister(region, now_ms + pacing.BUSY_MS[0], failures=failures)
            case _:
                return WaitsForRegion(now_ms + pacing.doubled(pacing.NOT_FOUND_MS, failures), failures=failures)

    def stream_ended(self, stream: int, now_ms: int) -> None:
        """Record that a stream has ended, and with it all of its subscriptions."""
        store = self.streams.pop(stream, None)
        if store is None:
            return
        self.pace(store).disconnected(now_ms)
        for request_id in self.subscriptions.of_stream(stream):
            ended = self.subscriptions.end(request_id)
            if ended is not None:
                self.ended(ended, now_ms)


def _region(piece: Piece) -> Region | None:
    return piece.state.region if isinstance(piece.state, ToRegister) else None
