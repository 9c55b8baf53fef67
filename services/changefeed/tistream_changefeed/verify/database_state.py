"""Decides from the progress that a database has of a feed whether its tables show the rows as of one ts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tistream.read.cursor import Place, Position
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.sync_points import passed


@dataclass(frozen=True, slots=True)
class NotNow:
    """Why the tables do not show the rows as of one ts. `passes`: whether that ends by itself."""

    reason: str
    passes: bool


def shown_ts(states: Mapping[int, tuple[Progress, Position]], shards: int) -> tuple[int, ...] | NotNow:
    """The ts whose rows the tables of each shard show, by shard. `states`: the progress of each shard, and the highest
    position that any of its connections may have written."""
    found = []
    for shard in range(shards):
        state = states.get(shard)
        if state is None:
            return NotNow("the feed has written nothing yet", passes=True)
        progress, high = state
        if progress.load is not None:
            return NotNow("the rows with which the feed begins are not loaded yet", passes=True)
        if progress.stopped:
            names = ", ".join(".".join(one.name) for one in progress.stopped)
            return NotNow(f"tables have stopped ({names}): let them go on first", passes=False)
        at = progress.at
        if high > at:
            return NotNow("some connections have written their part of a window, and others have not", passes=True)
        if at.place is not Place.DONE and at != passed(at.low_ts):
            return NotNow("the feed is inside a transaction", passes=True)
        found.append(at.low_ts)
    return tuple(found)
