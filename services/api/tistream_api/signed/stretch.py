"""Chooses the next range of commit_ts that a reader takes in one way: from the object store, or by a pull. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tistream.model.ts import Window
from tistream.read.plan import GroupRef

SPAN_ROWS = 1 << 24  # row groups are looked up ahead for about this many rows
LOOKS = 256  # the most row groups of which one answer reads the statistics, each from a footer in the object store


@dataclass(frozen=True, slots=True)
class StretchLimits:
    """The limits of one answer. `groups`, `bytes`: the most row groups that it has, and the bytes of these; only the
    row groups that begin first may exceed them. `rows_min`: the least number of rows for which a reader is sent to the
    object store, because a pull is cheaper for fewer."""

    groups: int = 64
    bytes: int = 1 << 30
    rows_min: int = 8_192


@dataclass(frozen=True, slots=True)
class Stretch:
    """The changes of a window from its low end, up to and with `high`. With `direct`, all of their rows are in
    `groups`, of which the reader may see every byte; these may have other rows too. Otherwise `groups` is empty, and
    the reader must pull the changes."""

    high: int
    direct: bool
    groups: tuple[GroupRef, ...]


def not_excluded(
    groups: Sequence[GroupRef], window: Window, excluded: Callable[[GroupRef, Window], bool], limits: StretchLimits
) -> tuple[list[GroupRef], Window]:
    """Leave out the row groups of which a reader with a filter needs nothing. `groups`: as of `stretch`. `excluded`
    (filtered.Outside) reads the statistics of a row group. So it is called for LOOKS row groups, or until an answer has
    enough of the others. Returns these, and the beginning of the window up to which all row groups were looked at."""
    found: list[GroupRef] = []
    for number, one in enumerate(groups):
        begins = one.info.commit_ts_min
        if begins - 1 > window.low and (number >= LOOKS or len(found) >= limits.groups):
            return found, Window(window.low, begins - 1)
        if not excluded(one, window):
            found.append(one)
    return found, window


def stretch(
    groups: Sequence[GroupRef], window: Window, may_give: Callable[[GroupRef], bool], limits: StretchLimits
) -> Stretch:
    """Choose the stretch at the beginning of the window. `groups`: every row group that may have rows of the window, in
    the order of groups_in. `may_give`: whether each byte of a row group is for the reader to see."""
    given = [one for one in groups if may_give(one)]
    gaps = _gaps([one for one in groups if not may_give(one)], window)
    for gap in gaps:
        inside = [one for one in given if gap.overlaps(one.info.commit_ts_min, one.info.commit_ts_max)]
        enough = sum(one.info.rows for one in inside) >= limits.rows_min
        if not (enough or (gap == window and not inside)):
            continue
        if gap.low > window.low:
            return Stretch(gap.low, direct=False, groups=())
        return _within(inside, gap, limits)
    return Stretch(window.high, direct=False, groups=())


def _gaps(withheld: Sequence[GroupRef], window: Window) -> list[Window]:
    """The parts of the window that none of these row groups, which are in the order of groups_in, has rows of."""
    found, low = [], window.low
    for one in withheld:
        begins = min(one.info.commit_ts_min - 1, window.high)
        if begins > low:
            found.append(Window(low, begins))
        low = max(low, min(one.info.commit_ts_max, window.high))
    if low < window.high:
        found.append(Window(low, window.high))
    return found


def _within(groups: Sequence[GroupRef], window: Window, limits: StretchLimits) -> Stretch:
    """The stretch at the beginning of `window`, whose rows are all in `groups`, that fits into the limits. It has all
    row groups that begin first, however large they are."""
    chosen: list[GroupRef] = []
    size, first = 0.0, window.low + 1
    for one in groups:
        begins = max(one.info.commit_ts_min, window.low + 1)
        first = begins if not chosen else first
        if begins > first and (len(chosen) >= limits.groups or size >= limits.bytes):
            inside = tuple(group for group in chosen if group.info.commit_ts_min < begins)
            return Stretch(begins - 1, direct=True, groups=inside)
        chosen.append(one)
        size += one.info.rows * one.bytes_per_row
    return Stretch(window.high, direct=True, groups=tuple(chosen))


def slowed(limits: StretchLimits, bytes_per_second: float, seconds: int) -> StretchLimits:
    """The limits of an answer to a tenant with this rate of bytes (0: unlimited): what the rate allows in `seconds`."""
    if bytes_per_second <= 0:
        return limits
    return replace(limits, bytes=min(limits.bytes, int(bytes_per_second * seconds)))
