"""A compiled parser of the protobuf message ChangeDataEvent. Pure.

It accepts the same bytes as a protobuf library: unknown fields are skipped, the last value of a field counts, and a
repeated oneof message is merged. It reads the bytes twice, the first time only to count.
"""

# ruff: noqa: PLR0911, PLR0912, PLR0915
# A parser is one loop of cases: calls between kernels cost more than the parsing.

from __future__ import annotations

from typing import Any

from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream_agent.core.kernels import (
    COMMIT_TS,
    ENTRIES,
    ERROR,
    ERROR_AT,
    ERROR_END,
    EXPIRE,
    GENERATION,
    KEY_AT,
    KIND,
    NOTHING,
    OP,
    REGION,
    REQUEST,
    RESOLVED,
    ROW_BEYOND,
    ROW_FIRST,
    SOURCE,
    START_TS,
    TS,
    TYPE,
)

_MAX_DEPTH = 64


@inline
def _varint(data: Any, at: int, end: int) -> Any:
    """Read a varint. Returns its low 64 bits and the offset after it; the offset is -1 if the bytes are malformed."""
    value = u64(0)
    for place in range(10):
        if at >= end:
            return value, i64(-1)
        byte = u64(data[at])
        at += 1
        value |= (byte & u64(127)) << u64(7 * place)
        if byte < u64(128):
            return value, i64(at)
    return value, i64(-1)


@inline
def _tag(data: Any, at: int, end: int) -> Any:
    """Read the tag of a field. Returns field << 3 | wire type, and the offset after it; the offset is -1 if the bytes
    are malformed or the field is 0."""
    value, after = _varint(data, at, end)
    if after < 0 or after - at > 5 or value >> u64(32) or value >> u64(3) == u64(0):
        return i64(0), i64(-1)
    return i64(value), after


@inline
def _plain(data: Any, at: int, end: int, wire: int) -> Any:
    """The offset after a value of wire type `wire` that begins at `at`; -1 if the bytes are malformed, or the wire type
    is not 0, 1, 2 or 5."""
    if wire == 0:
        return _varint(data, at, end)[1]
    if wire == 1:
        return at + 8 if at + 8 <= end else i64(-1)
    if wire == 5:
        return at + 4 if at + 4 <= end else i64(-1)
    if wire == 2:
        size, after = _varint(data, at, end)
        if after < 0 or size > u64(end - after):
            return i64(-1)
        return after + i64(size)
    return i64(-1)


@inline
def _skip(data: Any, at: int, end: int, tag: int, groups: Any) -> Any:
    """The offset after an unknown field, which may be a group, whose value begins at `at`; -1 if the bytes are
    malformed. `groups` is scratch memory: the field numbers of the groups that are open."""
    if tag & 7 != 3:
        return _plain(data, at, end, tag & 7)
    depth = 1
    groups[0] = tag >> 3
    while depth:
        inner, at = _tag(data, at, end)
        if at < 0:
            return i64(-1)
        if inner & 7 == 4:
            depth -= 1
            if groups[depth] != inner >> 3:
                return i64(-1)
        elif inner & 7 == 3:
            if depth == _MAX_DEPTH:
                return i64(-1)
            groups[depth] = inner >> 3
            depth += 1
        else:
            at = _plain(data, at, end, inner & 7)
            if at < 0:
                return i64(-1)
    return at


@inline
def _sub(data: Any, at: int, end: int) -> Any:
    """The offsets (begin, end) of a length-delimited value; the end is -1 if the bytes are malformed."""
    size, after = _varint(data, at, end)
    if after < 0 or size > u64(end - after):
        return i64(0), i64(-1)
    return after, after + i64(size)


@inline
def _low32(value: Any) -> int:
    """The value of an enum: the low 32 bits, as a signed number."""
    low = i64(value & u64(0xFFFFFFFF))
    return low - (i64(1) << 32) if low >= i64(1) << 31 else low


@inline
def _row(data: Any, at: int, end: int, row: int, rows: Any, groups: Any) -> bool:
    """Parse an Event.Row into column `row` of the table. If the table has no such column, the bytes are only checked.
    Returns False if they are malformed. `groups`: as in `_skip`."""
    keep = row < rows.shape[1]
    while at < end:
        tag, at = _tag(data, at, end)
        if at < 0:
            return False
        field, wire = tag >> 3, tag & 7
        if wire == 2 and 5 <= field <= 7:
            begin, stop = _sub(data, at, end)
            if stop < 0:
                return False
            if keep:
                place = KEY_AT + 2 * (field - 5)
                rows[place, row] = begin
                rows[place + 1, row] = stop - begin
            at = stop
        elif wire == 0 and 1 <= field <= 10:
            value, at = _varint(data, at, end)
            if at < 0:
                return False
            if keep:
                if field == 1:
                    rows[START_TS, row] = i64(value)
                elif field == 2:
                    rows[COMMIT_TS, row] = i64(value)
                elif field == 3:
                    rows[TYPE, row] = _low32(value)
                elif field == 4:
                    rows[OP, row] = _low32(value)
                elif field == 8:
                    rows[EXPIRE, row] = i64(value)
                elif field == 9:
                    rows[SOURCE, row] = i64(value)
                elif field == 10:
                    rows[GENERATION, row] = i64(value)
        else:
            at = _skip(data, at, end, tag, groups)
            if at < 0:
                return False
    return True


@inline
def _event(data: Any, at: int, end: int, item: int, row: int, items: Any, rows: Any, groups: Any) -> int:
    """Parse an Event into column `item` of the items, and its rows from column `row` on. Returns the number of the row
    after them; -1 if the bytes are malformed. `groups`: as in `_skip`."""
    keep = item < items.shape[1]
    first = row
    kind, ts, error_at, error_end = NOTHING, i64(0), i64(0), i64(0)
    request, region = i64(0), i64(0)
    while at < end:
        tag, at = _tag(data, at, end)
        if at < 0:
            return i64(-1)
        field, wire = tag >> 3, tag & 7
        if wire == 0 and (field in (1, 6, 7)):
            value, at = _varint(data, at, end)
            if at < 0:
                return i64(-1)
            if field == 1:
                region = i64(value)
            elif field == 7:
                request = i64(value)
            else:
                kind, ts = RESOLVED, i64(value)
                row = first if keep else row
        elif wire == 2 and field == 3:
            begin, stop = _sub(data, at, end)
            if stop < 0:
                return i64(-1)
            kind = ENTRIES
            while begin < stop:
                inner, begin = _tag(data, begin, stop)
                if begin < 0:
                    return i64(-1)
                if inner == 10:
                    row_at, row_end = _sub(data, begin, stop)
                    if row_end < 0:
                        return i64(-1)
                    if row < rows.shape[1]:
                        rows[:, row] = 0
                    if not _row(data, row_at, row_end, row, rows, groups):
                        return i64(-1)
                    row += 1
                    begin = row_end
                else:
                    begin = _skip(data, begin, stop, inner, groups)
                    if begin < 0:
                        return i64(-1)
            at = stop
        elif wire == 2 and field in (4, 5, 8):
            begin, stop = _sub(data, at, end)
            if stop < 0:
                return i64(-1)
            row = first if keep else row
            if field == 5:
                kind, error_at, error_end = ERROR, begin, stop
            else:
                kind = NOTHING
            at = stop
        else:
            at = _skip(data, at, end, tag, groups)
            if at < 0:
                return i64(-1)
    if keep:
        items[KIND, item] = kind
        items[REQUEST, item] = request
        items[REGION, item] = region
        items[TS, item] = ts
        items[ROW_FIRST, item] = first
        items[ROW_BEYOND, item] = row
        items[ERROR_AT, item] = error_at
        items[ERROR_END, item] = error_end
    return row


@inline
def _put_region(items: Any, item: int, region: Any) -> int:
    """Write one region of a ResolvedTs to column `item` of the items, if the table has such a column. Returns the
    number of the next item."""
    if item < items.shape[1]:
        items[:, item] = 0
        items[KIND, item] = RESOLVED
        items[REGION, item] = i64(region)
        items[ERROR_AT, item] = -1  # until the message's ts and request are known
    return item + 1


@kernel
def scan(data: Any, bounds: Any, items: Any, rows: Any, groups: Any) -> Any:
    """Parse the messages `data[bounds[i]:bounds[i + 1]]` into the columns of `items` and `rows`, in order.

    Returns the number of items, the number of rows, and the first malformed message or -1. With tables that have no
    columns it only counts; the number of rows is then an upper bound. `groups` is scratch memory for 64 numbers.
    """
    item, row = 0, 0
    for message in range(len(bounds) - 1):
        at, end = bounds[message], bounds[message + 1]
        first, ts, request = item, i64(0), i64(0)
        resolved = False
        while at < end:
            tag, at = _tag(data, at, end)
            if at < 0:
                return item, row, message
            if tag == 10:
                begin, stop = _sub(data, at, end)
                if stop < 0:
                    return item, row, message
                row = _event(data, begin, stop, item, row, items, rows, groups)
                if row < 0:
                    return item, row, message
                item += 1
                at = stop
            elif tag == 18:
                begin, stop = _sub(data, at, end)
                if stop < 0:
                    return item, row, message
                resolved = True
                while begin < stop:
                    inner, begin = _tag(data, begin, stop)
                    if begin < 0:
                        return item, row, message
                    if inner in (8, 16, 24):
                        value, begin = _varint(data, begin, stop)
                        if begin < 0:
                            return item, row, message
                        if inner == 8:
                            item = _put_region(items, item, value)
                        elif inner == 16:
                            ts = i64(value)
                        else:
                            request = i64(value)
                    elif inner == 10:
                        packed, beyond = _sub(data, begin, stop)
                        if beyond < 0:
                            return item, row, message
                        while packed < beyond:
                            value, packed = _varint(data, packed, beyond)
                            if packed < 0:
                                return item, row, message
                            item = _put_region(items, item, value)
                        begin = beyond
                    else:
                        begin = _skip(data, begin, stop, inner, groups)
                        if begin < 0:
                            return item, row, message
                at = stop
            else:
                at = _skip(data, at, end, tag, groups)
                if at < 0:
                    return item, row, message
        if resolved and items.shape[1]:
            for one in range(first, item):
                if items[ERROR_AT, one] == -1:
                    items[TS, one] = ts
                    items[REQUEST, one] = request
    return item, row, -1
