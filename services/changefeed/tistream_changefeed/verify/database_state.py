"""Decides from the progress that a database has of a feed whether its tables show the rows as of one ts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tistream.read.cursor import Place, Position
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.sync_points import passed


@dataclass(frozen=True, slots=True)
class NotNow:
    """Why the tables do not show the rows as of one ts. `passes`: whether that ends by itself."""

    reason: str
    passes: bool


def shown_ts(states: Mapping[int, tuple[Progress, Position]], ddl_ts: int, shards: int) -> tuple[int, ...] | NotNow:
    """The ts as of which the tables of each shard show their rows, by shard; NotNow, with the reason, if the tables of
    some shard do not show one ts. `states`: the progress of each shard that has any, and the highest position that any
    of its connections may have written. `ddl_ts`: the commit_ts of the newest DDL that was begun. `shards`: how many
    shards the feed has; others may have been left behind by an earlier number."""
    reason = next(_reasons(states, ddl_ts, shards), None)
    return tuple(states[shard][0].at.low_ts for shard in range(shards)) if reason is None else reason


def _reasons(states: Mapping[int, tuple[Progress, Position]], ddl_ts: int, shards: int) -> Iterator[NotNow]:
    newest = max((progress.revision for progress, _ in states.values()), default=0)
    for shard, (progress, _) in states.items():
        if progress.revision == newest and (shard >= shards or progress.shards not in (None, shards)):
            yield NotNow(f"the feed is being divided into {shards} shards", passes=True)
    for shard in range(shards):
        if shard in states:
            yield from _reasons_of(shard, *states[shard], newest, ddl_ts)
        else:
            yield NotNow("the feed has written nothing yet", passes=True)


def _reasons_of(shard: int, progress: Progress, high: Position, newest: int, ddl_ts: int) -> Iterator[NotNow]:
    at = progress.at
    if progress.revision != newest:
        yield NotNow(f"shard {shard} has not begun with revision {newest} of the feed yet", passes=True)
    if progress.load is not None:
        yield NotNow("the rows with which the feed begins are not loaded yet", passes=True)
    if progress.stopped:
        names = ", ".join(".".join(one.name) for one in progress.stopped)
        yield NotNow(f"tables have stopped ({names}): let them go on first", passes=False)
    if high > at:
        yield NotNow("some connections have written their part of a window, and others have not", passes=True)
    if at.place is not Place.DONE and at != passed(at.low_ts):
        yield NotNow("the feed is inside a transaction", passes=True)
    if ddl_ts > at.low_ts:
        yield NotNow(f"the DDL at commit_ts {ddl_ts} is being executed", passes=True)
