"""Leaves out the events that a person has named, for sinks whose dead letters are rows or objects, not messages of a
topic. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tistream.schema.ddl_event import DdlEvent
from tistream_changefeed.core.outgoing import SentMessage
from tistream_changefeed.dead_letters.letter import of_ddl, of_row
from tistream_changefeed.dead_letters.skips import SkippedEvents, without
from tistream_changefeed.hold.sink import DeadLetter
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import changed
from tistream_changefeed.rows.window import taken


@dataclass(frozen=True, slots=True)
class LetterMark:
    """A dead letter, which replaces an event that the feed leaves out: implements Mark. `table` is the name of the
    event's table, and `value` the letter as JSON."""

    table: str
    commit_ts: int
    value: bytes

    @property
    def size(self) -> int:
        """The size of the letter, in bytes (implements Mark.size)."""
        return len(self.value)

    @property
    def content(self) -> None:
        """Return None: the letter is not a message of a topic (implements Mark.content)."""


def without_skipped(
    batch: RowBatch, skips: SkippedEvents, shown: RowBatch | None = None, *, by_key: bool = False
) -> tuple[RowBatch, list[DeadLetter]]:
    """Leave the events that `skips` names out of a batch. Returns the other events, and a dead letter for each event
    that is left out. `shown`: the same batch with the columns that letters may show; None: all of them.

    `by_key`: the sink has the rows of tables, and finds them by their handle keys. An update that changes the key then
    becomes a delete of the old row: no later event would find that row, and another row may get its key."""
    left_out = skips.rows(batch)
    if not left_out:
        return batch, []
    letters = [
        DeadLetter(
            skip.commit_ts, _mark(skip.table, skip.commit_ts, of_row(shown or batch, at, skip, "", skips.bytes_max))
        )
        for at, skip in left_out
    ]
    stays = without(batch, left_out)
    if by_key:
        moved = ~stays & changed(batch, batch.handle)
        batch, stays = replace(batch, new_at=np.where(moved, -1, batch.new_at)), stays | moved
    return taken(batch, np.flatnonzero(stays)), letters


def ddl_letter(event: DdlEvent, skips: SkippedEvents) -> LetterMark | None:
    """The dead letter of a DDL, if `skips` names the DDL; otherwise None."""
    skip = skips.ddl(event)
    return None if skip is None else _mark(skip.table, skip.commit_ts, of_ddl(event, skip, "", skips.bytes_max))


def _mark(table: str, commit_ts: int, sent: SentMessage) -> LetterMark:
    return LetterMark(table, commit_ts, sent.value or b"")
