"""The dead letters of a feed: rows of an Iceberg table, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from tistream.clock import Clock
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.shard import Order
from tistream_changefeed.sinks.iceberg.lake import Commit, Lake
from tistream_changefeed.sinks.iceberg.lake_files import write_file
from tistream_changefeed.sinks.iceberg.lake_rows import arrow_schema
from tistream_changefeed.sinks.iceberg.marks import FEED
from tistream_changefeed.sinks.iceberg.target import letter_table
from tistream_changefeed.sinks.left_out import LetterMark

_LETTER, _COMMIT_TS = "letter", "commit_ts"
SCHEMA = Schema(
    NestedField(1, _COMMIT_TS, LongType(), required=False),
    NestedField(2, "table", StringType(), required=False),
    NestedField(3, _LETTER, StringType(), required=False),
)
"""The columns of the table. `letter` is the letter as JSON."""


class LetterTable:
    """Writes the dead letters of a feed, whose name is `feed`. `new_name` makes unique names of files. Every call may
    raise FeedFailed."""

    def __init__(self, lake: Lake, order: Order, feed: str, clock: Clock, new_name: Callable[[], str]) -> None:
        self._lake, self._feed, self._clock, self._new_name = lake, feed, clock, new_name
        self._identifier = letter_table(order.tenant, order.feed_id)
        self._seen: tuple[int, int, set[str]] | None = None  # of a snapshot, the letters from a commit_ts on

    def write(self, letters: Sequence[LetterMark]) -> None:
        """Commit the letters that the table does not have yet. After a crash, the feed writes letters again."""
        where = self._lake.named(self._identifier)
        table = self._lake.load(self._identifier) or self._created()
        if table.properties.get(FEED) != self._feed:
            raise failed("sink", where, "another program has written it: rename it, then resume the changefeed")
        there = self._there(table, min(one.commit_ts for one in letters))
        new = [one for one in letters if one.value.decode() not in there]
        if not new:
            return
        columns = [one.commit_ts for one in new], [one.table for one in new], [one.value.decode() for one in new]
        rows = pa.table([pa.array(one) for one in columns], names=SCHEMA.column_names).cast(arrow_schema(SCHEMA))
        with self._lake.asking(where):
            file = write_file(table, SCHEMA, rows, self._new_name(), None)
        schema = None if table.current_snapshot() else SCHEMA
        self._lake.commit(table, Commit({FEED: self._feed}, self._clock.now_ms(), added=(file,), schema=schema))
        if self._seen is not None:  # this worker does not write its own letters again
            self._seen = (_snapshot_of(table), *self._seen[1:])

    def _created(self) -> Table:
        return self._lake.create(self._identifier, None, {FEED: self._feed}, self._new_name(), self._clock.now_ms())

    def _there(self, table: Table, least_ts: int) -> set[str]:
        """The letters with commit_ts >= `least_ts` that other workers, or earlier lives of this one, have written to
        the table. The result is cached until another writer commits or a lower `least_ts` is asked for."""
        snapshot = _snapshot_of(table)
        if self._seen is None or self._seen[0] != snapshot or self._seen[1] > least_ts:
            letters: list[str] = []
            if snapshot:
                with self._lake.asking(self._lake.named(self._identifier)):
                    rows = table.scan(f"{_COMMIT_TS} >= {least_ts}", (_LETTER,)).to_arrow()
                letters = rows[_LETTER].to_pylist()
            self._seen = snapshot, least_ts, set(letters)
        return self._seen[2]


def _snapshot_of(table: Table) -> int:
    found = table.current_snapshot()
    return 0 if found is None else found.snapshot_id
