"""What a commit says about itself, in the summary of its snapshot and in the properties of its table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.read import cursor as cursors
from tistream.read.cursor import Position, Scope
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.progress import Fence

FEED, CURSOR, RESOLVED, EPOCH, GENERATION, LOADED = (
    f"tistream.{name}" for name in ("feed", "cursor", "resolved_ts", "epoch", "generation", "loaded")
)


@dataclass(frozen=True, slots=True)
class Marks:
    """The newest commit of a feed to a table: all rows up to the position `at` are in it. `fence` is that of the worker
    that made the commit. `loaded`: while the rows are loaded with which the feed begins, the raw key up to which they
    are there; then all rows at or below `at` up to this key are."""

    feed: str
    at: Position
    fence: Fence
    loaded: bytes | None = None

    def texts(self, tenant: TenantKey) -> dict[str, str]:
        """The marks as properties."""
        loaded = {} if self.loaded is None else {LOADED: self.loaded.hex()}
        return {
            **loaded,
            FEED: self.feed,
            CURSOR: cursors.encode(Scope(tenant), self.at),
            RESOLVED: str(self.at.low_ts),
            GENERATION: str(self.fence.generation),
            EPOCH: str(self.fence.epoch),
        }


def newest(summaries: Sequence[Mapping[str, str]], tenant: TenantKey, where: str) -> Marks | None:
    """The marks of the newest commit that a feed has made. `summaries` are those of the snapshots of the main branch,
    the newest first: other programs may have made some, such as one that merges files. None if no feed has made a
    commit. `where`: the table, for errors. Raises FeedFailed."""
    found = next((one for one in summaries if CURSOR in one), None)
    if found is None:
        return None
    try:
        fence = Fence(int(found[GENERATION]), int(found[EPOCH]))
        loaded = bytes.fromhex(found[LOADED]) if LOADED in found else None
        return Marks(found[FEED], cursors.decode(Scope(tenant), found[CURSOR]), fence, loaded)
    except (KeyError, ValueError, InvalidRequest) as error:
        name = found.get(FEED, "another program")
        raise failed("sink", where, f"{name} has written it: give this feed another namespace") from error
