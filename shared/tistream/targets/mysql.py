"""A connection to a MySQL, MariaDB or TiDB server that a restore or an undo writes into.

Every write is one transaction. If the answer to a COMMIT is lost, it is unknown whether the transaction was committed.
Therefore writers put a marker row into the same transaction, and look for it before they write again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from ssl import SSLContext
from typing import Any

import pymysql

from tistream.restore.undo_sql import SESSION
from tistream.schema.tidb.create_table import Dialect
from tistream.targets.mysql_url import MySqlUrl

CONNECT_S = 10
ANSWER_S = 600  # timeout of one statement; an ALTER TABLE that checks foreign keys reads whole tables
# The upstream may have dates that no calendar has, such as 2021-02-30. They are stored, and found by keys, as they are.
STRICT = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'"
# Without this setting, TiDB refuses explicit values of AUTO_RANDOM columns.
EXPLICIT_RANDOM = "SET SESSION allow_auto_random_explicit_insert = 1"

# Codes of the client: no connection, an unknown host, and a connection that ended.
_NO_ANSWER = frozenset({2002, 2003, 2005, 2006, 2013})


class TargetFailed(Exception):
    """Raised if the server cannot be reached, or refused a statement. The text names the server and the reason; it
    contains no password and no values of rows. `code` is the server's error number; None if the server did not
    answer."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code

    @property
    def no_answer(self) -> bool:
        """Whether the server was not reached, or the connection was lost. A wrong password is not that."""
        return self.code in _NO_ANSWER


class MySqlTarget:
    """One connection to a server. It is a context manager, and not thread-safe."""

    def __init__(self, url: MySqlUrl, context: SSLContext | None = None, answer_s: int = ANSWER_S) -> None:
        """Connect to the server, with TLS as `context` says, or else as the options of the URL say. `answer_s`: seconds
        to wait for the answer to a statement. Raises TargetFailed."""
        self._url = url
        tls = dict(url.options)
        try:
            self._connection: pymysql.Connection[Any] = pymysql.connect(
                host=url.host,
                port=url.port,
                user=url.user,
                password=url.password,
                database=url.database,
                charset="utf8mb4",
                autocommit=True,  # writers begin transactions themselves; a SELECT must see the newest rows
                connect_timeout=min(CONNECT_S, answer_s),
                read_timeout=answer_s,
                write_timeout=answer_s,
                client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
                ssl=context or {name.removeprefix("ssl_"): value for name, value in tls.items()} or None,
            )
        except (pymysql.err.MySQLError, OSError) as error:
            raise self._failed(error) from error
        for line in (*SESSION, STRICT):
            self.execute(line)

    def _failed(self, error: Exception) -> TargetFailed:
        code = error.args[0] if isinstance(error, pymysql.err.MySQLError) and error.args else None
        return TargetFailed(f"{self._url}: {_reason(error)}", code if isinstance(code, int) else None)

    def __enter__(self) -> MySqlTarget:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection.open:
            self._connection.close()

    def session_id(self) -> int:
        """Ask the server for the id of the session, as its SHOW PROCESSLIST has it. The id of the handshake is another
        one if a proxy lies between: it is the proxy's. Raises TargetFailed."""
        return int(self.rows("SELECT CONNECTION_ID()")[0][0])

    @property
    def dialect(self) -> Dialect:
        """The SQL dialect of the server, recognized by its version text."""
        version = str(self.rows("SELECT VERSION()")[0][0])
        if "TiDB" in version:
            return Dialect.TIDB
        return Dialect.MARIADB if "MariaDB" in version else Dialect.MYSQL

    def execute(self, sql: str, values: tuple[object, ...] | None = None) -> int:
        """Run a statement. Returns the number of rows that a SELECT returned, or that a change matched: an
        UPDATE also counts rows that had the new values before. Raises TargetFailed."""
        try:
            with self._connection.cursor() as cursor:
                return int(cursor.execute(sql, values))
        except (pymysql.err.MySQLError, OSError) as error:
            raise self._failed(error) from error

    def execute_many(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Run an INSERT for all these rows, with many rows in each statement. Raises TargetFailed."""
        try:
            with self._connection.cursor() as cursor:
                cursor.executemany(sql, rows)
        except (pymysql.err.MySQLError, OSError) as error:
            raise self._failed(error) from error

    def rows(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Read all rows of a small query. Raises TargetFailed."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql, values)
                return list(cursor.fetchall())
        except (pymysql.err.MySQLError, OSError) as error:
            raise self._failed(error) from error

    def batches(self, sql: str, size: int) -> Iterator[list[tuple[Any, ...]]]:
        """Run a query. Yields its rows in batches of `size`, as they arrive. Raises TargetFailed."""
        try:
            with self._connection.cursor(pymysql.cursors.SSCursor) as cursor:
                cursor.execute(sql)
                while batch := cursor.fetchmany(size):
                    yield list(batch)
        except (pymysql.err.MySQLError, OSError) as error:
            raise self._failed(error) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a `with` block as one transaction: commit it, or roll it back if the block raises an error. Raises
        TargetFailed."""
        self.execute("BEGIN")
        try:
            yield
        except BaseException:
            if self._connection.open:
                self._rolled_back()
            raise
        self.execute("COMMIT")

    def _rolled_back(self) -> None:
        try:
            self._connection.rollback()
        except (pymysql.err.MySQLError, OSError):
            self._connection.close()  # the server rolls back the open transaction of a closed connection

    def execute_all(self, statements: Iterable[str]) -> None:
        """Run statements one after the other. Raises TargetFailed."""
        for sql in statements:
            self.execute(sql)


def _reason(error: Exception) -> str:
    """The server's error message, with values of rows removed."""
    if isinstance(error, pymysql.err.MySQLError) and len(error.args) == 2:
        code, text = error.args
        if code in _QUOTED:
            found = _NAMED.search(str(text))
            return f"error {code} ({_QUOTED[code]}{'' if found is None else f': {found[1]}'})"
        return f"error {code}: {text}"
    return str(error) or type(error).__name__


# The name of the key or column at the end of such a text; the value stands before it.
_NAMED = re.compile(r"(?:for key|column) ('[^']+'|`[^`]+`\.`[^`]+`\.`[^`]+`)(?: at row \d+)?$")
# Errors whose text quotes values of rows.
_QUOTED = {
    1062: "duplicate entry for a unique key",
    1264: "value out of range for a column",
    1265: "value truncated for a column",
    1292: "incorrect value for a column",
    1366: "incorrect value for a column",
    1406: "value too long for a column",
}
