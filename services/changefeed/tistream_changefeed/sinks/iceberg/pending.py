"""The events that a sink has taken and not committed yet, by table. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from tistream.schema.visible import Name
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.window import taken


@dataclass(slots=True)
class Pending:
    """Events of several windows, in order. `bytes`: their size, estimated."""

    bytes: int = 0
    _batches: dict[Name, list[RowBatch]] = field(default_factory=dict)
    _count: int = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, events: RowEvents) -> None:
        """Add the events of the next window."""
        for batch in events.window.rows:
            found = replace(batch, at=batch.at + self._count)
            self._batches.setdefault(batch.version.name, []).append(found)
        self._count += events.first + len(events)
        self.bytes += int(events.sizes.sum())

    def take(self) -> Iterator[tuple[Name, list[RowBatch]]]:
        """Take out all events: the batches of each table."""
        found, self._batches, self.bytes = self._batches, {}, 0
        yield from found.items()


def above(batches: list[RowBatch], commit_ts: int) -> list[RowBatch]:
    """The events above a commit_ts."""
    rest = [taken(batch, np.flatnonzero(batch.commit_ts > commit_ts)) for batch in batches]
    return [batch for batch in rest if len(batch)]
