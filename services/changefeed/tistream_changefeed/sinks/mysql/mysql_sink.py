"""Writes the transactions of a feed into a MySQL, MariaDB or TiDB server, exactly once.

A large window is divided among slots, each with a connection and a transaction of its own. The first slot commits last,
together with the progress, and has all rows of tables without a key. So after a crash at any moment the progress says
from where the window is read again. Other slots may have written their parts of it; until the position that they have
stored is passed, rows are put by REPLACE, in one transaction, so that writing them again gives the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait

from tistream.clock import Clock
from tistream.concurrency import new_executor
from tistream.read.cursor import Position
from tistream.schema.tidb.create_table import Dialect
from tistream.wire.bulk.changefeeds import SHARDS_MAX, HeldBy
from tistream_changefeed.core import progress as records
from tistream_changefeed.core.failure import retry
from tistream_changefeed.core.new_tables import NewTables
from tistream_changefeed.core.progress import Progress, check_revision
from tistream_changefeed.core.shard import Order, Transaction
from tistream_changefeed.core.sync_points import SyncMark
from tistream_changefeed.fingerprints.windows import SentWindow
from tistream_changefeed.protocols.messages import ClaimFile
from tistream_changefeed.rows.net import TableNet
from tistream_changefeed.sinks.left_out import LetterMark
from tistream_changefeed.sinks.mysql import new_tables, stored_progress
from tistream_changefeed.sinks.mysql.connection import Slot, WriteAgain
from tistream_changefeed.sinks.mysql.ddl_runner import LOCK_WAIT_S, DdlRunner
from tistream_changefeed.sinks.mysql.payload import DdlMark, NetWindow
from tistream_changefeed.sinks.mysql.slots import FIRST, divided
from tistream_changefeed.sinks.mysql.statements import statements
from tistream_changefeed.sinks.mysql.target import LETTERS, PROGRESS, SYNCED, MySqlServer, secondary_ts

log = logging.getLogger(__name__)

SLOT_ROWS = 1_000  # a window with fewer rows for each slot is written by fewer slots
DDL_SLOT = -1  # the connection of DDLs, which has no transactions
TRIES = 8  # of a transaction that the server rolls back because of a deadlock


class MySqlSink:
    """One holder's connections to a server: implements hold.sink.Sink. `write` also raises TablesRefused. `name` is
    unique among all sinks. `lock_wait_s`: how many seconds a DDL waits for sessions that use its table."""

    def __init__(
        self,
        server: MySqlServer,
        order: Order,
        clock: Clock,
        name: str,
        slot_rows: int = SLOT_ROWS,
        lock_wait_s: int = LOCK_WAIT_S,
    ) -> None:
        self._server, self._order, self._name, self._slot_rows = server, order, name, slot_rows
        self._lock_wait_s = lock_wait_s
        self._feed = stored_progress.feed_key(order)
        self._slots = [Slot(server, self._feed, number, order.fence, name, clock) for number in range(server.slots)]
        self._ddls = Slot(server, self._feed, DDL_SLOT, order.fence, name, clock)
        self._executor: Executor | None = None
        self._dialect = Dialect.MYSQL
        self._at = self._high = Position(0)
        self._held_by: HeldBy | None = None
        self._windows = 0  # the number of the newest one that is stored

    @property
    def where(self) -> str:
        """The name of the sink in errors."""
        return self._server.where

    def open(self) -> tuple[Progress | None, Mapping[str, Mapping[int, int]]]:
        """Implement Sink.open. A server has no topics."""
        first = self._slots[FIRST].target()
        self._dialect = first.dialect
        order = self._order
        found = stored_progress.opened(first, self._server, order, self._name)
        shards = stored_progress.of_shards(first, self._server, order, SHARDS_MAX)
        check_revision(shards.values(), order.fence, order.revision, order.shards, self.where)
        self._executor, self._windows = new_executor("mysql-slots", self._server.slots), found.windows
        if found.progress is not None and found.high is not None:
            self._at, self._high = found.progress.at, found.high
        return found.progress, {}

    def partitions(self, topic: str) -> int:  # noqa: ARG002
        """Implement Sink.partitions: a server has none."""
        return 1

    def topics(self) -> Mapping[str, int]:
        """Implement Sink.topics: a server has none."""
        return {}

    def shards(self) -> Mapping[int, Progress]:
        """Implement Sink.shards."""
        order = self._order
        return stored_progress.of_shards(self._slots[FIRST].target(), self._server, order, order.shards)

    def keep(self, claims: Sequence[ClaimFile]) -> None:
        """Implement Sink.keep: no message is too large for a server."""
        assert not claims

    @property
    def waits(self) -> bool:
        """Implement Sink.waits: each transaction is durable at once."""
        return False

    @property
    def held_by(self) -> HeldBy | None:
        """Implement Sink.held_by: the sessions that a DDL waits for."""
        return self._held_by

    def write(self, transaction: Transaction) -> bool:
        """Implement Sink.write. Raises FeedFailed; and TablesRefused if the server refuses rows or a DDL of a table,
        and then the progress is what it was before."""
        rows, kept = transaction.rows, []
        for mark in transaction.marks:
            if isinstance(mark, DdlMark):
                self._runner().run(mark)
            elif isinstance(mark, NewTables):
                self._create(mark)
            elif isinstance(mark, LetterMark | SyncMark):
                kept.append(mark)
        nets = rows.tables if isinstance(rows, NetWindow) else ()
        self._write(nets, kept, transaction.progress, transaction.window)
        self._at = transaction.progress.at
        return True

    def close(self) -> None:
        """Implement Sink.close. The server rolls back what is not committed."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
        for slot in (*self._slots, self._ddls):
            slot.close()

    def _runner(self) -> DdlRunner:
        assert self._executor is not None
        return DdlRunner(
            self._server,
            self._order,
            self._slots[FIRST],
            self._ddls,
            self._executor,
            self._dialect,
            self._text(self._high),
            self._lock_wait_s,
            self._tell,
        )

    def _tell(self, held: HeldBy | None) -> None:
        self._held_by = held

    def _create(self, mark: NewTables) -> None:
        first, server = self._slots[FIRST], self._ddls.target()
        first.begin(self._text(self._high))  # the lock, without which an older holder could create a table late
        try:
            new_tables.create(server, self._server, self._dialect, mark.versions)
        finally:
            first.rolled_back()

    def _text(self, at: Position) -> str:
        return stored_progress.text_of(self._order, at)

    def _write(
        self,
        nets: Sequence[TableNet],
        kept: Sequence[LetterMark | SyncMark],
        progress: Progress,
        window: SentWindow | None,
    ) -> None:
        # A table that has stopped catches up from before windows of which some slots have written their parts.
        repeats = self._at < self._high or bool(progress.stopped)
        count = sum(map(len, nets))
        loading = progress.load is not None  # one slot, because the position does not say what others have written
        slots = 1 if repeats or loading else max(1, min(len(self._slots), count // self._slot_rows))
        parts = divided(nets, slots) if slots > 1 else [list(nets)]
        self._high = max(self._high, progress.at)
        begun, safe = self._text(self._high), repeats or self._server.safe

        def written(number: int) -> None:
            """Begin the transaction of a slot, and write its part; the first slot's stays open."""
            slot = self._slots[number]

            def attempt() -> None:
                slot.begin(begun)
                slot.run(statements(parts[number], self._dialect, safe=safe), exact=not repeats)

            self._tried(attempt)
            if number != FIRST:
                slot.commit()

        self._side_by_side(written, [number for number, part in enumerate(parts) if part and number != FIRST])
        first = self._slots[FIRST]
        for mark in kept:
            if isinstance(mark, LetterMark):
                first.execute(
                    f"INSERT INTO {LETTERS} (feed, `table`, letter) VALUES (%s, %s, %s)",
                    (self._feed, mark.table, mark.value.decode()),
                )
            elif not repeats:  # else some slots have rows from above the sync point
                self._synced(first, mark.ts)
        record = records.encode(self._order.tenant, progress).decode()
        stored = self._windows
        if window is not None and window.after_ts < window.until_ts:
            stored += 1
            stored_progress.store_window(first, self._order, stored, window)
        first.execute(f"UPDATE {PROGRESS} SET progress = %s WHERE feed = %s AND slot = 0", (record, self._feed))
        first.commit()
        self._windows = stored

    def _synced(self, slot: Slot, ts: int) -> None:
        """Store a sync point, and delete old ones, in the transaction of the first slot. The name of the feed has the
        cluster, because the key of the table, which is TiCDC's, has none. Earlier releases left it out; their rows are
        deleted too."""
        order, retention_ms = self._order, self._server.sync_retention_ms
        assert retention_ms is not None
        feed, earlier = f"{order.tenant}/{order.feed_id}", f"{order.tenant.tenant_id}/{order.feed_id}"
        slot.execute(
            f"INSERT IGNORE INTO {SYNCED} (ticdc_cluster_id, changefeed, primary_ts, secondary_ts) "
            f"VALUES (%s, %s, %s, {secondary_ts(self._dialect)})",
            (order.tenant.cluster_id, feed, str(ts)),
        )
        slot.execute(
            f"DELETE FROM {SYNCED} WHERE ticdc_cluster_id = %s AND changefeed IN (%s, %s) "
            "AND created_at < NOW() - INTERVAL %s SECOND",
            (order.tenant.cluster_id, feed, earlier, retention_ms // 1000),
        )

    def _side_by_side(self, written: Callable[[int], None], others: Sequence[int]) -> None:
        """Write the parts of these slots and of the first one. If one fails, the first one is rolled back, and the
        others are waited for."""
        assert self._executor is not None
        running: list[Future[None]] = [self._executor.submit(written, number) for number in others]
        try:
            written(FIRST)
        finally:
            wait(running)
        try:
            for one in running:
                one.result()
        except BaseException:
            self._slots[FIRST].rolled_back()
            raise

    def _tried(self, attempt: Callable[[], None]) -> None:
        for number in range(TRIES):
            try:
                attempt()
                return
            except WriteAgain as error:
                if number == TRIES - 1:
                    reason = f"the server has rolled back a transaction {TRIES} times: {error}"
                    raise retry("sink", self.where, reason, "deadlock") from error
