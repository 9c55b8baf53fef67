"""Compares the tables of a feed into a database with the tenant's rows as of the feed's progress there. One transaction
of the database reads the progress and the rows, so the feed may run meanwhile. Then table_windows.py compares the
windows that are stored with the progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tistream.clock import Clock
from tistream.concurrency import sleep
from tistream.decode.kernels.arrow_buffers import one_array
from tistream.decode.rows import decode_rows
from tistream.errors import InvalidRequest, Unavailable
from tistream.model.ids import TenantKey
from tistream.model.ts import Window
from tistream.pool.versions.merge import key_array
from tistream.pool.versions.plan import records_of
from tistream.pool.versions.pool_reads import PoolReads
from tistream.pool.versions.reader import Reader
from tistream.read.cursor import Scope
from tistream.read.scan import Budget
from tistream.restore.fingerprint import Hashes, hashes_of_rows, hashes_of_selected, select_list
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.quoting import quoted_name
from tistream.schema.tidb.table import Column
from tistream.schema.visible import Name, TableVersion, fold
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream.wire.bulk.feed_verify import DIFFERENCES_MAX, Difference, FeedVerification, VerifiedTable, VerifyFeed
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.dispatch.table_shards import TableShard
from tistream_changefeed.fingerprints.windows import ComparedWindows, SentWindow
from tistream_changefeed.hold.loading import check_complete
from tistream_changefeed.hold.pool import Pool
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_changefeed.sinks.mysql.connection import connected, failure_of
from tistream_changefeed.sinks.mysql.mysql_feed import MySqlFeed
from tistream_changefeed.sinks.mysql.stored_progress import StoredState, state_of, windows_of
from tistream_changefeed.sinks.mysql.target import MySqlServer
from tistream_changefeed.verify.compared_rows import ComparedRows, RowDifferences
from tistream_changefeed.verify.database_state import NotNow, shown_ts
from tistream_changefeed.verify.table_windows import TableWindows
from tistream_changefeed.verify.windows import late_tables, only, verified_windows

_AGAIN_S = 0.05  # between two looks for a moment at which the tables show one ts
_ROWS = 10_000  # of a part of the answer
_ABSENT = frozenset({1049, 1146})  # unknown database, no such table
_LATE = frozenset({1205, 1969, 3024})  # a lock was waited for, or a statement ran, as long as the session allows
_ALTERED = 1412  # a table was altered after the transaction began
_LIMITS = {
    Dialect.MARIADB: "SET SESSION lock_wait_timeout = {0}, max_statement_time = {0}",
    Dialect.MYSQL: "SET SESSION lock_wait_timeout = {0}, max_execution_time = {0}000",
    Dialect.TIDB: "SET SESSION max_execution_time = {0}000",
}
"""Bounds how long a statement takes and waits for a table that is being altered, in seconds. Until the comparison ends,
DDLs of the feed wait for it."""
_SNAPSHOT = (
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
)


@dataclass(slots=True)
class TableComparison:
    """Compares the tables of one feed. `reader` reads the pool. `deadline_ms`: when the comparison is given up, in
    monotonic ms."""

    ask: VerifyFeed
    tenant: TenantKey
    feed: MySqlFeed
    server: MySqlServer
    view: Pool
    reader: Reader
    budget: Budget
    clock: Clock
    deadline_ms: int
    differences: list[Difference] = field(default_factory=list)

    def result(self) -> FeedVerification:
        """Compare the tables with the tenant's rows, and return the differences. Raises InvalidRequest if the tables
        cannot be compared, Unavailable if the deadline passes or a table is altered, FeedFailed if the server fails,
        Gone if the rows are past retention."""
        if self.feed.config.filter.event_filters or self.feed.config.filter.ignore_txn_start_ts:
            raise InvalidRequest("the feed leaves out events by event filters, so its tables differ from the pool")
        with connected(self.server, self.left_s() + 1) as target:
            try:
                shards = self._shown(target)
                shown = [progress.at.low_ts for progress in shards]
                windows = windows_of(target, self.server, self.tenant, self.ask.changefeed_id, dict(enumerate(shards)))
                tables = [one for shard, ts in enumerate(shown) for one in self._shard(target, shard, ts)]
                self._check_unaltered(target, shown)
            except TargetFailed as error:
                if error.code in _LATE:
                    raise self._late(str(error)) from error
                if error.code == _ALTERED:
                    raise Unavailable(f"{error}: a table was altered meanwhile; compare again") from error
                raise failure_of(error, self.server) from error
        if self.ask.table is not None and not tables:
            raise InvalidRequest(f"the feed sends no table {self.ask.table}", {"parameter": "table"})
        of = only(self.ask.table, [(one.database, one.table) for one in tables])
        as_sent = sum((self._windows(*one, windows, of) for one in enumerate(shards)), ComparedWindows())
        differences = self.differences[:DIFFERENCES_MAX]
        return FeedVerification(
            changefeed_id=self.ask.changefeed_id,
            from_ts=str(min(shown)),
            to_ts=str(max(shown)),
            equal=not differences and not as_sent.differences,
            tables=sorted(tables, key=lambda one: (one.database, one.table)),
            differences=differences,
            of="tables",
            windows=as_sent.count,
            window_differences=verified_windows(as_sent),
            left_out=late_tables(as_sent),
        )

    def _shown(self, target: MySqlTarget) -> list[Progress]:
        """Begin a transaction in which the tables show the rows as of one ts, and return the progress of each
        shard."""
        while True:
            target.execute_all(_SNAPSHOT)
            stored = self._stored(target)
            found = shown_ts(stored.shards, stored.ddl_ts, self.feed.config.shards)
            if not isinstance(found, NotNow):
                return [stored.shards[shard][0] for shard in range(self.feed.config.shards)]
            target.execute("ROLLBACK")
            if not found.passes:
                raise InvalidRequest(found.reason)
            self._check_time(found.reason)
            sleep(_AGAIN_S)

    def _stored(self, target: MySqlTarget) -> StoredState:
        try:
            return state_of(target, self.server, self.tenant, self.ask.changefeed_id)
        except TargetFailed as error:
            if error.code not in _ABSENT:
                raise
            return StoredState({}, 0)

    def _check_unaltered(self, target: MySqlTarget, shown: Sequence[int]) -> None:
        """Check that no DDL of the feed was begun since the transaction began, because tables that it creates, renames
        or drops are not as they were then. Raises Unavailable."""
        target.execute("ROLLBACK")
        ddl_ts = self._stored(target).ddl_ts
        if ddl_ts > min(shown):
            raise Unavailable(f"the feed has begun the DDL at commit_ts {ddl_ts} meanwhile: compare again")

    def _shard(self, target: MySqlTarget, shard: int, ts: int) -> Iterator[VerifiedTable]:
        left_ms = self.deadline_ms - self.clock.monotonic_ms()
        if self.view.resolved_ts() < ts and not self.view.wait_above(ts - 1, max(1, left_ms)):
            raise Unavailable(f"this worker has not read the pool up to {ts} yet")
        self.view.check_served(ts)
        mine = TableShard(shard, self.feed.config.shards)
        for version in self.view.source.tables_at(ts, Scope(self.tenant)):
            if self.feed.pipeline.includes(version) and mine.has(version) and self._asked_for(version):
                check_complete(self.view, [version], ts)
                yield _OneTable(self, target, version, ts).result()

    def _windows(
        self, shard: int, progress: Progress, windows: Mapping[int, Sequence[SentWindow]], of: Name | None
    ) -> ComparedWindows:
        """Compare the windows of a shard that were written under the present configuration."""
        applied, pipeline = (
            progress.applied,
            replace(self.feed.pipeline, shard=TableShard(shard, self.feed.config.shards)),
        )
        from_ts = 0 if applied is None else max(applied.from_ts, applied.after_ts)
        comparison = TableWindows(self.tenant, pipeline, self.view, self.budget, self._is_late)
        return comparison.result(windows.get(shard, ()), from_ts, progress.at.low_ts, of)

    def _asked_for(self, version: TableVersion) -> bool:
        return self.ask.table is None or fold(".".join(version.name)) == fold(self.ask.table)

    def left_s(self) -> int:
        """The seconds until the comparison is given up; at least one."""
        return max(1, (self.deadline_ms - self.clock.monotonic_ms() + 999) // 1000)

    def _is_late(self) -> bool:
        return self.clock.monotonic_ms() > self.deadline_ms

    def _check_time(self, reason: str) -> None:
        if self._is_late():
            raise self._late(reason)

    def _late(self, reason: str) -> Unavailable:
        return Unavailable(f"the tables were not compared in time ({reason}): compare one table, or pause the feed")


@dataclass(frozen=True, slots=True)
class _OneTable:
    """One table: its rows in the pool as of `ts`, and in the database."""

    by: TableComparison
    target: MySqlTarget
    version: TableVersion
    ts: int

    @property
    def columns(self) -> Sequence[Column]:
        """The columns that are compared."""
        return self.version.table.visible_columns

    def result(self) -> VerifiedTable:
        """Compare the rows, and add the differences to those of the comparison."""
        compared, dialect = ComparedRows(), self.target.dialect
        compared.wanted += [hashes for hashes, _ in self._wanted(dialect)]
        compared.found += [hashes for hashes, _ in self._found(dialect)]
        result = compared.result()
        if not result.equal:
            self._name(result, dialect)
        database, table = self.version.name
        return VerifiedTable(
            database=database,
            table=table,
            events=result.wanted,
            messages=result.found,
            missing=sum(result.missing.values()),
            unexpected=sum(result.unexpected.values()),
            repeated=sum(result.repeated.values()),
        )

    def _wanted(self, dialect: Dialect) -> Iterator[tuple[Hashes, pa.RecordBatch]]:
        view, ranges = self.by.view, [records_of(one) for one in sorted(self.version.head.physical_ids)]
        reads = PoolReads.of(self.by.reader, view, self.ts)
        for found in reads.scan(Window(0, self.ts), ranges):
            self.by._check_time("the pool was being read")
            raw = key_array(found)
            decoded = decode_rows(self.version.table, self.columns, raw, one_array(found.column("value")))
            if decoded.errors:
                at = min(decoded.errors)
                reason = f"the row with the key {raw[at].as_py().hex()} cannot be decoded"
                raise failed("pool", ".".join(self.version.name), reason)
            arrays = [decoded.batch.column(at) for at in range(len(self.columns))]
            batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self.columns])
            yield hashes_of_rows(batch, self.columns, dialect), batch

    def _found(self, dialect: Dialect) -> Iterator[tuple[Hashes, list[tuple[Any, ...]]]]:
        sql = f"SELECT {select_list(self.columns)} FROM {'.'.join(map(quoted_name, self.version.name))}"
        self.target.execute(_LIMITS[dialect].format(self.by.left_s()))
        try:
            for rows in self.target.batches(sql, _ROWS):
                self.by._check_time(f"table {'.'.join(self.version.name)} was being read")
                yield hashes_of_selected(rows, self.columns, dialect), rows
        except TargetFailed as error:
            if error.code not in _ABSENT:
                raise

    def _name(self, result: RowDifferences, dialect: Dialect) -> None:
        """Read both sides again, and add the keys of the rows that differ."""
        missing, more = dict(result.missing), {**result.unexpected, **result.repeated}
        keyed = [self.columns.index(column) for column in handle_columns(self.version.table)]
        for hashes, batch in self._wanted(dialect):
            for at in _taken(hashes.tolist(), missing):
                self._add("missing", keyed, [batch.column(place)[at].as_py() for place in keyed])
        for hashes, rows in self._found(dialect):
            for at in _taken(hashes.tolist(), more):
                what = "repeated" if int(hashes[at]) in result.repeated else "unexpected"
                self._add(what, keyed, [rows[at][place] for place in keyed])

    def _add(self, what: Any, keyed: Sequence[int], values: Sequence[Any]) -> None:
        database, table = self.version.name
        names = [self.columns[place].name for place in keyed]
        self.by.differences.append(
            Difference(
                what=what,
                database=database,
                table=table,
                commit_ts=str(self.ts),
                topic="",
                partition=0,
                offset=None,
                key={name: _shown(value) for name, value in zip(names, values, strict=True)},
            )
        )


def _taken(hashes: Sequence[int], left: dict[int, int]) -> Iterator[int]:
    """Yield the indexes of the hashes that are keys of `left`, each hash at most as often as its count in `left`. The
    counts are decremented in place."""
    for at, one in enumerate(hashes):
        if left.get(one):
            left[one] -= 1
            yield at


def _shown(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value if value is None else str(value)
