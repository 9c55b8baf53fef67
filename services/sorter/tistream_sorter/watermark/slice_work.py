"""How much of a file's rows that overlap is done at once, and how much of them has room. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tistream_sorter.watermark.slice_cuts import Cuts, Int64s
from tistream_sorter.watermark.watermark_rows import Waiting

# What one task keeps of rows that wait, and notes of one file's: more than the regions of any store, and several times.
WAITING_MAX = 1_000_000
CHANGES_MAX = 500_000
CHANGES_A_TAKE = 250_000  # noted of a take's files, after which it ends with those that it has
WAITING_A_STEP = 32  # rows that wait, or slices, looked through once more
ROWS_AT_ONCE = 1_024  # taken apart
FEW_SLICES = 8  # not worth a look at all of them at once
STEPS_BETWEEN = 256  # in one row, before others may go on
SLICES_A_STEP = 1_024  # looked at as arrays

GOING_ON = 4  # tasks that go on in one tick with files of which it takes a part at a time

T = TypeVar("T")
Steps = Generator[int, None, None]


def passed_over(going_on: Sequence[T], turn: int) -> Sequence[T]:
    """Of the tasks that go on taking files all but a few, in turn: each takes as long as all others may wait."""
    if len(going_on) <= GOING_ON:
        return ()
    at = turn * GOING_ON % len(going_on)
    return [*going_on, *going_on][at + GOING_ON : at + len(going_on)]


class TooMuch(Exception):
    """A file's rows would take more room than a task has. Nothing of it may be taken."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Which slices the waiting rows cover, for as long as neither they nor the slices are others."""

    waiting: Waiting
    cuts: Cuts
    first: Int64s
    beyond: Int64s


def ranges(runs: tuple[Int64s, Int64s], which: slice | Int64s) -> Iterator[range]:
    """Some of the runs `[first, beyond)`, one by one."""
    return map(range, runs[0][which].tolist(), runs[1][which].tolist())


def check_room(rows: int) -> None:
    """Raises TooMuch if one task cannot keep so many waiting rows."""
    if rows > WAITING_MAX:
        raise TooMuch(f"more than {WAITING_MAX} watermark rows would wait for what has not come")
