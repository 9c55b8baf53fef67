"""Decides when a shard (one of the parallel writers of a feed) may send a DDL, and the rows after it
(docs/changefeeds.md, "Order").

Pure. All shards read the same events. A shard that reaches a DDL first commits its progress up to the DDL. It sends its
copies of the DDL once every expected shard has committed at least that progress: then all rows at or below the DDL are
durable. It sends rows again once every shard has committed progress after the DDL: then all copies of the DDL are
durable. Only the progress that shards have committed into the sink counts. Reports of workers or of the meta server do
not, because a worker that has lost the shard may still report.

A table that has stopped in one shard stops in the others at the next barrier, because its DDLs wait for it. If they
send rows of the table too, they look for that every few seconds, and each stops it where it is. That needs no barrier,
at which a shard that does not answer would hold up the others: no shard has passed a DDL of the table that another one
has not, and each knows up to where it has sent the table.

A shard that passes a DDL and then finds that another one has stopped a table before the DDL, because its sink has
refused the DDL, stops the table behind the DDL. After a change of the feed all shards retry the table, and meet at the
DDLs that have waited: what counts there is how far its events were sent (Progress.sent).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tistream.read.cursor import Position
from tistream_changefeed.core.progress import Fence, Progress, Revision
from tistream_changefeed.core.stopped import StoppedTable


def behind(
    found: Mapping[int, Progress], expected: range, own: int, fence: Fence, revision: Revision, until: Position
) -> tuple[int, ...]:
    """The expected shards, except `own`, whose committed progress has not reached `until`, or of which a table that
    catches up has not. `found` is the committed progress by shard. Progress of an earlier feed of the same name, or
    under another revision, does not count, because that shard may go back to an earlier position."""
    return tuple(
        shard
        for shard in expected
        if shard != own and not _reached(found.get(shard), fence.generation, revision.revision, until)
    )


def current(found: Mapping[int, Progress], fence: Fence, revision: Revision) -> dict[int, Progress]:
    """The committed progress of those shards that have applied this revision. A shard under another one may retry its
    tables. Progress of an earlier feed of the same name does not count."""
    return {shard: one for shard, one in found.items() if _applies(one, fence.generation, revision.revision)}


def stopped(found: Mapping[int, Progress], expected: range, own: int, until: Position) -> Iterator[StoppedTable]:
    """The tables that have stopped before `until` in one of the expected shards except `own`. `found` is the committed
    progress by shard."""
    for shard in expected:
        if shard != own and shard in found:
            yield from (one for one in found[shard].stopped if not one.lacks and one.end < until)


def beyond(found: Mapping[int, Progress], expected: range, own: int, after: Position) -> tuple[int, ...]:
    """The expected shards, except `own`, that went past a sync point (a ts at which all shards wait, so that the sink
    records a pair of upstream and downstream ts) without having waited there. The sink may then have rows above it, so
    the caller must record no pair. `after` is the position directly after the sync point. `found` is the committed
    progress by shard; each shard must have reached the point."""
    return tuple(shard for shard in expected if shard != own and found[shard].at > after != found[shard].ddl)


def _reached(progress: Progress | None, generation: int, revision: int, until: Position) -> bool:
    return progress is not None and _applies(progress, generation, revision) and progress.sent >= until


def _applies(progress: Progress, generation: int, revision: int) -> bool:
    return (progress.fence.generation, progress.revision) == (generation, revision)
