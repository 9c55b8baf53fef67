"""Limits the work and the memory that overlapping watermark rows may cost: per step, and per task. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tistream.arrays import Int64s
from tistream_sorter.watermark.slice_cuts import SliceCuts
from tistream_sorter.watermark.watermark_rows import WaitingRows

# Limits of the waiting rows of a task, and of the slice changes by one file: several times the number of regions of any
# store.
WAITING_MAX = 1_000_000
CHANGES_MAX = 500_000
# Slice changes after which `tick.apply_files` applies no further file: by rows that are applied one by one, and of any
# rows since the last manifest, which are all kept in memory (64 bytes each).
CHANGES_AT_ONCE = 250_000
HISTORY_AT_ONCE = 1_000_000
WAITING_A_STEP = 32  # waiting rows, or slices, that are scanned in one step
ROWS_AT_ONCE = 1_024  # rows that are converted to objects at a time
FEW_SLICES = 8  # below this number, slices are tried one by one
STEPS_BETWEEN = 256  # limit of one row's steps before other tasks may continue
SLICES_A_STEP = 1_024  # slices that are filtered as arrays in one step

GOING_ON = 4  # tasks with unfinished files that continue in one tick

T = TypeVar("T")
Steps = Generator[int, None, None]


def passed_over(going_on: Sequence[T], turn: int) -> Sequence[T]:
    """Select the tasks that do nothing in this tick, of those whose files are partly applied. GOING_ON of them continue
    in each tick, in rotation, so that a tick stays short."""
    if len(going_on) <= GOING_ON:
        return ()
    at = turn * GOING_ON % len(going_on)
    return [*going_on, *going_on][at + GOING_ON : at + len(going_on)]


class WatermarkLimitExceeded(Exception):
    """Raised if the watermark rows of a file exceed a limit of the task. The file must not be applied."""


@dataclass(frozen=True, slots=True)
class CoveredSlices:
    """For each waiting row, the consecutive slices that it covers. Valid for these rows and these cuts."""

    waiting: WaitingRows
    cuts: SliceCuts
    first: Int64s
    beyond: Int64s


def ranges(runs: tuple[Int64s, Int64s], which: slice | Int64s) -> Iterator[range]:
    """Yield the half-open intervals `[first[i], beyond[i])` as ranges, for the positions i in `which`. `runs` is
    (first, beyond)."""
    return map(range, runs[0][which].tolist(), runs[1][which].tolist())


def check_room(rows: int) -> None:
    """Raise WatermarkLimitExceeded if `rows` waiting rows are more than one task may keep."""
    if rows > WAITING_MAX:
        raise WatermarkLimitExceeded(
            f"more than {WAITING_MAX} watermark rows would wait for log entries that have not arrived"
        )
