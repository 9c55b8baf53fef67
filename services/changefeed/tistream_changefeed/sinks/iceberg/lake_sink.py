"""Writes the transactions of a feed into Iceberg tables, each row once. The package's docstring says how."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from pyiceberg.table import Table

from tistream.clock import Clock
from tistream.read.cursor import Position
from tistream.schema.visible import TableVersion
from tistream_changefeed.core import progress as progresses
from tistream_changefeed.core.failure import FeedFailed, failed
from tistream_changefeed.core.new_tables import NewTables
from tistream_changefeed.core.outgoing import Mark
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.core.shard import Order, Transaction
from tistream_changefeed.hold.sink import RowsOf
from tistream_changefeed.protocols.messages import ClaimFile
from tistream_changefeed.rows.net import net
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.window import EventWindow
from tistream_changefeed.sinks.iceberg.kept.known_tables import KnownTables
from tistream_changefeed.sinks.iceberg.kept.lake_table import LakeTable
from tistream_changefeed.sinks.iceberg.kept.letter_table import LetterTable
from tistream_changefeed.sinks.iceberg.kept.own_table import BEGUN, PROGRESS, stored
from tistream_changefeed.sinks.iceberg.lake import CONFLICT, Commit, Lake
from tistream_changefeed.sinks.iceberg.lake_pipeline import TableDdl
from tistream_changefeed.sinks.iceberg.lake_tables import LakeTables
from tistream_changefeed.sinks.iceberg.marks import Marks
from tistream_changefeed.sinks.iceberg.mirrored.deltas import Deltas
from tistream_changefeed.sinks.iceberg.mirrored.lake_ddls import LakeDdls
from tistream_changefeed.sinks.iceberg.mirrored.mirrored_rows import MirroredRows
from tistream_changefeed.sinks.iceberg.pending import Pending, above, highest_key, is_whole, reached
from tistream_changefeed.sinks.iceberg.table_schema import Shape
from tistream_changefeed.sinks.iceberg.target import Identifier, LakeTarget, own_table
from tistream_changefeed.sinks.left_out import LetterMark
from tistream_changefeed.table_errors.tables_refused import TablesRefused

_WINDOW_FILES = 4  # the bytes with which a window ends, in sizes of a file
_TRANSACTION_FILES = 16  # the most bytes of a transaction into the tables themselves, in sizes of a file
_OF_A_TABLE = frozenset({"ddl", "encode", "pool"})
"""The stages of failures in a DDL that concern its tables alone: it is refused, or rows cannot be read or encoded."""


class LakeSink:
    """One worker's access to the tables of a feed: implements hold.sink.Sink. `write` also raises TablesRefused.
    `new_name` makes unique names of files."""

    def __init__(self, target: LakeTarget, lake: Lake, order: Order, clock: Clock, new_name: Callable[[], str]) -> None:
        self._target, self._lake, self._order, self._clock = target, lake, order, clock
        self._tables = LakeTables(lake, target, order, clock, new_name)
        rows = MirroredRows(lake, self._tables)
        self._deltas = Deltas(lake, self._tables, rows, target.delta_share)
        self._ddls = LakeDdls(lake, self._tables, rows, self._deltas, target)
        self._letters = LetterTable(lake, order, self._tables.feed, clock, new_name)
        self._new_name = new_name
        self._own: Table | None = None
        self._pending = Pending()
        # With files that are in no snapshot: the table of TiDB, and the highest key.
        self._spilled: list[tuple[LakeTable, str, bytes]] = []
        self._spilled_bytes = 0
        self._committed: Progress | None = None  # in the feed's own table
        self._told: Progress | None = None  # the newest one of which the caller knows that it is durable
        self._held: Progress | None = None  # after the rows that are pending
        self._since_ms: int | None = None  # when the first of them came
        self._stored_ms: int | None = None  # when the progress was committed last; None: not by this worker

    @property
    def where(self) -> str:
        """The name of the sink in errors."""
        return self._target.where

    @property
    def waits(self) -> bool:
        """Implement Sink.waits."""
        return self._since_ms is not None

    def reads_again(self, rows_of: RowsOf) -> None:
        """Implement ReadsAgain.reads_again: a DDL that changes a type begins a new version of a table with its rows."""
        self._ddls.rows_of = rows_of

    def open(self) -> tuple[Progress | None, Mapping[str, Mapping[int, int]]]:
        """Implement Sink.open."""
        own = own_table(self._order.tenant, self._order.feed_id)
        self._own = self._lake.load(own)
        if self._own is None:
            return None, {}
        where = self._lake.named(own)
        there = stored(self._lake, self._own, self._order.tenant, own)
        if there is None:
            return None, {}
        begun, found = there.begun(where), there.progress
        mine = progresses.taken_over(found, self._order.fence, self._order.start_ts, where)
        self._committed = self._told = mine
        self._tables.since_ts = mine.at.low_ts
        same = found.fence.generation == mine.fence.generation
        begun = begun if same else []
        self._tables.created.known = KnownTables(self._own.properties, where, kept=same)
        moved = self._order.revision.moved
        if moved is not None and moved.revision > found.revision:
            loading = found.load is not None
            at = mine.at if loading else max(mine.at, Position(moved.ts))
            self._tables.accept_older(at, loading=loading)
        self._put_progress(mine, begun)
        self._tables.fence(begun, lambda source: reached(mine, source), loading=found.load is not None)
        self._stored_ms = None
        return found, {}

    def partitions(self, topic: str) -> int:  # noqa: ARG002
        """Implement Sink.partitions: a table has one."""
        return 1

    def topics(self) -> Mapping[str, int]:
        """Implement Sink.topics: a feed into Iceberg has no topics."""
        return {}

    def shards(self) -> Mapping[int, Progress]:
        """Implement Sink.shards: the feed has no other shard."""
        return {}

    def keep(self, claims: Sequence[ClaimFile]) -> None:
        """Implement Sink.keep: there are no such files."""
        assert not claims

    @property
    def held_by(self) -> None:
        """Implement Sink.held_by: an error says what a call waits for."""

    def write(self, transaction: Transaction) -> bool:
        """Implement Sink.write: collect rows, or commit them if their window ends here. A DDL ends every window. Raises
        TablesRefused if rows or a DDL of some tables are refused; then all rows that are not durable must come again.
        Tables may have some of these rows, and leave them out by their own cursors."""
        try:
            durable = self._write(transaction)
        except TablesRefused:
            self._forget()
            raise
        except FeedFailed as error:
            if error.failure.cause == CONFLICT:
                self._check_fence()
            raise
        if durable:
            self._told = transaction.progress
        return durable

    def close(self) -> None:
        """Forget the rows that are not committed, and close the connections to the catalog."""
        self._forget()
        self._lake.close()

    def _forget(self) -> None:
        """Forget the rows that are not committed, and files that are in no snapshot. The caller continues behind the
        newest progress that it knows to be durable."""
        self._pending, self._spilled, self._spilled_bytes, self._since_ms = Pending(), [], 0, None
        self._held, self._committed = None, self._told
        self._tables.forget()

    def _write(self, transaction: Transaction) -> bool:
        rows, progress = transaction.rows, transaction.progress
        if len(rows):
            assert isinstance(rows, RowEvents)
            self._collect(rows)
            self._held = progress
        letters = [mark for mark in transaction.marks if isinstance(mark, LetterMark)]
        ddls = [mark for mark in transaction.marks if not isinstance(mark, LetterMark)]
        if letters:
            self._letters.write(letters)
        for mark in ddls:
            if isinstance(mark, TableDdl):
                self._ddls.check(mark)
        held = self._held
        loaded = held is not None and held.load is not None and progress.load is None  # all rows of the beginning
        if self.waits and held is not None and (ddls or loaded):
            self._flush(held)
        if ddls:
            for mark in ddls:
                self._apply(mark, progress)
            self._put_progress(progress)
            return True
        if not self.waits:
            if not letters and not self._progress_due(progress):
                return False
            self._put_progress(progress)
            return True
        if not is_whole(progress) or not self._due(progress):
            return False
        self._flush(progress)
        return True

    def _apply(self, mark: Mark, progress: Progress) -> None:
        if isinstance(mark, NewTables):
            for version in mark.versions:
                for shape in self._target.shapes:
                    self._tables.create(version, shape, progress.at)
        else:
            assert isinstance(mark, TableDdl)
            try:
                begun = self._ddls.touched(mark)
                if begun:
                    assert self._committed is not None
                    self._put_progress(self._committed, begun)  # refused if a newer worker has taken over
                self._ddls.apply(mark)
            except TablesRefused as error:
                raise TablesRefused(mark.names, str(error), of_ddl=True) from error
            except FeedFailed as error:
                if error.failure.kind == "failed" and error.failure.stage in _OF_A_TABLE:
                    raise TablesRefused(mark.names, str(error), of_ddl=True) from error
                raise

    # ---- windows

    def _collect(self, rows: RowEvents) -> None:
        self._pending.add(rows)
        if self._since_ms is None:
            self._since_ms = self._clock.monotonic_ms()
        size = self._target.file_bytes
        if "table" not in self._target.shapes:
            if self._pending.bytes >= size:
                self._spill()
        elif self._pending.bytes >= _TRANSACTION_FILES * size:
            raise failed("sink", self.where, f"a transaction has more than {_TRANSACTION_FILES} x file-size bytes: set "
                         "a larger file-size, or mode=changelog")  # fmt: skip

    def _due(self, progress: Progress) -> bool:
        """Whether the rows that were collected are committed now. `progress` lies between two commit_ts. They
        are committed after the flush interval, above a number of bytes, and at the feed's end."""
        assert self._since_ms is not None
        end_ts = self._order.end_ts
        return (
            self._clock.monotonic_ms() - self._since_ms >= self._target.flush_interval_ms
            or self._pending.bytes + self._spilled_bytes >= _WINDOW_FILES * self._target.file_bytes
            or (end_ts is not None and progress.at.low_ts >= end_ts)
        )

    def _progress_due(self, progress: Progress) -> bool:
        """Whether a progress without rows is committed: the first one of this worker, the last one of the feed, one in
        each flush interval, and one that says that a table has stopped, or goes on."""
        end_ts, passed = self._order.end_ts, self._stored_ms
        return (
            passed is None
            or self._committed is None
            or _stops(progress) != _stops(self._committed)
            or (end_ts is not None and progress.at.low_ts >= end_ts)
            or self._clock.monotonic_ms() - passed >= self._target.flush_interval_ms
        )

    def _spill(self) -> None:
        """Write what is pending into files of the tables of changes. A later commit names them."""
        self._spilled_bytes += self._pending.bytes
        for _, batches in self._pending.take():
            self._write_changes(batches)

    def _write_changes(self, batches: list[RowBatch]) -> None:
        table = self._table(batches[-1].version, "changes")
        rest = above(batches, table.through_ts, table.loaded)
        if rest:
            self._tables.add_changes(table, rest)
            keys = [key for one, _, key in self._spilled if one is table]
            self._spilled = [one for one in self._spilled if one[0] is not table]
            self._spilled.append((table, _source(batches[-1].version), max([highest_key(rest), *keys])))

    def _table(self, version: TableVersion, shape: Shape) -> LakeTable:
        """The Iceberg table for rows that come after the newest progress."""
        assert self._committed is not None
        return self._tables.table(version, shape, since_ts=reached(self._committed, _source(version)).low_ts)

    def _flush(self, progress: Progress) -> None:
        """Commit what is pending, and then the progress after it."""
        mirrored: list[tuple[LakeTable, list[RowBatch]]] = []
        for _, batches in self._pending.take():
            if "changes" in self._target.shapes:
                self._write_changes(batches)
            if "table" in self._target.shapes:
                table = self._table(batches[-1].version, "table")
                rest = above(batches, self._deltas.through_ts(table), table.loaded)
                if rest:
                    mirrored.append((table, rest))
        begun = [table.identifier for table, _, _ in self._spilled]
        begun += [name for table, _ in mirrored for name in self._deltas.names(table)]
        if begun:
            assert self._committed is not None
            self._put_progress(self._committed, begun)
        loading = progress.load is not None
        for table, source, key in self._spilled:
            self._tables.commit_changes(table, reached(progress, source), key if loading else None)
        for table, rest in mirrored:
            nets, at = net(EventWindow(tuple(rest), ())), reached(progress, _source(rest[-1].version))
            if nets:
                self._deltas.commit(table, rest[-1].version, nets, at, highest_key(rest) if loading else None)
        self._spilled, self._spilled_bytes, self._since_ms = [], 0, None
        self._put_progress(progress)

    # ---- the feed's own table

    def _put_progress(self, progress: Progress, begun: Sequence[Identifier] = ()) -> None:
        """Commit a progress to the feed's own table, with the tables that are about to be committed."""
        order = self._order
        if self._committed is not None and progress.at < self._committed.at:
            raise failed("sink", self.where, f"the changefeed was moved back from {self._committed.at.low_ts} to "
                         f"{progress.at.low_ts}, but its tables have each event once: resume it with a checkpoint_ts "
                         f"of at least {self._committed.at.low_ts}")  # fmt: skip
        if self._own is None:
            own = own_table(order.tenant, order.feed_id)
            self._own = self._lake.create(own, None, {}, self._new_name(), self._clock.now_ms())
        state = {
            PROGRESS: progresses.encode(order.tenant, progress).decode(),
            BEGUN: json.dumps(list(begun)),
        }
        summary = {**Marks(self._tables.feed, progress.at, progress.fence).texts(order.tenant), **state}
        changed, forgotten = self._tables.created.known.changes()
        self._lake.commit(self._own, Commit(summary, self._clock.now_ms(), {**changed, **state}, forgotten=forgotten))
        self._tables.created.known.stored()
        self._committed, self._stored_ms = progress, self._clock.monotonic_ms()
        self._tables.since_ts = progress.at.low_ts

    def _check_fence(self) -> None:
        """Raise FeedFailed(fenced) if a newer worker has taken over."""
        own = own_table(self._order.tenant, self._order.feed_id)
        table = self._lake.load(own)
        found = None if table is None else stored(self._lake, table, self._order.tenant, own)
        if found is not None:
            progresses.taken_over(found.progress, self._order.fence, self._order.start_ts, self._lake.named(own))


def _source(version: TableVersion) -> str:
    """The table of TiDB, as DATABASE.TABLE."""
    return ".".join(version.name)


def _stops(progress: Progress) -> set[tuple[str, bool]]:
    """The tables that have stopped or catch up, each with whether it has stopped."""
    return {(".".join(one.name), one.limit is not None or one.left) for one in progress.stopped}
