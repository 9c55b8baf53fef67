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
    """The offset at which a query without a checkpoint begins: at the changes after `low`, or with `snapshot` at the
    rows as of `low`."""
    return {"before" if snapshot else "to": str(low)}


def snapshot_after(start: Offset) -> Offset | None:
    """The offset after the batch with the rows of the snapshot, if that is the first batch after `start`. None: the
    next batch has changes."""
    ts = start.get("before")
    return None if ts is None else {"snapshot": ts, "to": ts}


def changes_after(start: Offset, high: int) -> Offset:
    """The offset after the batch with the changes above the ts of `start`, up to and with `high`. `start` itself if
    `high` is not above it, so that there is no batch."""
    low = int(start["to"])
    return start if high <= low else {"from": str(low), "to": str(high)}


def batch(start: Offset, end: Offset) -> Batch | None:
    """The content of the batch between two offsets; None: it is empty."""
    if start == end:
        return None
    if "snapshot" in end:
        return Batch(None, int(end["snapshot"]))
    return Batch(int(end["from"]), int(end["to"])) if "from" in end else None


def end_with(change: int, newest: int, span: int | None, bounds: Sequence[int]) -> int:
    """The ts at which a batch ends whose first change is at the ts `change`. It is `newest`, the newest ts, or `change`
    if that is higher; but at most `change + span` (None: no limit), and at most the lowest of `bounds`."""
    high = min([max(newest, change), *bounds])
    return high if span is None else min(high, change + span)


def end_without(low: int, resolved: int, bounds: Sequence[int], *, at_once: bool) -> int:
    """The ts at which a batch ends that begins at `low` and has no change up to `resolved`. Returns `low` if no batch
    is due, because less than a minute of the upstream's time has passed. `at_once`: a batch is due in any case, because
    the query ends with it. It ends at the lowest of `bounds`, if one is below `resolved`."""
    return min([resolved, *bounds]) if at_once or resolved - low >= _IDLE_TSO else low
