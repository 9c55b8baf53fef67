"""When a shard of a feed may send a DDL, and the rows behind it (design-changefeeds.md 9.5). Pure.

All shards read the same events. A shard that comes to a DDL commits its progress before it, and sends its copies of the
DDL once every expected shard stands there or further: then all rows at or below the DDL are durable. It sends rows
again once every shard stands behind the DDL: then all copies of it are durable. What counts is the progress that shards
have committed into the sink, not what they or the meta server say: no late holder can answer for a shard.
"""

from __future__ import annotations

from collections.abc import Mapping

from tistream.read.cursor import Position
from tistream_changefeed.core.progress import Fence, Progress, Revision


def behind(
    found: Mapping[int, Progress], expected: range, own: int, fence: Fence, revision: Revision, until: Position
) -> tuple[int, ...]:
    """The expected shards, but `own`, that do not stand at or behind `until`. `found`: their committed progress, by
    shard. Progress of an earlier feed of that name, or under another revision, does not count: that shard may go back.
    """
    return tuple(
        shard
        for shard in expected
        if shard != own and not _reached(found.get(shard), fence.generation, revision.revision, until)
    )


def _reached(progress: Progress | None, generation: int, revision: int, until: Position) -> bool:
    if progress is None or progress.fence.generation != generation:
        return False
    applied = 0 if progress.applied is None else progress.applied.revision
    return applied == revision and progress.at >= until
