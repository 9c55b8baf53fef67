"""The offsets of a stream, and where its batches end. Pure.

An offset is `{"from": low, "to": high}`: the batch that ends at it has the changes in (low, high]. An offset with
`snapshot` ends the batch of the rows as of that ts. History below a resolved ts never changes, so a batch that Spark
repeats has the same rows. An offset states where its own batch begins: a query that is killed in its first batch, and
is started again later with `startingTs=now`, would else lose what lies between.

The offset at which a query begins has `to` alone, or `before`. Spark stores it as the end of the first batch if there
is nothing new then, and a query that is started again may begin at another one: the batch that ends at it is empty,
wherever it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Offset = dict[str, str]
_IDLE_TSO = 60_000 << 18  # a batch without rows moves the offset of an idle table, so that it stays within retention


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows as of `high` (`low` None), or the changes in (low, high]."""

    low: int | None
    high: int


def first(low: int, *, snapshot: bool) -> Offset:
    """Where a query without a checkpoint begins."""
    return {"before" if snapshot else "to": str(low)}


def snapshot_after(start: Offset) -> Offset | None:
    """The end of the batch of a snapshot, which the stream begins with; None: changes follow `start`."""
    ts = start.get("before")
    return None if ts is None else {"snapshot": ts, "to": ts}


def changes_after(start: Offset, high: int) -> Offset:
    """The end of the batch of the changes after `start` up to `high`; `start` if there is nothing new."""
    low = int(start["to"])
    return start if high <= low else {"from": str(low), "to": str(high)}


def batch(start: Offset, end: Offset) -> Batch | None:
    """What the batch that ends at `end` has; None: nothing."""
    if start == end:
        return None
    if "snapshot" in end:
        return Batch(None, int(end["snapshot"]))
    return Batch(int(end["from"]), int(end["to"])) if "from" in end else None


def end_with(change: int, newest: int, span: int | None, bounds: Sequence[int]) -> int:
    """The end of a batch whose first change is at `change`: at most `span` above it, and at none of the bounds more."""
    high = min([max(newest, change), *bounds])
    return high if span is None else min(high, change + span)


def end_without(low: int, resolved: int, bounds: Sequence[int], *, at_once: bool) -> int:
    """The end of a batch that begins at `low` and has no change up to `resolved`; `low`: no batch is due. `at_once`:
    the query ends with this batch."""
    return min([resolved, *bounds]) if at_once or resolved - low >= _IDLE_TSO else low
