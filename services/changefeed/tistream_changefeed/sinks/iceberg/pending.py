"""The events that a sink has taken and not committed yet, by table, and how far a table has come. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.read.cursor import Place, Position
from tistream.schema.visible import Name, fold
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.window import taken


@dataclass(slots=True)
class Pending:
    """The row events of several windows that a sink has taken and not committed, in order. `bytes`: their size,
    estimated."""

    bytes: int = 0
    _batches: dict[Name, list[RowBatch]] = field(default_factory=dict)
    _count: int = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, events: RowEvents) -> None:
        """Add the events of the next window behind those that are pending."""
        for batch in events.window.rows:
            found = replace(batch, at=batch.at + self._count)
            self._batches.setdefault(batch.version.name, []).append(found)
        self._count += events.first + len(events)
        self.bytes += int(events.sizes.sum())

    def take(self) -> Iterator[tuple[Name, list[RowBatch]]]:
        """Remove all events. Yields each table's name and its batches, in order."""
        found, self._batches, self.bytes = self._batches, {}, 0
        yield from found.items()


def above(batches: list[RowBatch], commit_ts: int, key: bytes | None = None) -> list[RowBatch]:
    """The events above a commit_ts. With `key`, which is set while a feed loads its initial rows as of `commit_ts`,
    also the events at `commit_ts` with a raw key above `key`."""
    rest = []
    for batch in batches:
        chosen = batch.commit_ts > commit_ts
        if key is not None:
            later = pc.greater(batch.raw.cast(pa.binary()), pa.scalar(key, pa.binary())).to_numpy(zero_copy_only=False)
            chosen |= (batch.commit_ts == commit_ts) & later
        rest.append(taken(batch, np.flatnonzero(chosen)))
    return [batch for batch in rest if len(batch)]


def highest_key(batches: list[RowBatch]) -> bytes:
    """The highest raw key of these events."""
    found: bytes = max(pc.max(batch.raw.cast(pa.binary())).as_py() for batch in batches)
    return found


def reached(progress: Progress, source: str) -> Position:
    """The position up to which every event of one table is in the sink, as of a progress of the feed. `source`: the
    table, as DATABASE.TABLE. A table that has stopped, or that catches up, is behind the feed: the events in between
    come later, so its cursor must not say that it has them."""
    at = min((one.at for one in progress.stopped if _is(one.name, source)), default=progress.at)
    if at >= progress.at:
        return progress.at
    return Position(at.low_ts) if at.place is Place.ROW else at


def is_whole(progress: Progress) -> bool:
    """Whether a progress lies between two commit_ts, for the feed and for each table that catches up, so that no table
    shows a part of a transaction."""
    behind = (one.at.place for one in progress.stopped if one.lacks)
    return progress.at.place is Place.DONE and Place.ROW not in behind


def _is(name: Name, source: str) -> bool:
    """Whether a name is that of the table `source`, or of its database: ("DATABASE", "")."""
    shown, wanted = fold(".".join(name)), fold(source)
    return shown == wanted or (not name[1] and wanted.startswith(shown))
