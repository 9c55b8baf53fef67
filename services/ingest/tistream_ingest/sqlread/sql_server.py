"""A connection to the TiDB that a backfill by SQL reads. It writes nothing, takes no locks, and keeps no transaction
open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql

from tistream.errors import InvalidRequest, Unavailable
from tistream.targets.mysql_url import MySqlUrl
from tistream_ingest.sqlread.statements import NEW_COLLATIONS, SESSION, TSO, snapshot_at

CONNECT_S = 10
ANSWER_S = 300
NO_SUCH_COLUMN, NO_SUCH_FUNCTION, NO_SUCH_VARIABLE, SYNTAX = 1054, 1305, 1193, 1064
_BELOW_GC = frozenset({8055, 9006})
_DENIED = frozenset({1044, 1045, 1142, 1143, 1227})
_NO_TABLE = frozenset({1049, 1146})


class BelowGc(Unavailable):
    """Raised if the upstream's garbage collection has passed the ts of a read, which must be repeated at a newer ts."""


class Refused(InvalidRequest):
    """Raised if the server does not know a statement, or a function or column in it. `number`: MySQL's error number."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


@dataclass(frozen=True, slots=True)
class Columns:
    """The result of a query, by columns: large_binary arrays with `rows` texts each, null for NULL."""

    rows: int
    arrays: Sequence[Any]


class SqlServer:
    """One connection to a server. A context manager, which closes the connection at its end. Not thread-safe."""

    def __init__(self, url: MySqlUrl) -> None:
        """Connect to the server. Raises Unavailable, InvalidRequest."""
        self._url = url
        tls = dict(url.options)
        try:
            self._connection: pymysql.Connection[Any] = pymysql.connect(
                host=url.host,
                port=url.port,
                user=url.user,
                password=url.password,
                charset="utf8mb4",
                use_unicode=False,
                conv=dict(pymysql.converters.encoders),  # answers stay bytes
                autocommit=True,
                connect_timeout=CONNECT_S,
                read_timeout=ANSWER_S,
                write_timeout=ANSWER_S,
                ssl={name.removeprefix("ssl_"): value for name, value in tls.items()} or None,
            )
        except (pymysql.err.MySQLError, OSError) as error:
            raise self._failed(error) from None
        for line in SESSION:
            self.rows(line)

    def __enter__(self) -> SqlServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection.open:
            self._connection.close()

    def rows(self, sql: str) -> list[tuple[bytes | None, ...]]:
        """Run a query with a small result. Returns its rows. Raises Unavailable, BelowGc, Refused, InvalidRequest."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        except (pymysql.err.MySQLError, OSError) as error:
            raise self._failed(error) from None

    def columns(self, sql: str, width: int) -> Columns:
        """Run a query whose result has `width` columns. Raises the errors of `rows`."""
        found = self.rows(sql)
        columns = zip(*found, strict=True) if found else ((),) * width
        return Columns(len(found), [pa.array(one, pa.large_binary()) for one in columns])

    def tso(self) -> int:
        """The present TSO of the upstream's PD. Raises the errors of `rows`, and InvalidRequest if the server is not a
        TiDB."""
        begin, read, end = TSO
        self.rows(begin)
        try:
            found = self.rows(read)
        except Refused:
            raise InvalidRequest(f"{self._url} is not a TiDB: it has no @@tidb_current_ts") from None
        self.rows(end)
        return int(found[0][0] or b"0")

    def read_at(self, ts: int) -> None:
        """Make all later reads of this connection read as of `ts`. Raises the errors of `rows`."""
        self.rows(snapshot_at(ts))

    def new_collations(self) -> bool:
        """Whether the cluster compares strings by their collation (`new_collation_enabled`). Raises the errors of
        `rows`."""
        found = self.rows(NEW_COLLATIONS)
        return bool(found) and (found[0][0] or b"").lower() in (b"true", b"1", b"on")

    def accepts(self, sql: str) -> bool:
        """Whether the server accepts a query. Raises the errors of `rows`, except Refused, for which it returns
        False."""
        try:
            self.rows(sql)
        except Refused:
            return False
        return True

    def _failed(self, error: Exception) -> Exception:
        """Convert an error of the MySQL client to the error that is raised. Its text has the error's number, but not
        the server's message, which may quote a statement, and never the password."""
        number = error.args[0] if isinstance(error, pymysql.err.MySQLError) and error.args else None
        if not isinstance(number, int):
            return Unavailable(f"{self._url}: {type(error).__name__}")
        if number in _BELOW_GC:
            return BelowGc(f"{self._url}: error {number}: garbage collection has passed the ts of the read")
        if number in _DENIED:
            needs = "SELECT on the tables, mysql.tidb and mysql.tidb_ddl_job"
            return InvalidRequest(f"{self._url}: error {number}: the user lacks a privilege; grant it {needs}")
        if number in (NO_SUCH_COLUMN, NO_SUCH_FUNCTION, NO_SUCH_VARIABLE, SYNTAX):
            return Refused(f"{self._url}: error {number}: it does not know a part of the statement", number)
        if number in _NO_TABLE:
            return InvalidRequest(f"{self._url}: error {number}: a table is not there, or its user lacks SELECT on it")
        return Unavailable(f"{self._url}: error {number}")
