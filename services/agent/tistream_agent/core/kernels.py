"""Compiled loops that apply received messages to the table of subscriptions. Pure.

This module defines the columns of three tables: items (one for each received Event, or region of a ResolvedTs), rows of
Events, and subscriptions. `scan_kernel` fills the first two. Numba caches a kernel by the content of the kernel's own
file. So if the columns change, scan_kernel.py must be changed, too.
"""

# ruff: noqa: PLR0911, PLR0912, PLR0915
# A parser is one loop of cases: calls between kernels cost more than the parsing.

from __future__ import annotations

from typing import Any

from tistream.decode.kernels.jit import i64, inline, kernel

# Rows of the item table: one item for each Event, and for each region of a ResolvedTs.
KIND, REQUEST, REGION, TS, ROW_FIRST, ROW_BEYOND, ERROR_AT, ERROR_END = range(8)
ITEM_COLUMNS = 8
NOTHING, ENTRIES, ERROR, RESOLVED = range(4)  # KIND

# Rows of the row table.
TYPE, OP, START_TS, COMMIT_TS, KEY_AT, KEY_LEN, VALUE_AT, VALUE_LEN, OLD_AT, OLD_LEN, EXPIRE, SOURCE, GENERATION = (
    range(13)
)
ROW_COLUMNS = 13

# Rows of the subscription table.
(
    REQUEST_ID,
    STREAM,
    REGION_ID,
    LOG_ID,
    INDEX,
    CUT_INDEX,
    BASE,
    RECEIVED,
    RESOLVED_TS,
    STATE,
    START_AT,
    END_AT,
    BOUND_END,
) = range(13)
PROMISED = 13  # the resolved_ts of earlier subscriptions of all of these keys; 0: none
TIKV_STORE, START_SHOWN, END_SHOWN = range(14, 17)  # the last two: lengths of the platform's bounds
# What locks hold back (received/late_locks.py). FILED: the resolved_ts in the newest file. HIGHEST: TiKV cannot have
# held more when it reported a resolved_ts last. HOLD, ABOVE: the promise stays at HOLD until TiKV reports more than
# ABOVE; 0: no hold. NEXT_HOLD, NEXT_ABOVE: of the locks that came since.
FILED, HIGHEST, HOLD, ABOVE, NEXT_HOLD, NEXT_ABOVE = range(17, 23)
RANGE = 23  # one more than the number of its range log; 0: it has a log of its own
SUB_COLUMNS = 24
TS_END = (1 << 63) - 1
FREE, SCANNING, LIVE, ENDED = range(4)  # STATE

# Rows of the table of range logs.
LOG_STARTED, LOG_INDEX = range(2)
LOG_COLUMNS = 2

# Rows of the table of registrations that were sent.
SENT_AS, PAIR_REGION, PAIR_STREAM, NUMBER = range(4)
PAIR_COLUMNS = 4
NO_REQUEST, OTHER_REGION = -1, -2  # in place of a number

# What `apply` found: positions in its counters.
LATE, OUTSIDE, EMPTY_REPEATS, REGRESSIONS, EARLY_RESOLVED, ENDS = range(6)
COUNTERS = 6
# What `apply` returns besides: the stream must end, or the territory must.
FINE, WRONG_REGION, BAD_ROW, PROMISE_BROKEN, AHEAD = range(5)


@inline
def _below(data: Any, at: int, size: int, other: Any, begin: int, end: int) -> bool:
    """Whether `data[at:at + size] < other[begin:end]` as byte strings."""
    for place in range(min(size, end - begin)):
        left, right = data[at + place], other[begin + place]
        if left != right:
            return bool(left < right)
    return size < end - begin


@inline
def _hold(subs: Any, slot: int, start_ts: int, above: int) -> None:
    """Limit the promise of the subscription in column `slot` because of a lock: to the lock's start_ts, or to the ts
    promised already if that is higher, until TiKV reports a resolved_ts above `above` (received/late_locks.py)."""
    least = max(start_ts, subs[FILED, slot])
    at = HOLD if subs[HOLD, slot] == 0 else NEXT_HOLD
    if at == HOLD or subs[NEXT_HOLD, slot] == 0:
        subs[at, slot], subs[at + 1, slot] = least, above
    else:
        subs[at, slot], subs[at + 1, slot] = min(subs[at, slot], least), max(subs[at + 1, slot], above)


@inline
def _release(subs: Any, slot: int, received: int) -> None:
    """End the limits of `_hold` whose `above` TiKV has passed with the resolved_ts `received`: their locks have
    ended."""
    for _ in range(2):
        if subs[HOLD, slot] == 0 or received <= subs[ABOVE, slot]:
            return
        subs[HOLD, slot], subs[ABOVE, slot] = subs[NEXT_HOLD, slot], subs[NEXT_ABOVE, slot]
        subs[NEXT_HOLD, slot], subs[NEXT_ABOVE, slot] = 0, 0


@kernel
def numbers_of(items: Any, stream: int, pairs: Any, count: int, out: Any) -> None:
    """Find the number of the registration that each item belongs to, and write it to `out`. It is NO_REQUEST if
    `stream`, on which the items arrived, has no such request_id, and OTHER_REGION if the request_id was not sent for
    the item's region. `pairs` is the table of the registrations that were sent, sorted by SENT_AS; its first `count`
    columns are in use."""
    first = 0
    for item in range(items.shape[1]):
        request = items[REQUEST, item]
        if first >= count or pairs[SENT_AS, first] != request or (first > 0 and pairs[SENT_AS, first - 1] == request):
            first, beyond = 0, count
            while first < beyond:
                middle = (first + beyond) // 2
                if pairs[SENT_AS, middle] < request:
                    first = middle + 1
                else:
                    beyond = middle
        out[item] = NO_REQUEST
        at = first
        while at < count and pairs[SENT_AS, at] == request and pairs[PAIR_STREAM, at] == stream:
            if pairs[PAIR_REGION, at] == items[REGION, item]:
                out[item] = pairs[NUMBER, at]
                break
            out[item] = OTHER_REGION
            at += 1


@kernel
def apply(
    data: Any,
    items: Any,
    rows: Any,
    stream: int,
    slot_of: Any,
    lowest_request: int,
    subs: Any,
    bounds: Any,
    logs: Any,
    drops_empty: bool,
    ts_max: int,
    ts_now: int,
    row_slot: Any,
    row_index: Any,
    ends: Any,
    counters: Any,
) -> Any:
    """Apply received items, in order, to the subscriptions.

    Args:
        data: the received bytes; the rows point to their keys and values in it.
        items: REQUEST is the registration's number (`numbers_of`).
        stream: the stream on which the items arrived.
        slot_of: the slot (column in `subs`) of request `lowest_request + i`, or -1.
        subs: the subscription table, which is updated.
        bounds: bytes of span bounds; START_AT, END_AT and BOUND_END of a slot point into it. An empty end is +infinity.
        logs: the range logs.
        drops_empty: drop a PREWRITE of an empty value, because it repeats an earlier one without its value
            (upstream-formats 6.1).
        ts_max: no timestamp above it can have been given by PD yet.
        ts_now: PD had given no timestamp above it when the items arrived.
        row_slot: out; the slot of each row that enters a file, or -1.
        row_index: out; its log index.
        ends: out; items with an error of a live subscription, in order. `counters[ENDS]` is their number.
        counters: out; what was found is added, at the positions LATE to ENDS.
    Returns:
        (FINE, WRONG_REGION, BAD_ROW, PROMISE_BROKEN or AHEAD; the item at which it happened). Later items were not
        applied.
    """
    row_slot[:] = -1
    for item in range(items.shape[1]):
        kind = items[KIND, item]
        if kind == NOTHING:
            continue
        if items[REQUEST, item] == OTHER_REGION:
            return WRONG_REGION, item
        place = items[REQUEST, item] - lowest_request
        slot = i64(-1)
        if 0 <= place < len(slot_of):
            slot = i64(slot_of[place])
        if slot < 0 or subs[STATE, slot] == ENDED or subs[STREAM, slot] != stream:
            counters[LATE] += 1
            continue
        if items[REGION, item] != subs[REGION_ID, slot]:
            return WRONG_REGION, item
        if kind == ERROR:
            subs[STATE, slot] = ENDED
            ends[counters[ENDS]] = item
            counters[ENDS] += 1
        elif kind == RESOLVED:
            ts = items[TS, item]
            if subs[STATE, slot] != LIVE:
                counters[EARLY_RESOLVED] += 1
            elif ts > ts_max:
                return AHEAD, item
            elif ts < subs[RECEIVED, slot]:
                counters[REGRESSIONS] += 1
            else:
                subs[RECEIVED, slot] = ts
                subs[RESOLVED_TS, slot] = max(subs[RESOLVED_TS, slot], ts)
                subs[HIGHEST, slot] = max(ts, ts_now)
                _release(subs, slot, ts)
        else:
            live = subs[STATE, slot] == LIVE
            log = subs[RANGE, slot] - 1
            counting = live if log < 0 else logs[LOG_STARTED, log] > 0
            index = i64(0)
            if counting:
                index = i64(1) + (subs[INDEX, slot] if log < 0 else logs[LOG_INDEX, log])
            kept = False
            initialized = False
            for row in range(items[ROW_FIRST, item], items[ROW_BEYOND, item]):
                type_, op = rows[TYPE, row], rows[OP, row]
                if type_ == 5:
                    initialized = True
                    continue
                whole = type_ in (2, 4)
                if type_ < 1 or type_ > 4 or rows[START_TS, row] <= 0 or (whole and rows[COMMIT_TS, row] <= 0):
                    return BAD_ROW, item
                if type_ in (1, 4) and (op < 1 or op > 2):
                    return BAD_ROW, item
                size = rows[KEY_LEN, row]
                begin, middle, end = subs[START_AT, slot], subs[END_AT, slot], subs[BOUND_END, slot]
                at = rows[KEY_AT, row]
                inside = middle == end or _below(data, at, size, bounds, middle, end)
                if not inside or _below(data, at, size, bounds, begin, middle):
                    counters[OUTSIDE] += 1
                    continue
                if whole and rows[COMMIT_TS, row] > ts_max:
                    return AHEAD, item
                received = max(subs[PROMISED, slot], subs[RECEIVED, slot] if live else i64(0))
                if whole and rows[COMMIT_TS, row] <= received:
                    return PROMISE_BROKEN, item
                if drops_empty and type_ == 1 and op == 1 and rows[VALUE_LEN, row] == 0:
                    counters[EMPTY_REPEATS] += 1
                    continue
                if type_ == 1 and (not live or rows[START_TS, row] <= subs[HIGHEST, slot]):
                    _hold(subs, slot, rows[START_TS, row], subs[HIGHEST, slot] if live else TS_END)
                row_slot[row] = slot
                row_index[row] = index
                kept = True
            if kept and counting:
                if log < 0:
                    subs[INDEX, slot] = index
                else:
                    logs[LOG_INDEX, log] = index
            if initialized and not live:
                subs[STATE, slot] = LIVE
                subs[HIGHEST, slot] = ts_now
                if subs[HOLD, slot] != 0:
                    if subs[NEXT_HOLD, slot] != 0:
                        subs[HOLD, slot] = min(subs[HOLD, slot], subs[NEXT_HOLD, slot])
                    subs[ABOVE, slot] = ts_now
                    subs[NEXT_HOLD, slot], subs[NEXT_ABOVE, slot] = 0, 0
    return FINE, -1


@kernel
def gather(data: Any, at: Any, size: Any, out: Any, offsets: Any) -> None:
    """Copy the byte ranges `data[at[i]:at[i] + size[i]]` to `out`, one after the other, and write their offsets to
    `offsets`. `offsets` has one element more than there are ranges."""
    beyond = 0
    offsets[0] = 0
    for one in range(len(at)):
        begin, count = at[one], size[one]
        out[beyond : beyond + count] = data[begin : begin + count]
        beyond += count
        offsets[one + 1] = beyond
