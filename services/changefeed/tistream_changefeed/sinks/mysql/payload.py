"""What a feed into MySQL sends: row events, of which a transaction writes the net change, and DDLs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tistream.arrays import Int64s
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import Name
from tistream_changefeed.core.outgoing import Content
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.fingerprints.fingerprint import Fingerprints
from tistream_changefeed.fingerprints.rows import row_fingerprints
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.rows.net import TableNet


@dataclass(frozen=True)
class CommittedEvents(RowEvents):
    """Row events of which the fingerprints are stored with the progress."""

    def fingerprints(self) -> Fingerprints:
        """Implement Payload.fingerprints."""
        return row_fingerprints(self.window.rows)


@dataclass(frozen=True)
class NetWindow:
    """The net change of a window: implements Payload. It has one element for each table."""

    tables: tuple[TableNet, ...]
    through_ts: int

    def __len__(self) -> int:
        return len(self.tables)

    @property
    def commit_ts(self) -> Int64s:
        """The highest commit_ts of the window, for each table."""
        return np.full(len(self.tables), self.through_ts, np.int64)

    @cached_property
    def sizes(self) -> Int64s:
        """The bytes of the rows that are written to each table."""
        return np.array(
            [sum(rows.nbytes for rows in (one.deletes, one.updates, one.inserts)) for one in self.tables], np.int64
        )

    def between(self, start: int, end: int) -> NetWindow:
        """Implement Payload.between."""
        return NetWindow(self.tables[start:end], self.through_ts)

    def contents(self) -> Iterator[Content]:
        """Implement Payload.contents: a database counts no messages."""
        yield from ()

    def fingerprints(self) -> Fingerprints:
        """Implement Payload.fingerprints: none, because those of the events are stored."""
        return {}


@dataclass(frozen=True, slots=True)
class DdlMark:
    """A DDL: implements Mark. `changes` are the tables that it changes, and `names` those that the feed sends."""

    event: DdlEvent
    changes: tuple[TableChange, ...]
    names: tuple[Name, ...]

    @property
    def size(self) -> int:
        """Implement Mark.size."""
        return len(self.event.query.encode())

    @property
    def content(self) -> None:
        """Implement Mark.content: a database counts no messages."""
