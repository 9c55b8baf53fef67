"""The connection of one slot of a MySQL sink. A sink writes the parts of a window by several such connections side by
side. Each transaction fails if another holder has taken the slot."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from typing import Any

from tistream.clock import Clock
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.visible import Name
from tistream.targets.mysql import ANSWER_S, EXPLICIT_RANDOM, STRICT, MySqlTarget, TargetFailed
from tistream.targets.mysql_url import MySqlUrl
from tistream_changefeed.core.failure import FeedFailed, failed, fenced, refused, retry
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.sinks.mysql.faults import changed_values, fault_of
from tistream_changefeed.sinks.mysql.lock_holders import LockHolders, lock_holders
from tistream_changefeed.sinks.mysql.statements import Statement
from tistream_changefeed.sinks.mysql.target import IDLE_S, PROGRESS, MySqlServer
from tistream_changefeed.table_errors.tables_refused import TablesRefused
from tistream_changefeed.tls import BadPem, identify, trusting

_SESSION = ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", f"SET SESSION wait_timeout = {IDLE_S}")
_TIDB = ("SET SESSION tidb_txn_mode = 'pessimistic'", EXPLICIT_RANDOM)
LENIENT = "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'"
_FRESH_MS = IDLE_S * 1000 // 3


class WriteAgain(Exception):
    """Raised if the server has rolled back a transaction, for example because of a deadlock. It can be repeated at
    once."""


def connected(server: MySqlServer, answer_s: int = ANSWER_S) -> MySqlTarget:
    """Connect to a server. `answer_s`: seconds to wait for an answer. Raises FeedFailed."""
    url = MySqlUrl(server.host, server.port, server.user, server.password or "", None)
    try:
        target = MySqlTarget(url, _context(server) if server.tls else None, answer_s)
        target.execute_all((*_SESSION, *(_TIDB if target.dialect is Dialect.TIDB else ())))
        return target
    except TargetFailed as error:
        raise failure_of(error, server) from error


def failure_of(error: TargetFailed, server: MySqlServer) -> FeedFailed:
    """Convert an error of the server to a FeedFailed with a remedy. It names the server, not a table."""
    cause = "unreachable" if error.code is None else str(error.code)
    text = str(error).removeprefix(f"{server.where}/: ")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return refused(server.where, f"{text}: give the certificate of its authority as ssl-ca", "certificate")
    match fault_of(error.code):
        case "refused":
            return refused(
                server.where, f"{text}: put the secret of the password again, or grant what is missing", cause
            )
        case "table":
            return failed("sink", server.where, text, cause)
    return retry("sink", server.where, text, cause)


class Slot:
    """The connection of slot `number` of a feed. Each transaction first checks the fence and the holder in the slot's
    row, which stays locked until the transaction ends. `holder`: the name of the sink. Not thread-safe."""

    def __init__(self, server: MySqlServer, feed: str, number: int, fence: Fence, holder: str, clock: Clock) -> None:
        self._server, self._feed, self._number, self._clock = server, feed, number, clock
        self._fence, self._holder = fence, holder
        self._target: MySqlTarget | None = None
        self._used_ms = 0

    def target(self) -> MySqlTarget:
        """The connection, outside a transaction. It is opened again if the server has closed it, because it was idle.
        Raises FeedFailed."""
        now_ms = self._clock.monotonic_ms()
        if self._target is not None and now_ms - self._used_ms > _FRESH_MS:
            try:
                self._target.execute("SELECT 1")
            except TargetFailed:
                self.close()
        if self._target is None:
            self._target = connected(self._server)
        self._used_ms = now_ms
        return self._target

    def begin(self, begun: str) -> None:
        """Begin a transaction that stores the cursor `begun` in the slot's row. Raises FeedFailed: fenced if another
        sink has taken the slot."""
        target = self.target()
        try:
            target.execute("BEGIN")
            found = target.execute(
                f"UPDATE {PROGRESS} SET begun = %s "
                "WHERE feed = %s AND slot = %s AND generation = %s AND epoch = %s AND holder = %s",
                (begun, self._feed, self._number, *self._fence, self._holder),
            )
        except TargetFailed as error:
            raise self._failed(error) from error
        if not found:
            self.rolled_back()
            raise fenced(self._server.where, "another holder has taken the feed's progress")

    def run(self, statements: Iterable[Statement], *, exact: bool) -> None:
        """Run statements in the transaction that `begin` began. `exact`: each must match the number of rows that it
        states. Raises WriteAgain, TablesRefused, FeedFailed; then the transaction was rolled back."""
        for one in statements:
            try:
                found = self._zeros(one) if one.zeros else self._within().execute(one.sql)
            except TargetFailed as error:
                raise self._refused(error, one) from error
            if exact and one.rows is not None and found != one.rows:
                self.rolled_back()
                raise _refusal(one, "no row has the values that the upstream deleted: another program writes to it")

    def execute(self, sql: str, values: tuple[object, ...] = ()) -> int:
        """Run a statement of the transaction on the sink's own tables. Returns the number of rows that it found. Raises
        FeedFailed."""
        try:
            return self._within().execute(sql, values)
        except TargetFailed as error:
            raise self._failed(error) from error

    def rows(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Read the rows of a query within the transaction. Raises FeedFailed."""
        try:
            return self._within().rows(sql, values)
        except TargetFailed as error:
            raise self._failed(error) from error

    def lock_holders(self, tables: Sequence[Name], other: int) -> LockHolders:
        """The sessions that hold a lock of the first of `tables` that is locked, except this one and that with the id
        `other`. Called within a transaction. Raises FeedFailed."""
        try:
            return lock_holders(self._within(), tables, [other])
        except TargetFailed as error:
            raise self._failed(error) from error

    def commit(self) -> None:
        """Commit the transaction. Raises FeedFailed; then it is not known whether it was committed."""
        try:
            self._within().execute("COMMIT")
        except TargetFailed as error:
            raise self._failed(error) from error

    def rolled_back(self) -> None:
        """Roll back the open transaction, if there is one."""
        if self._target is not None:
            try:
                self._target.execute("ROLLBACK")
            except TargetFailed:
                self.close()

    def close(self) -> None:
        """Close the connection. The server rolls back an open transaction."""
        target, self._target = self._target, None
        if target is not None:
            target.__exit__()

    def _zeros(self, one: Statement) -> int:
        """Run a statement with an ENUM of 0, which a strict session refuses. A session that is not strict changes other
        values silently, but warns of each. Raises TargetFailed, TablesRefused."""
        target = self._within()
        try:
            target.execute(LENIENT)
            found = target.execute(one.sql)
            shown = target.rows("SHOW WARNINGS")
            ((count,),) = target.rows("SELECT @@warning_count")
            target.execute(STRICT)
        except TargetFailed:
            self.close()  # no later statement may have this session
            raise
        changed = changed_values(count, [code for _, code, _ in shown])
        if changed != one.zeros:
            self.rolled_back()
            raise _refusal(one, f"a row with an ENUM of 0 has {changed} values that the server would change")
        return found

    def _within(self) -> MySqlTarget:
        """The connection of the open transaction, which no other one can replace."""
        if self._target is None:
            raise retry("sink", self._server.where, "the connection was lost within a transaction", "unreachable")
        return self._target

    def _refused(self, error: TargetFailed, one: Statement) -> Exception:
        fault = fault_of(error.code)
        self.rolled_back()
        if fault == "again":
            return WriteAgain(str(error))
        if fault == "table":
            return _refusal(one, str(error))
        return failure_of(error, self._server)

    def _failed(self, error: TargetFailed) -> FeedFailed:
        self.rolled_back()
        return failure_of(error, self._server)


def _refusal(one: Statement, reason: str) -> TablesRefused:
    remedy = "repair the table there, then resume the feed (pause it first if it runs)"
    return TablesRefused([one.table], f"table {'.'.join(one.table)}: {reason}; {remedy}")


def _context(server: MySqlServer) -> ssl.SSLContext:
    """The TLS context of a connection. Raises FeedFailed if a PEM text cannot be read."""
    try:
        context = ssl.create_default_context() if server.ca is None else trusting(server.ca, "ssl-ca", others=False)
        if server.cert is not None and server.key is not None:
            identify(context, server.cert, server.key, ("ssl-cert", "ssl-key"))
    except BadPem as error:
        raise refused(server.where, str(error), "certificate") from error
    return context
