"""The agent of one territory as a state machine: it takes events and returns commands. Pure; the caller does all I/O.

It begins in this order: it claims the chain (an empty file at the next number, after which the previous agent can write
none), holds back GC, gets PD's regions, gets timestamps as log ids, and registers subscriptions. Afterwards it cuts a
file each second while rows arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from tistream.model.ts import from_physical_ms
from tistream_agent.core import steps
from tistream_agent.core.chain import Position, Promise
from tistream_agent.core.cutter import Draft
from tistream_agent.core.planner import Planner
from tistream_agent.core.received.counts import UNUSABLE
from tistream_agent.core.received.open_rows import OpenRows
from tistream_agent.core.received.pd_clock import PdClock
from tistream_agent.core.received.range_logs import RangeLogs, ranges_of
from tistream_agent.core.region_error import unusable_store
from tistream_agent.core.scanner import BrokenMessage, scan
from tistream_agent.core.steps import AgentConfig, Command
from tistream_agent.core.subscription import PromiseBroken, StreamContradiction, Subscriptions
from tistream_agent.core.territory import (
    LIVE,
    SCANNING,
    TO_REGISTER,
    WAITING,
    Piece,
    Subscribed,
    Territory,
    ToRegister,
    WaitsForRegion,
)
from tistream_agent.core.wire import ErrorKind

_FATAL = {ErrorKind.COMPATIBILITY: "compatibility", ErrorKind.CLUSTER_ID_MISMATCH: "cluster_id_mismatch"}
_LIES_MAX = 3  # streams of a store that ended because of what it sent, within _LIES_MS
_LIES_MS = 600_000


class Phase(Enum):
    """The phase of a territory's agent: a step of its start, running, or stopped."""

    NEW = "new"
    CLAIMING = "claiming"
    HOLDING = "holding"
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SlowestPiece:
    """The part of a territory (a piece, see core/territory.py) that is furthest behind, for `/status`. `state` says in
    words what it waits for. `region_id` is 0 if PD has not answered yet."""

    piece: Piece
    ts: int
    state: str
    region_id: int = 0


class TerritoryAgent:
    """The state machine of the agent of one territory. Not thread-safe: only one thread may call `step`."""

    def __init__(self, config: AgentConfig, position: Position) -> None:
        """`position` is the result of `chain.read_position` for the chain's last file, or of `chain.new_chain`."""
        self.config = config
        self.phase = Phase.NEW
        self.stopped: steps.Stop | None = None
        self.next_ts = position.next_ts
        self.prev_ts = position.prev_ts
        self.reading = True
        wire = [(config.keys.on_wire(p.span), p.ts) for p in position.promises]
        span = config.keys.on_wire(config.span)
        assert span is not None, f"{config.span} has no key of {config.keys.scope}"
        parts = ranges_of(span, config.range_bounds or ())
        found = [
            (part, ts) for its, ts in wire if its is not None for one in parts if (part := one.clip(its)) is not None
        ]
        found.sort(key=lambda one: one[0].start)
        self.territory = Territory(span, [Piece(part, ts, WaitsForRegion(0), 0) for part, ts in found])
        raw = config.kv_api == steps.KV_RAW
        lowered = from_physical_ms(config.raw_hold_ms if raw else 0)
        self.subscriptions = Subscriptions(config.keys, drops_empty=not raw, lowered=lowered)
        if config.range_bounds is not None:
            base = [min(piece.base_ts for piece in self.territory.overlapping(part)) for part in parts]
            shown = [config.keys.in_platform(part) for part in parts]
            self.subscriptions.ranges = RangeLogs(shown, [part.start for part in parts], np.array(base, np.int64))
        self.planner = Planner(self.territory, self.subscriptions, config.kv_api)
        self.hold_ts = position.lowest_ts - 1  # what the durable files need
        self._hold_asked_ms: int | None = None
        self._hold_under_way = False
        self._open = OpenRows()
        self._under_way: Draft | None = None
        self._cut_ms = 0
        self._lies: dict[int, list[int]] = {}  # by store, when
        self._pd_clock = PdClock()
        self._last_id = max(promise.ts for promise in position.promises)  # the highest timestamp that is known

    @property
    def buffer_bytes(self) -> int:
        """The memory in bytes of rows that are in no durable file."""
        return self._open.size + (0 if self._under_way is None else self._under_way.size)

    def step(self, event: steps.Event, now_ms: int) -> list[Command]:
        """Apply an event, and return the commands to execute, in order. After it has returned `Stop`, it returns no
        more commands."""
        if self.phase is Phase.STOPPED:
            return []
        out = self._take(event, now_ms)
        if self.stopped is None:
            out += self._begin(now_ms) if self.phase is Phase.NEW else self._go_on(now_ms)
        return out

    def _take(self, event: steps.Event, now_ms: int) -> list[Command]:
        match event:
            case steps.Received():
                return self._received(event, now_ms)
            case steps.StreamEnded(stream=stream, reason=reason, unreadable=True) if stream in self.planner.streams:
                return self._distrust(stream, reason, now_ms)
            case steps.StreamEnded(stream=stream):
                self.planner.stream_ended(stream, now_ms)
            case steps.FileDurable(ts=ts):
                return self._durable(ts, now_ms)
            case steps.ForeignFile():
                return self._stop(
                    "fenced",
                    f"file {event.ts} of store {self.config.store_id} has nonce {event.nonce}, its own is "
                    f"{self.config.nonce}: another agent has taken this territory over, and this process ends",
                )
            case _:
                return self._answered(event, now_ms)
        return []

    def _answered(self, event: steps.Event, now_ms: int) -> list[Command]:
        """Handle an answer of PD, or the passage of time (Tick)."""
        match event:
            case steps.RegionsFound():
                self.planner.regions_found(event.scan, event.regions, now_ms)
            case steps.ScanFailed():
                self.planner.scan_failed(event.scan, now_ms)
            case steps.TimestampsTaken():
                return self._timestamps_taken(event, now_ms)
            case steps.TimestampsFailed():
                self.planner.timestamps_failed(event.call)
            case steps.HoldSet():
                return self._hold_set(event, now_ms)
            case steps.HoldRefused():
                return self._hold_refused(event, now_ms)
            case steps.ClusterChanged(reason=reason):
                return self._stop("cluster_id_mismatch", reason)
        return []

    # -- start, hold, stop --------------------------------------------------------------------------------------------

    def _begin(self, now_ms: int) -> list[Command]:
        """Claim the chain: put a file without rows at its next number, which repeats the promises."""
        self.phase = Phase.CLAIMING
        return self._cut(now_ms)

    def _go_on(self, now_ms: int) -> list[Command]:
        if self.phase is not Phase.RUNNING:
            return []
        out = self._release(now_ms) if self._is_stalled(now_ms) else self._plan(now_ms)
        if self._is_due(now_ms):
            out += self._cut(now_ms)
        if self._hold_asked_ms is None or now_ms - self._hold_asked_ms >= self.config.hold_refresh_ms:
            out += self._move_hold(now_ms)
        return out + self._pressure()

    def _plan(self, now_ms: int) -> list[Command]:
        out = self.planner.plan(now_ms)
        if self._pd_clock.is_stale(now_ms, lambda: self.subscriptions.holds_back):
            out += self.planner.look_at_clock()
        self._pd_clock.asked([one.call for one in out if isinstance(one, steps.TakeTimestamps)], now_ms)
        return out

    def _move_hold(self, now_ms: int) -> list[Command]:
        if self._hold_under_way:  # the next one is moved to where the files are then
            return []
        self._hold_asked_ms, self._hold_under_way = now_ms, True
        return [steps.MoveHold(self.hold_ts)]

    def _hold_set(self, event: steps.HoldSet, now_ms: int) -> list[Command]:
        self._hold_under_way = False
        if self.phase is Phase.HOLDING:
            self.phase = Phase.RUNNING
        return self._move_hold(now_ms) if event.ts < self.hold_ts else []

    def _hold_refused(self, event: steps.HoldRefused, now_ms: int) -> list[Command]:
        self._hold_under_way = False
        if event.ts < self.hold_ts:  # the files have got further meanwhile
            return self._move_hold(now_ms)
        return self._stop(
            "gc",
            f"history up to {event.safe_point} is collected, but keys of store {self.config.store_id} are durable only "
            f"up to {event.ts + 1}: connect a new tenant, and backfill its tables (docs/backfill.md)",
        )

    def _stop(self, code: str, reason: str) -> list[Command]:
        self.stopped = steps.Stop(code, reason)
        self.phase = Phase.STOPPED
        return [*(steps.CloseStream(stream) for stream in self.planner.streams), self.stopped]

    def _is_stalled(self, now_ms: int) -> bool:
        return self._under_way is not None and now_ms - self._cut_ms >= self.config.stalled_ms

    def _release(self, now_ms: int) -> list[Command]:
        """Close all streams, so that TiKV does not queue events for this agent while object storage accepts no files.
        All keys are registered again after the next file is durable."""
        streams = list(self.planner.streams)
        for stream in streams:
            self.planner.stream_ended(stream, now_ms)
        return [steps.CloseStream(stream) for stream in streams]

    def _pressure(self) -> list[Command]:
        """Stop reading streams when the memory limit is reached, and resume below half of it."""
        if self.reading and self.buffer_bytes >= self.config.buffer_bytes:
            self.reading = False
            return [steps.StopReading()]
        if not self.reading and self.buffer_bytes < self.config.buffer_bytes // 2:
            self.reading = True
            return [steps.ResumeReading()]
        return []

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _received(self, event: steps.Received, now_ms: int) -> list[Command]:
        store = self.planner.streams.get(event.stream)
        if store is None:
            return []
        try:
            outcome = self.subscriptions.take(event.stream, scan(event.messages), *self._pd_bounds(now_ms))
        except (BrokenMessage, StreamContradiction) as error:
            return self._distrust(event.stream, str(error), now_ms)
        except PromiseBroken as error:
            return self._stop("upstream", str(error))
        if outcome.changes.num_rows:
            self._open.keep(outcome.changes)
        out: list[Command] = []
        for request_id in outcome.initialized:
            self.planner.initialized(request_id)
        for ended in outcome.ended:
            if ended.error is not None and (code := _FATAL.get(ended.error.kind)) is not None:
                return self._stop(code, f"store {store}, region {ended.opened.region_id}: {ended.error.detail}")
            if ended.error is not None and ended.error.kind is ErrorKind.DUPLICATE_REQUEST:
                # The error is of a second request: the first one goes on at the store, and the agent does not read it.
                out.append(steps.Deregister(event.stream, ended.opened.on_wire, ended.opened.region_id))
            self.planner.ended(ended, now_ms)
        return out

    def _distrust(self, stream: int, reason: str, now_ms: int) -> list[Command]:
        """End a stream whose messages contradict what was requested. If this happens to one store three times in ten
        minutes, stop the territory."""
        store = self.planner.streams[stream]
        lies = [at for at in self._lies.get(store, []) if now_ms - at < _LIES_MS] + [now_ms]
        self._lies[store] = lies
        self.subscriptions.counts.errors[UNUSABLE] += 1
        if len(lies) >= _LIES_MAX:
            return self._stop("upstream", unusable_store(store, len(lies), reason))
        self.planner.stream_ended(stream, now_ms)
        return [steps.CloseStream(stream)]

    def _timestamps_taken(self, event: steps.TimestampsTaken, now_ms: int) -> list[Command]:
        """Use timestamps from PD as log ids. If one is not higher than all earlier timestamps and all promises, which
        PD has issued before, the territory stops."""
        out = self.planner.timestamps_taken(event.call, event.last, self._last_id, now_ms)
        if out is None:
            return self._stop(
                "upstream",
                f"PD gave timestamps up to {event.last}, but {self._last_id} was given before: was the cluster "
                "restored, or --pd changed? Connect it as a new tenant",
            )
        self._last_id = max(self._last_id, event.last)
        self.subscriptions.pd_issued(self._pd_clock.estimate_of(event.call), event.last - 1)
        self._pd_clock.answered(event.last, now_ms)
        return out

    def _pd_bounds(self, now_ms: int) -> tuple[int, int]:
        """The highest timestamps that PD can have issued so far. Returns (one that holds even if the clocks are wrong,
        one that holds unless PD's clock leaps)."""
        return self._pd_clock.ts_max(now_ms), self._pd_clock.ts_now(now_ms)

    # -- files --------------------------------------------------------------------------------------------------------

    def _is_due(self, now_ms: int) -> bool:
        if self._under_way is not None:
            return False
        age = now_ms - self._cut_ms
        if self._open.tables:
            return age >= self.config.cut_ms or self._open.size >= self.config.file_bytes
        return age >= self.config.idle_cut_ms and self.subscriptions.needs_watermark()

    def _cut(self, now_ms: int) -> list[Command]:
        """Make the next file: all rows that have arrived, and a watermark row of each subscription whose scan has
        ended. Returns the command that puts it."""
        watermarks = self.subscriptions.cut([(one.span.start, one.reached_ts) for one in self.territory.unsubscribed()])
        carried, lowest = self._promised()
        draft = Draft(
            tenant=self.config.tenant,
            store_id=self.config.store_id,
            ts=self.next_ts,
            prev_ts=self.prev_ts,
            nonce=self.config.nonce,
            epoch=self.config.epoch,
            promises=(Promise(self.config.span, lowest),),
            carried=tuple(sorted(carried, key=lambda promise: promise.span.start)),
            changes=tuple(self._open.tables),
            watermarks=watermarks,
            size=self._open.size,
        )
        self._open = OpenRows()
        self._under_way, self._cut_ms = draft, now_ms
        self.prev_ts, self.next_ts = self.next_ts, self.next_ts + 1
        return [steps.PutFile(draft)]

    def _promised(self) -> tuple[list[Promise], int]:
        """What a file that is cut now states. Returns (the promises of keys for which it has no watermark row, the
        lowest ts of all promises)."""
        ranges = self.subscriptions.ranges
        if ranges is not None:
            late = np.flatnonzero(~ranges.started).tolist()
            return [Promise(ranges.spans[one], int(ranges.value[one])) for one in late], int(ranges.value.min())
        kept = [Promise(self.config.keys.in_platform(piece.span), piece.base_ts) for piece in self._behind()]
        return kept, self._slowest()[1]

    def _behind(self) -> list[Piece]:
        """The pieces without a live subscription. A file repeats their promises in its footer."""
        scanning = [self.territory.subscribed(request_id) for request_id in self.subscriptions.scanning()]
        return self.territory.unsubscribed() + [piece for piece in scanning if piece is not None]

    def _slowest(self) -> tuple[Piece, int]:
        """The piece that is furthest behind, and the ts up to which it is complete."""
        found = [(piece, piece.base_ts) for piece in self._behind()]
        live = self.subscriptions.slowest()
        if live is not None and (piece := self.territory.subscribed(live[0])) is not None:
            found.append((piece, live[1]))
        return min(found, key=lambda one: one[1])

    def _durable(self, ts: int, now_ms: int) -> list[Command]:
        draft = self._under_way
        if draft is None or draft.ts != ts:
            return []
        self._under_way = None
        lowest = draft.lowest_ts - 1
        moved = lowest > self.hold_ts
        self.hold_ts = max(self.hold_ts, lowest)
        if self.phase is Phase.CLAIMING:
            self.phase = Phase.HOLDING
            return self._move_hold(now_ms)
        return self._move_hold(now_ms) if moved else []

    # -- status -------------------------------------------------------------------------------------------------------

    def pieces_by_state(self) -> dict[str, int]:
        """The number of the territory's pieces in each state of PIECE_STATES."""
        unsubscribed = self.territory.unsubscribed()
        waiting = sum(isinstance(piece.state, WaitsForRegion) for piece in unsubscribed)
        scanning = len(self.subscriptions.scanning())
        live = len(self.territory) - len(unsubscribed) - scanning
        return {WAITING: waiting, TO_REGISTER: len(unsubscribed) - waiting, SCANNING: scanning, LIVE: live}

    def lowest(self) -> SlowestPiece:
        """The piece (a span of keys with one state, core/territory.py) that is furthest behind, and what it waits
        for."""
        piece, reached = self._slowest()
        match piece.state:
            case WaitsForRegion():
                text = "PD has not said which region has these keys"
            case ToRegister(region=region):
                text = f"region {region.region_id} is to be registered at store {region.leader_store}"
            case Subscribed(region=region, request_id=request_id):
                what = "is live" if self.subscriptions.is_live(request_id) else "scans"
                text = f"region {region.region_id} on store {region.leader_store} {what}"
        return SlowestPiece(
            piece, reached, text, 0 if isinstance(piece.state, WaitsForRegion) else piece.state.region.region_id
        )
