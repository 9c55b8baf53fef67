"""Executes the DDLs of a feed on its server, each once.

A server commits a DDL by itself. So it is first stored which statement is executed, and how the tables are defined
before it. After a crash the definitions show whether it was executed. The row of the first slot is locked meanwhile, so
that a holder that was replaced cannot execute a DDL late.

A DDL waits for transactions that use its table, and statements that come after it wait behind it. So it waits for
some seconds at most (LOCK_WAIT_S), and is tried again later. In TiDB no statement waits behind a DDL, and there is no
limit. A DDL that changes a large table (above LARGE_BYTES) waits for the lock once more at its end, and if it gave up
then, the server would undo the work of hours, each time. So before such a DDL, LOCK TABLES waits for the seconds, and
the DDL has the server's own limit. If a transaction begins between the two statements, the DDL is ended after the
seconds, unless it was seen at work.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from concurrent.futures import Executor, Future, TimeoutError
from dataclasses import dataclass

from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.quoting import quoted_name
from tistream.schema.visible import Name
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream.wire.bulk.changefeeds import HeldBy
from tistream_changefeed.core.failure import FeedFailed, retry
from tistream_changefeed.core.shard import Order
from tistream_changefeed.sinks.mysql.connection import Slot, failure_of
from tistream_changefeed.sinks.mysql.ddl import DdlRefused, ddl_statements, is_quick, looked_at, session_time
from tistream_changefeed.sinks.mysql.faults import fault_of
from tistream_changefeed.sinks.mysql.lock_holders import LockHolders, lock_holders
from tistream_changefeed.sinks.mysql.lock_wait import LockWait
from tistream_changefeed.sinks.mysql.payload import DdlMark
from tistream_changefeed.sinks.mysql.stored_progress import feed_key
from tistream_changefeed.sinks.mysql.target import DDLS, IDLE_S, MySqlServer
from tistream_changefeed.table_errors.tables_refused import TablesRefused

LOCK_WAIT_S = 30
LOOK_S = 1.0  # between two looks at the session of a DDL, which are signs of life of the connection that has the lock
LARGE_BYTES = 1 << 30  # of data and indexes
COMMENT = "/* tistream "  # with which the statement of a DDL begins
DATABASE_EXISTS = 1007
LOCK_WAIT = 1205
INTERRUPTED = 1317
_ABSENT = frozenset({1049, 1146})  # unknown database, no such table
PROHIBITED = 1105  # any unknown error; with it, a Percona cluster (pxc_strict_mode) refuses LOCK TABLES
_STATE = "SELECT state FROM information_schema.processlist WHERE id = %s AND info LIKE %s"
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")


@dataclass(frozen=True, slots=True)
class DdlRunner:
    """Executes DDLs on the connection of `other`, while a transaction of `slot`, the first slot, keeps newer holders
    out. `begun` is the cursor that this transaction stores in the slot's row. `lock_wait_s`: how many seconds a DDL
    waits for sessions that use its table. `tell` is called with what a DDL waits for, and with None when it goes on."""

    server: MySqlServer
    order: Order
    slot: Slot
    other: Slot
    executor: Executor
    dialect: Dialect
    begun: str
    lock_wait_s: int
    tell: Callable[[HeldBy | None], None]

    def run(self, mark: DdlMark) -> None:
        """Execute the statements of a DDL, except those that were executed before a crash. Raises FeedFailed, and
        TablesRefused if the server refuses a statement."""
        try:
            found = ddl_statements(mark, self.dialect)
        except DdlRefused as error:
            raise _refused_ddl(mark, str(error), "do by hand what it says, then skip it") from error
        for step, sql in enumerate(found):
            self._step(mark, step, sql)

    def _step(self, mark: DdlMark, step: int, sql: str) -> None:
        key = (feed_key(self.order), self.order.fence.generation, mark.event.job_id, step)
        where = "feed = %s AND generation = %s AND job_id = %s AND step = %s"
        comment = f"{COMMENT}{key[0]} {mark.event.job_id}.{step} */"
        server = self.other.target()
        try:
            if self.dialect is not Dialect.TIDB:
                server.execute(f"SET SESSION lock_wait_timeout = {self.lock_wait_s}")
            stored = server.rows(f"SELECT done, `before` FROM {DDLS} WHERE {where}", key)
            if stored and stored[0][0]:
                return
            if stored:
                self._check_ended(server, comment)
            now, large = self._definitions(server, looked_at(mark)), False
            if not stored or stored[0][1] == now:
                large = self.dialect is not Dialect.TIDB and not is_quick(mark.event.action) and _large(server, mark)
                if large:
                    here = zip(looked_at(mark), json.loads(now), strict=True)
                    _wait_until_unused(server, [name for name, definition in here if name[1] and definition])
                    server.execute("SET SESSION lock_wait_timeout = DEFAULT")
                row = (*key, mark.event.commit_ts, 0, now, sql)
                self._execute(server, mark, f"{comment} {sql}", row, new=not stored, large=large)
        except TargetFailed as error:
            failure = self._failed(error, mark, server)
            self.other.close()
            raise failure from error
        self.slot.begin(self.begun)
        self.slot.execute(f"UPDATE {DDLS} SET done = 1 WHERE {where}", key)
        self.slot.commit()

    def _execute(
        self, server: MySqlTarget, mark: DdlMark, sql: str, row: tuple[object, ...], *, new: bool, large: bool
    ) -> None:
        event = mark.event
        if new:
            self.slot.begin(self.begun)
            self.slot.execute(
                f"INSERT INTO {DDLS} (feed, generation, job_id, step, commit_ts, done, `before`, statement) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
                row,
            )
            self.slot.commit()
        self.slot.begin(self.begun)  # the lock
        try:
            server.execute(f"SET SESSION wait_timeout = {IDLE_S // 2}")  # it ends before the lock does
            if event.table:
                server.execute(f"USE {quoted_name(event.database)}")
            server.execute(f"SET SESSION timestamp = {session_time(mark)}")
            session = server.session_id()  # while the statement runs, the connection can ask nothing
            self._watched(self.executor.submit(server.execute, sql), session, mark, large=large)
        except TargetFailed as error:
            if error.code != DATABASE_EXISTS or event.action != "create schema":
                raise self._refused(error, mark, server) from error
        finally:
            self.tell(None)
            self.slot.rolled_back()

    def _watched(self, running: Future[int], session: int, mark: DdlMark, *, large: bool) -> None:
        """Wait until a DDL has ended, and report which sessions it waits for. `session`: the id of its own. One of a
        large table is ended if it waits too long before it begins to work. Raises TargetFailed, FeedFailed."""
        wait = LockWait(math.ceil(self.lock_wait_s / LOOK_S))
        while True:
            try:
                running.result(LOOK_S)
                return
            except TimeoutError:
                pass
            found = self.slot.rows(_STATE, (session, f"{COMMENT}%"))
            if self.dialect is Dialect.TIDB or not wait.seen(found[0][0] if found else None):
                self.tell(None)
                continue
            holders = self.slot.lock_holders(mark.names, session)
            self.tell(HeldBy(stage="ddl", object=holders.shown, reason=_waits_for(mark, holders)))
            if large and wait.over:
                self.slot.execute(f"KILL QUERY {session}")
                try:
                    running.result()
                    return
                except TargetFailed as error:
                    raise _locked(mark, holders) if error.code == INTERRUPTED else error from error

    def _refused(self, error: TargetFailed, mark: DdlMark, server: MySqlTarget) -> Exception:
        if fault_of(error.code) == "table":
            return _refused_ddl(mark, str(error), "do by hand what it says, or skip it, then resume the feed")
        return self._failed(error, mark, server)

    def _failed(self, error: TargetFailed, mark: DdlMark, server: MySqlTarget) -> FeedFailed:
        """The failure for an error that concerns no table, or only says that a table is locked."""
        if error.code != LOCK_WAIT:
            return failure_of(error, self.server)
        try:
            holders = lock_holders(server, mark.names, [self.slot.target().session_id()])
        except TargetFailed as other:
            return failure_of(other, self.server)
        return _locked(mark, holders)

    def _check_ended(self, server: MySqlTarget, comment: str) -> None:
        """Check that the statement of a holder that was killed does not run any more."""
        sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND info LIKE %s"
        if server.rows(sql, (f"{comment}%",))[0][0]:
            raise retry("ddl", self.server.where, f"the DDL {comment} still runs there")

    def _definitions(self, server: MySqlTarget, names: tuple[Name, ...]) -> str:
        """The definitions of tables and databases, as one text."""
        return json.dumps([self._definition(server, name) for name in names])

    def _definition(self, server: MySqlTarget, name: Name) -> str | None:
        database, table = map(quoted_name, name)
        sql = f"SHOW CREATE TABLE {database}.{table}" if name[1] else f"SHOW CREATE DATABASE {database}"
        try:
            return _COUNTER.sub("", str(server.rows(sql)[0][1]))
        except TargetFailed as error:
            if error.code in _ABSENT:
                return None
            raise


def _waits_for(mark: DdlMark, holders: LockHolders) -> str:
    return f"DDL job {mark.event.job_id} at commit_ts {mark.event.commit_ts} waits for {holders}"


def _locked(mark: DdlMark, holders: LockHolders) -> FeedFailed:
    reason = f"{_waits_for(mark, holders)}; the feed goes on by itself once that transaction has ended"
    return retry("ddl", holders.shown, reason, "locked")


def _large(server: MySqlTarget, mark: DdlMark) -> bool:
    """Whether one of a DDL's tables has more than LARGE_BYTES, as the server estimates."""
    sql = "SELECT data_length + index_length FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
    sizes = (size for name in looked_at(mark) for (size,) in server.rows(sql, name))
    return any(size is not None and int(size) > LARGE_BYTES for size in sizes)


def _wait_until_unused(server: MySqlTarget, tables: list[Name]) -> None:
    """Wait until no session uses these tables, at most the session's lock_wait_timeout. Raises TargetFailed. A server
    that refuses LOCK TABLES, such as for a missing right, is not waited for."""
    if not tables:
        return
    locks = ", ".join(f"{quoted_name(database)}.{quoted_name(table)} WRITE" for database, table in tables)
    try:
        server.execute(f"LOCK TABLES {locks}")
    except TargetFailed as error:
        if error.code != PROHIBITED and fault_of(error.code) not in ("refused", "table"):
            raise
        return
    server.execute("UNLOCK TABLES")


def _refused_ddl(mark: DdlMark, reason: str, remedy: str) -> TablesRefused:
    event = mark.event
    named = f"DDL job {event.job_id} at commit_ts {event.commit_ts} ({event.query[:200]})"
    return TablesRefused(mark.names, f"{named}: {reason}; {remedy}", of_ddl=True)
