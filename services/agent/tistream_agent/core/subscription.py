"""The subscriptions of a territory: what each has received, and which rows and watermarks it adds to the next file.
Pure.

In the files each subscription is a log of its own (docs/agent.md, "Logs"). Its log id is a TSO that was taken for it.
Rows up to the end of its scan have index 0, and each later Event with rows has the next index. A subscription ends with
an error, with its stream, or when the agent deregisters it. Later events of its request_id are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tistream.arrays import Bytes, Int64s
from tistream.errors import TiStreamError
from tistream.model.span import KeySpan
from tistream_agent.core import kernels as k
from tistream_agent.core import wire
from tistream_agent.core.cutter import CHANGE_SCHEMA, WatermarkColumns
from tistream_agent.core.keys import KeyMap
from tistream_agent.core.received.columns import binary, change_columns
from tistream_agent.core.received.counts import Counts
from tistream_agent.core.received.late_locks import lower_limits, reached_of
from tistream_agent.core.received.range_logs import RangeLogs
from tistream_agent.core.received.requests import SentRequests
from tistream_agent.core.region_error import RegionError
from tistream_agent.core.scanner import Scanned

_NO_SLOT = -1
_NO_LOGS = np.zeros((k.LOG_COLUMNS, 1), np.int64)
_MIN_SLOTS = 64
TS_MAX = (1 << 63) - 1


class StreamContradiction(TiStreamError):
    """Raised if events of a stream contradict its registrations. The stream must end, and its regions are registered
    again."""

    code = "stream-lies"


class PromiseBroken(TiStreamError):
    """Raised if TiKV sent a commit at or below a resolved_ts that it had sent before. The territory must stop, and
    writes no more files."""

    code = "promise-broken"


@dataclass(frozen=True, slots=True)
class OpenedSubscription:
    """A subscription that begins. `span` has keys in TiKV's form, with the prefix of a keyspace. `tikv_store_id` is for
    the status. `received_ts` is the resolved_ts that TiKV has reported for all of its keys in earlier subscriptions (0:
    none), so no later commit may be at or below it. `request_id` is its number in the agent; `sent_as` is the
    request_id that is sent, which subscriptions may share (0: `request_id`). `hold_ts`: in a range log, the limit that
    late locks of the previous subscription set (late_locks.py)."""

    request_id: int
    stream: int
    region_id: int
    tikv_store_id: int
    log_id: int
    base_ts: int
    span: KeySpan
    received_ts: int = 0
    sent_as: int = 0
    hold_ts: int = 0

    @property
    def on_wire(self) -> int:
        """The request_id that is sent to TiKV."""
        return self.sent_as or self.request_id


@dataclass(frozen=True, slots=True)
class EndedSubscription:
    """A subscription that ended. `reached_ts` is the ts from which the next subscription of its keys must begin.
    `received_ts` is the highest resolved_ts that it received; 0 if it received none. `initialized`: whether its scan
    had ended. `hold_ts`: the limit that late locks had set when it ended, for the `hold_ts` of the next subscription of
    its keys; 0: no limit. `error` is None unless TiKV ended it with an error."""

    opened: OpenedSubscription
    reached_ts: int
    received_ts: int
    initialized: bool
    hold_ts: int
    error: RegionError | None


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The result of applying a batch of messages. `changes` are the rows for the next file, with CHANGE_SCHEMA.
    `initialized` are the requests whose scan has ended."""

    changes: pa.Table
    ended: tuple[EndedSubscription, ...]
    initialized: tuple[int, ...]


@dataclass(slots=True)
class Subscriptions:
    """All subscriptions of a territory.

    The state is one table of numbers with a column for each subscription, because resolved timestamps of 100,000
    regions arrive each second. An ended subscription keeps its column until its last watermark row is in a file.
    `drops_empty`: as in the kernel (kernels.py). `lowered` is subtracted from each received resolved_ts, so TiKV may
    send commits that are below its own resolved_ts by that much.
    """

    keys: KeyMap = field(default_factory=KeyMap)
    drops_empty: bool = True
    lowered: int = 0
    ranges: RangeLogs | None = None
    counts: Counts = field(default_factory=Counts)
    _sent: SentRequests = field(default_factory=SentRequests)
    _table: Int64s = field(default_factory=lambda: np.zeros((k.SUB_COLUMNS, _MIN_SLOTS), np.int64))
    _opened: dict[int, OpenedSubscription] = field(default_factory=dict)  # by slot
    _free: list[int] = field(default_factory=lambda: list(range(_MIN_SLOTS - 1, -1, -1)))
    _slot_of: Int64s = field(default_factory=lambda: np.full(_MIN_SLOTS, _NO_SLOT, np.int64))
    _lowest: int = 0  # request id of _slot_of[0]
    _bounds: Bytes = field(default_factory=lambda: np.zeros(1 << 12, np.uint8))
    _bounds_used: int = 0
    _last_rows: set[int] = field(default_factory=set)  # requests that ended after their scan, since the last cut

    def __len__(self) -> int:
        """The number of subscriptions that have not ended."""
        return int(((self._table[k.STATE] == k.SCANNING) | (self._table[k.STATE] == k.LIVE)).sum())

    # -- opening and ending -------------------------------------------------------------------------------------------

    def open(self, opened: OpenedSubscription) -> None:
        """Record a registration before it is sent. Its request_id must be higher than all previous ones."""
        slot = self._new_slot()
        self._opened[slot] = opened
        column = self._table[:, slot]
        column[:] = 0
        column[k.REQUEST_ID], column[k.STREAM], column[k.REGION_ID] = opened.request_id, opened.stream, opened.region_id
        column[k.LOG_ID], column[k.BASE], column[k.RESOLVED_TS] = opened.log_id, opened.base_ts, opened.base_ts
        column[k.STATE], column[k.PROMISED], column[k.FILED] = k.SCANNING, opened.received_ts, opened.base_ts
        if self.ranges is not None:
            number = self.ranges.of(opened.span.start)
            column[k.RANGE], column[k.LOG_ID] = number + 1, self.ranges.log_of(number, opened.log_id)
            column[k.FILED] = self.ranges.value[number]
            column[k.HOLD], column[k.ABOVE] = opened.hold_ts, TS_MAX
        column[k.START_AT], column[k.END_AT], column[k.BOUND_END] = self._keep_bounds(opened.span)
        # The platform's bounds are the ends of those on the wire, or empty.
        shown = self.keys.in_platform(opened.span)
        column[k.TIKV_STORE] = opened.tikv_store_id
        column[k.START_SHOWN], column[k.END_SHOWN] = len(shown.start), len(shown.end)
        self._place(opened.request_id, slot)
        self._sent.add(opened.on_wire, opened.region_id, opened.stream, opened.request_id)

    def end(self, request_id: int) -> EndedSubscription | None:
        """End a subscription because its stream has ended or it is deregistered. Returns None if it has ended
        already."""
        slot = self._slot(request_id)
        if slot == _NO_SLOT or self._table[k.STATE, slot] == k.ENDED:
            return None
        initialized = bool(self._table[k.STATE, slot] == k.LIVE)
        self._table[k.STATE, slot] = k.ENDED
        self.counts.ended(initialized, initialized, None)
        return self._ended(slot, initialized, None)

    def of_stream(self, stream: int) -> list[int]:
        """The request ids of a stream's subscriptions that have not ended."""
        at = (self._table[k.STREAM] == stream) & np.isin(self._table[k.STATE], (k.SCANNING, k.LIVE))
        found: list[int] = self._table[k.REQUEST_ID, at].tolist()
        return found

    def is_live(self, request_id: int) -> bool:
        """Whether the subscription has finished its scan and has not ended."""
        slot = self._slot(request_id)
        return slot != _NO_SLOT and bool(self._table[k.STATE, slot] == k.LIVE)

    def resolved_ts(self, request_id: int) -> int:
        """The resolved_ts that TiKV has reported for the subscription; its base_ts before that."""
        return int(self._table[k.RESOLVED_TS, self._slot(request_id)])

    # -- receiving ----------------------------------------------------------------------------------------------------

    def take(self, stream: int, scanned: Scanned, ts_max: int = TS_MAX, ts_now: int = TS_MAX) -> BatchOutcome:
        """Apply a batch of messages that a stream has received. Writes into the items of `scanned` which registration
        each belongs to.

        `ts_max`: no timestamp above it can have been given by PD yet. `ts_now`: PD had given no timestamp above it when
        the batch arrived; it is lower than `ts_max`, which allows for wrong clocks.

        Raises:
            StreamContradiction: an event contradicts its registration. Nothing of the batch may be used.
            PromiseBroken: the batch has a commit at or below a resolved_ts that its subscription has received.
        """
        rows, items = scanned.rows, scanned.items
        sent_as = items[k.REQUEST].copy()
        items[k.REQUEST] = self._sent.numbers(items, stream)
        if self.lowered:
            resolved = items[k.KIND] == k.RESOLVED
            items[k.TS, resolved] = np.maximum(items[k.TS, resolved], self.lowered) - self.lowered
        row_slot, row_index = np.empty(rows.shape[1], np.int64), np.zeros(rows.shape[1], np.int64)
        ends, counters = np.zeros(items.shape[1], np.int64), np.zeros(k.COUNTERS, np.int64)
        table, slots = self._table, self._slots_of(items)
        logs = _NO_LOGS if self.ranges is None else self.ranges.state
        before, logs_before = table[:, slots], logs.copy()  # a copy, because a batch that is refused changes nothing
        verdict, item = k.apply(
            *(scanned.data, items, rows, stream, self._slot_of, self._lowest, table),
            *(self._bounds, logs, self.drops_empty, ts_max, ts_now),
            *(row_slot, row_index, ends, counters),
        )
        if verdict != k.FINE:
            refused = self._refused(verdict, scanned, int(item), int(sent_as[item]))
            table[:, slots], logs[:] = before, logs_before
            raise refused
        self._count(counters)
        was_live = set(slots[before[k.STATE] == k.LIVE].tolist())
        ended = []
        for one in ends[: counters[k.ENDS]].tolist():
            slot = self._slot(int(items[k.REQUEST, one]))
            initialized = slot in was_live or self._went_live(slot, scanned)
            error = scanned.error(one)
            self.counts.ended(slot in was_live, initialized, error.kind)
            ended.append(self._ended(slot, initialized, error))
        went = slots[(before[k.STATE] == k.SCANNING) & (table[k.STATE, slots] == k.LIVE)]
        self.counts.registrations["initialized"] += len(went)
        return BatchOutcome(
            self._changes(scanned, row_slot, row_index), tuple(ended), tuple(table[k.REQUEST_ID, went].tolist())
        )

    def _slots_of(self, items: Int64s) -> Int64s:
        """The slots (columns of the table) of the subscriptions to which the items belong, each once."""
        places = np.unique(items[k.REQUEST]) - self._lowest
        slots: Int64s = self._slot_of[places[(places >= 0) & (places < len(self._slot_of))]]
        return np.asarray(slots[slots != _NO_SLOT], np.int64)

    def _went_live(self, slot: int, scanned: Scanned) -> bool:
        """Whether a subscription that has ended in this batch had finished its scan earlier in the same batch."""
        mine = np.flatnonzero(scanned.items[k.REQUEST] == self._table[k.REQUEST_ID, slot])
        spans = [slice(scanned.items[k.ROW_FIRST, i], scanned.items[k.ROW_BEYOND, i]) for i in mine.tolist()]
        return any(bool((scanned.rows[k.TYPE, one] == wire.INITIALIZED).any()) for one in spans)

    def _refused(self, verdict: int, scanned: Scanned, item: int, sent_as: int) -> TiStreamError:
        region, request = int(scanned.items[k.REGION, item]), int(scanned.items[k.REQUEST, item])
        if verdict == k.WRONG_REGION:
            return StreamContradiction(f"request {sent_as} was not sent for region {region}, of which it has events")
        opened = self._opened[self._slot(request)]
        if verdict == k.PROMISE_BROKEN:
            return PromiseBroken(
                f"region {region} on store {opened.tikv_store_id} sent a commit at or below its resolved_ts "
                f"{self.resolved_ts(request)}, at or below {opened.received_ts} of the leader before, or below one of "
                "the same batch: the tenant may lack changes for good. Keep the log and check the version of TiKV; "
                "then connect a new tenant, backfill it (docs/backfill.md), move its readers, and delete this one"
            )
        if verdict == k.AHEAD:
            return StreamContradiction(f"region {region} sent a timestamp that PD cannot have given yet")
        return StreamContradiction(
            f"request {sent_as} of region {region} has a row without a valid type, operation or timestamp"
        )

    def _count(self, counters: Int64s) -> None:
        self.counts.late_events += int(counters[k.LATE])
        self.counts.rows_outside += int(counters[k.OUTSIDE])
        self.counts.empty_repeats += int(counters[k.EMPTY_REPEATS])
        self.counts.clock_regressions += int(counters[k.REGRESSIONS])
        self.counts.early_resolved += int(counters[k.EARLY_RESOLVED])

    def _changes(self, scanned: Scanned, row_slot: Int64s, row_index: Int64s) -> pa.Table:
        """Build the table of the rows that enter a file, with CHANGE_SCHEMA."""
        kept = np.flatnonzero(row_slot >= 0)
        if not len(kept):
            return CHANGE_SCHEMA.empty_table()
        rows = scanned.rows[:, kept]
        slots = row_slot[kept]
        self.counts.kept(rows[k.TYPE], row_index[kept])
        columns = change_columns(scanned.data, rows, row_index[kept], self._table[:, slots], len(self.keys.prefix))
        return pa.Table.from_arrays(columns, schema=CHANGE_SCHEMA)

    @property
    def holds_back(self) -> bool:
        """Whether late locks hold back what the files promise (late_locks.py)."""
        return bool((self._table[k.HOLD] != 0).any())

    def pd_issued(self, before_ts: int, issued_ts: int) -> None:
        """Record that PD had not issued a timestamp above `issued_ts` when it was asked for one. `before_ts`: what
        `take` would have got as `ts_now` then."""
        lower_limits(self._table, before_ts, issued_ts)

    # -- cutting ------------------------------------------------------------------------------------------------------

    def needs_watermark(self) -> bool:
        """Whether the next file must have a watermark row, because some subscription is live, or has ended after its
        scan."""
        return bool(self._last_rows) or bool((self._table[k.STATE] == k.LIVE).any())

    def scanning(self) -> list[int]:
        """The request ids of subscriptions whose scan has not ended."""
        found: list[int] = self._table[k.REQUEST_ID, self._table[k.STATE] == k.SCANNING].tolist()
        return found

    def slowest(self) -> tuple[int, int] | None:
        """The live subscription that is furthest behind: its request_id, and the ts that it has reached. None if no
        subscription is live."""
        live = np.flatnonzero(self._table[k.STATE] == k.LIVE)
        if not len(live):
            return None
        reached = reached_of(self._table, live)
        at = np.argmin(reached)
        return int(self._table[k.REQUEST_ID, live[at]]), int(reached[at])

    def cut(self, unsubscribed: Sequence[tuple[bytes, int]] = ()) -> WatermarkColumns:
        """Make the watermark rows of the next file, in the order of the log ids. Ended subscriptions are dropped.
        `unsubscribed`: for range logs, (first key, the ts reached) of each piece without a subscription."""
        table = self._table
        if self.ranges is not None:
            self.ranges.advance(table, unsubscribed)
            out = WatermarkColumns(**self.ranges.rows())
        else:
            owed = table[k.STATE] == k.LIVE
            for request_id in self._last_rows:
                owed[self._slot(request_id)] = True
            slots = np.flatnonzero(owed)
            slots = slots[np.argsort(table[k.LOG_ID, slots])]
            out = self._watermarks(slots)
            table[k.FILED, slots] = out.resolved_ts
            table[k.CUT_INDEX, slots] = table[k.INDEX, slots] + 1
        for slot in np.flatnonzero(table[k.STATE] == k.ENDED).tolist():
            self._forget(slot)
        self._last_rows.clear()
        known = self._table[k.REQUEST_ID, self._table[k.STATE] != k.FREE]
        self._sent.forget(len(known), known)
        return out

    def _watermarks(self, slots: Int64s) -> WatermarkColumns:
        column = self._table[:, slots]
        first = column[k.CUT_INDEX] == 0  # CUT_INDEX is the next first_index, 0 before the base row
        starts, ends = column[k.START_SHOWN], column[k.END_SHOWN]
        return WatermarkColumns(
            log_id=column[k.LOG_ID],
            start=binary(self._bounds, column[k.END_AT] - starts, starts, None),
            end=binary(self._bounds, column[k.BOUND_END] - ends, ends, None),
            first_index=np.where(first, 1, column[k.CUT_INDEX]),
            log_index=column[k.INDEX],
            base_ts=pa.array(column[k.BASE], mask=~first),
            resolved_ts=reached_of(self._table, slots),
            tikv_region_id=column[k.REGION_ID],
            tikv_store_id=column[k.TIKV_STORE],
        )

    # -- slots --------------------------------------------------------------------------------------------------------

    def _ended(self, slot: int, initialized: bool, error: RegionError | None) -> EndedSubscription:
        opened = self._opened[slot]
        if initialized and self.ranges is None:
            self._last_rows.add(opened.request_id)
        hold, later = int(self._table[k.HOLD, slot]), int(self._table[k.NEXT_HOLD, slot])
        # Its successor's scan repeats the locks that live, so they hold nothing any more.
        self._table[k.HOLD, slot] = self._table[k.NEXT_HOLD, slot] = 0
        reached = int(self._table[k.RESOLVED_TS, slot]) if initialized else opened.base_ts
        return EndedSubscription(
            opened, reached, int(self._table[k.RECEIVED, slot]), initialized, min(hold, later) or hold, error
        )

    def _slot(self, request_id: int) -> int:
        place = request_id - self._lowest
        return int(self._slot_of[place]) if 0 <= place < len(self._slot_of) else _NO_SLOT

    def _new_slot(self) -> int:
        if not self._free:
            have = self._table.shape[1]
            wider = np.zeros((k.SUB_COLUMNS, 2 * have), np.int64)
            wider[:, :have] = self._table
            self._table = wider
            self._free = list(range(2 * have - 1, have - 1, -1))
        return self._free.pop()

    def _forget(self, slot: int) -> None:
        opened = self._opened.pop(slot)
        self._slot_of[opened.request_id - self._lowest] = _NO_SLOT
        self._table[:, slot] = 0
        self._free.append(slot)

    def _place(self, request_id: int, slot: int) -> None:
        """Record which slot a request has. The array of slots begins at the lowest known request_id."""
        place = request_id - self._lowest
        assert place >= 0, f"request {request_id} is below {self._lowest}"
        if place >= len(self._slot_of):
            known = np.flatnonzero(self._slot_of != _NO_SLOT)
            begin = int(known[0]) if len(known) else place
            kept = self._slot_of[begin:]
            self._lowest += begin
            place -= begin
            longer = np.full(max(_MIN_SLOTS, 2 * (place + 1)), _NO_SLOT, np.int64)
            longer[: len(kept)] = kept[: len(longer)]
            self._slot_of = longer
        self._slot_of[place] = slot

    def _keep_bounds(self, span: KeySpan) -> tuple[int, int, int]:
        """Store the bounds of a span; if there is no room, those of ended subscriptions are dropped first. Returns the
        offsets at which the start begins, the end begins, and the end ends."""
        need = len(span.start) + len(span.end)
        if self._bounds_used + need > len(self._bounds):
            self._pack_bounds(need)
        begin = self._bounds_used
        middle, end = begin + len(span.start), begin + need
        self._bounds[begin:end] = np.frombuffer(span.start + span.end, np.uint8)
        self._bounds_used = end
        return begin, middle, end

    def _pack_bounds(self, need: int) -> None:
        live = [
            slot
            for slot, opened in self._opened.items()
            if self._table[k.STATE, slot] in (k.SCANNING, k.LIVE) or opened.request_id in self._last_rows
        ]
        texts = [self._opened[slot].span for slot in live]
        total = sum(len(span.start) + len(span.end) for span in texts)
        self._bounds = np.zeros(max(1 << 12, 2 * (total + need)), np.uint8)
        self._bounds_used = 0
        for slot, span in zip(live, texts, strict=True):
            self._table[k.START_AT : k.BOUND_END + 1, slot] = self._keep_bounds(span)
