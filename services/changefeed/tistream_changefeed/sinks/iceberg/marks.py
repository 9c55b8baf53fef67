"""What a commit says about itself, in the summary of its snapshot and in the properties of its table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.read import cursor as cursors
from tistream.read.cursor import Position, Scope
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.progress import Fence

FEED, CURSOR, RESOLVED, EPOCH, GENERATION, LOADED, SEQUENCE = (
    f"tistream.{name}" for name in ("feed", "cursor", "resolved_ts", "epoch", "generation", "loaded", "sequence")
)

_COUNTS = ("total", "added", "deleted")


class Told(NamedTuple):
    """What a snapshot says. `sequence`: its sequence number, which grows with each commit to the table. `parent`:
    whether it names the snapshot before it, which may have expired. `lost`: nothing shows that the commits of the feed
    are before it."""

    sequence: int
    summary: Mapping[str, str]
    parent: bool = True
    lost: bool = False

    @property
    def begins(self) -> bool:
        """Whether the contents of the table begin with this snapshot, as after CREATE OR REPLACE TABLE: it names no
        parent, and the table had no files before it. A missing parent alone proves nothing, because some programs
        remove the id of a snapshot that expires from the next one."""
        try:
            total, added, deleted = (int(self.summary.get(f"{one}-data-files", 0)) for one in _COUNTS)
        except ValueError:
            return not self.parent
        return not self.parent and total - added + deleted == 0


@dataclass(frozen=True, slots=True)
class Marks:
    """What a commit of a feed to a table states: the table has all changes up to the position `at`. `fence` is the
    fence of the worker that made the commit. `loaded`: while the feed loads its initial rows, the raw key up to which
    the table has them, as of `at`; otherwise None."""

    feed: str
    at: Position
    fence: Fence
    loaded: bytes | None = None

    def texts(self, tenant: TenantKey) -> dict[str, str]:
        """The marks as properties of the table, or of a snapshot's summary, by name."""
        loaded = {} if self.loaded is None else {LOADED: self.loaded.hex()}
        return {
            **loaded,
            FEED: self.feed,
            CURSOR: cursors.encode(Scope(tenant), self.at),
            RESOLVED: str(self.at.low_ts),
            GENERATION: str(self.fence.generation),
            EPOCH: str(self.fence.epoch),
        }


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest commit of a feed to a table. `sequence`: its sequence number; 0 if it is not known. `current`: whether
    the table shows this commit. Otherwise another program has rolled the table back or replaced it, and `marks` are
    those of the commit that the table shows; of the newest one if it shows none."""

    marks: Marks
    sequence: int
    current: bool


def newest(told: Sequence[Told], properties: Mapping[str, str], tenant: TenantKey, where: str) -> Newest | None:
    """Find the newest commit that a feed has made to a table; None if no feed has committed to it.

    `told`: the snapshots of the main branch, newest first. Some of them may be of other programs, such as one that
    merges files, and older ones may have expired. So the table's `properties`, which each commit of a feed sets too,
    are the second source: they neither expire nor are rolled back. `where` names the table in errors. Raises FeedFailed
    if another program has written the marks.
    """
    found = next((one for one in told if CURSOR in one.summary), None)
    try:
        last = int(properties.get(SEQUENCE, 0))
        if found is not None:
            return Newest(_marks(found.summary, tenant), found.sequence, found.sequence >= last)
        if CURSOR not in properties:
            return None
        known = {name: text for name, text in properties.items() if last or name != LOADED}
        shown = bool(told) and told[0].sequence >= last and not told[-1].begins and not told[-1].lost
        return Newest(_marks(known, tenant), last, shown)
    except (KeyError, ValueError, InvalidRequest) as error:
        name = (properties if found is None else found.summary).get(FEED, "another program")
        raise failed("sink", where, f"{name} has written it: give this feed another namespace") from error


def _marks(texts: Mapping[str, str], tenant: TenantKey) -> Marks:
    fence = Fence(int(texts[GENERATION]), int(texts[EPOCH]))
    loaded = bytes.fromhex(texts[LOADED]) if LOADED in texts else None
    return Marks(texts[FEED], cursors.decode(Scope(tenant), texts[CURSOR]), fence, loaded)
