"""A compiled loop that finds the values of a Parquet footer, and checks every length that comes from the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.footer_places import (
    BINARY,
    BYTE,
    CHUNK_WIDTH,
    DOUBLE,
    FALSE,
    FILE_OFFSET,
    FILE_PLACES,
    FOREIGN,
    GROUP_CHUNKS,
    GROUP_WIDTH,
    HIGH,
    I16,
    I64_,
    LIST,
    LOW,
    META,
    PLACE,
    PLAIN,
    STRUCT,
    TRUE,
    varint,
    zigzag,
)
from tistream.decode.kernels.jit import i64, inline, kernel, u64

MAX_DEPTH = 16

# What a struct or a list is, by its place in the footer
_OTHER, _FILE, _GROUPS, _GROUP, _CHUNKS, _CHUNK, _COLUMN, _STATISTICS, _SIZES = range(9)
# Of a frame: its kind, elements left, their type, depth, what it is, number and start of its field, its last field,
# a bit for each field below 64 that it has had, and the highest field from 64 on that it has had
_IN_FRAME = 10
_KIND, _LEFT, _ELEMENT, _DEPTH, _ROLE, _NUMBER, _START, _LAST, _SEEN, _HIGHEST = range(_IN_FRAME)


@inline
def _role(outer: int, number: int, kind: int, element: int) -> int:  # noqa: PLR0911  # a table of roles
    """The role of a struct or list: one of the constants above, such as _GROUP. `outer` is the role of what it is in,
    and `number` the number of its field there. `kind` is LIST or STRUCT; `element` is the type of a list's elements."""
    if kind == LIST:
        if element == STRUCT and outer == _FILE and number == 4:
            return i64(_GROUPS)
        if element == STRUCT and outer == _GROUP and number == 1:
            return i64(_CHUNKS)
    elif outer == _GROUPS:
        return i64(_GROUP)
    elif outer == _CHUNKS:
        return i64(_CHUNK)
    elif outer == _CHUNK and number == 3:
        return i64(_COLUMN)
    elif outer == _COLUMN and number == 12:
        return i64(_STATISTICS)
    elif outer == _COLUMN and number == 16:
        return i64(_SIZES)
    return i64(_OTHER)


@inline
def _chunk_slot(role: int, number: int) -> int:  # noqa: PLR0911  # a table of places
    """The index of the place in a row of `chunks` for the field `number` of a struct with this role; -1 if there is no
    place for it."""
    if role == _COLUMN and 1 <= number <= 16:
        return i64(number)
    if role == _CHUNK:
        if number == 3:
            return i64(META)
        if number == 2:
            return i64(FILE_OFFSET)
        if number == 1 or 8 <= number <= 9:
            return i64(FOREIGN)
    if role == _STATISTICS and number == 5:
        return i64(HIGH)
    if role == _STATISTICS and number == 6:
        return i64(LOW)
    if role == _SIZES and number == 1:
        return i64(PLAIN)
    return i64(-1)


@inline
def _note(
    role: int, number: int, kind: int, start: int, end: int, file: I64, groups: I64, chunks: I64, counts: I64
) -> None:
    """Write the place of a value (its type `kind`, its `start` and `end`) to `file`, `groups` or `chunks`, if one of
    them has room for it. `role` is that of the struct in which the value is the field `number`. `counts`: as in
    `scan`."""
    if role == _OTHER:
        return
    if role == _FILE and 1 <= number < FILE_PLACES:
        file[number * PLACE], file[number * PLACE + 1], file[number * PLACE + 2] = kind, start, end
    elif role == _GROUP and 1 <= number <= 3:
        row, at = counts[0] - 1, number * PLACE
        groups[row, at], groups[row, at + 1], groups[row, at + 2] = kind, start, end
    else:
        at = _chunk_slot(role, number) * PLACE
        if at >= 0:
            row = counts[1] - 1
            chunks[row, at], chunks[row, at + 1], chunks[row, at + 2] = kind, start, end


@inline
def _push(frames: Any, top: int, kind: int, left: int, element: int, depth: int, role: int) -> None:
    frames[top, _KIND], frames[top, _LEFT], frames[top, _ELEMENT] = kind, left, element
    frames[top, _DEPTH], frames[top, _ROLE] = depth, role
    frames[top, _LAST], frames[top, _SEEN], frames[top, _HIGHEST] = 0, 0, 0


@inline
def _begin_row(role: int, groups: Any, chunks: Any, counts: I64) -> bool:
    """Begin a row of `groups` or of `chunks` for a struct. Returns whether there is room."""
    if role == _GROUP:
        if counts[0] == len(groups):
            return False
        for column in range(GROUP_WIDTH):
            groups[counts[0], column] = 0
        groups[counts[0], GROUP_CHUNKS] = counts[1]
        counts[0] += 1
    elif role == _CHUNK:
        if counts[1] == len(chunks):
            return False
        for column in range(CHUNK_WIDTH):
            chunks[counts[1], column] = 0
        counts[1] += 1
        groups[counts[0] - 1, GROUP_CHUNKS + 1] += 1
    return True


@kernel
def scan(data: U8, file: I64, groups: Any, chunks: Any, counts: I64) -> bool:  # noqa: PLR0911, PLR0912, PLR0915  # one loop
    """Find the values of the Thrift struct at the beginning of `data`. Returns whether it is sound, and has no field
    number below 0, or above 63 and not above all before it. Writes the places of its values to `file`, and to
    a row for each row group and each column chunk. `counts` gets the numbers of these rows."""
    frames = np.zeros((2 * MAX_DEPTH + 2, _IN_FRAME), np.int64)
    counts[:] = 0
    top, at = i64(0), i64(0)
    _push(frames, top, STRUCT, 0, 0, 0, _FILE)
    while top >= 0:
        role, number, kind = frames[top, _ROLE], i64(0), frames[top, _ELEMENT]
        ended = frames[top, _KIND] == LIST and frames[top, _LEFT] == 0
        if frames[top, _KIND] == STRUCT:
            if at >= len(data):
                return False
            head = i64(data[at])
            at += 1
            ended = head == 0
            if not ended:
                kind, number = head & 15, frames[top, _LAST] + (head >> 4)
                if head >> 4 == 0:
                    raw, at, sound = varint(data, at)
                    if not sound:
                        return False
                    number = zigzag(raw)
                if 0 <= number < 64:
                    bit = i64(1) << number
                    if frames[top, _SEEN] & bit:
                        return False
                    frames[top, _SEEN] |= bit
                elif number <= frames[top, _HIGHEST]:
                    return False
                else:
                    frames[top, _HIGHEST] = number
                frames[top, _LAST] = number
                if TRUE <= kind <= FALSE:  # the type of a boolean field is its value
                    _note(role, number, kind, at, at, file, groups, chunks, counts)
                    continue
        else:
            frames[top, _LEFT] -= 1
        if ended:
            number, kind, start = frames[top, _NUMBER], frames[top, _KIND], frames[top, _START]
            top -= 1
            if top >= 0:
                _note(frames[top, _ROLE], number, kind, start, at, file, groups, chunks, counts)
            continue
        start = at
        depth = frames[top, _DEPTH] + (1 if frames[top, _KIND] == LIST else 0)
        if kind == STRUCT:
            if depth + 1 > MAX_DEPTH:
                return False
            inner = _role(role, number, kind, 0)
            if not _begin_row(inner, groups, chunks, counts):
                return False
            top += 1
            _push(frames, top, kind, 0, 0, depth + 1, inner)
            frames[top, _NUMBER], frames[top, _START] = number, start
            continue
        if kind == LIST:
            if depth > MAX_DEPTH:
                return False
            if at >= len(data):
                return False
            head = i64(data[at])
            at += 1
            count = u64(head >> 4)
            if head >> 4 == 15:
                count, at, sound = varint(data, at)
                if not sound:
                    return False
            if count > u64(len(data) - at):  # every element takes at least a byte
                return False
            top += 1
            _push(frames, top, kind, i64(count), head & 15, depth, _role(role, number, kind, head & 15))
            frames[top, _NUMBER], frames[top, _START] = number, start
            continue
        if I16 <= kind <= I64_:
            _, at, sound = varint(data, at)
            if not sound:
                return False
        elif kind == BINARY:
            length, at, sound = varint(data, at)
            if not sound:
                return False
            if length > u64(len(data) - at):
                return False
            start = at
            at += i64(length)
        elif kind == DOUBLE:
            at += 8
        elif TRUE <= kind <= BYTE:
            at += 1
        else:
            return False
        if at > len(data):
            return False
        _note(role, number, kind, start, at, file, groups, chunks, counts)
    return True
