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
        """The Fingerprint of each table's events, as they were committed upstream."""
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
        """The net change of the tables from index `start` (inclusive) to `end` (exclusive)."""
        return NetWindow(self.tables[start:end], self.through_ts)

    def contents(self) -> Iterator[Content]:
        """Yield nothing, because the sink does not write messages (implements Payload.contents)."""
        yield from ()

    def fingerprints(self) -> Fingerprints:
        """Return an empty mapping: the fingerprints of the events are stored, and not those of the net change."""
        return {}


@dataclass(frozen=True, slots=True)
class DdlMark:
    """A DDL: implements Mark. `changes` are the tables that it changes, and `names` those that the feed sends."""

    event: DdlEvent
    changes: tuple[TableChange, ...]
    names: tuple[Name, ...]

    @property
    def size(self) -> int:
        """The size of the DDL's statement, in bytes (implements Mark.size)."""
        return len(self.event.query.encode())

    @property
    def content(self) -> None:
        """Return None: this mark is not a message (implements Mark.content)."""
