"""Finds the sessions of a server that hold a lock of a table for which a DDL waits.

MySQL names them. MariaDB does so if its performance_schema is on, or its plugin metadata_lock_info is installed.
Otherwise they are looked for among the sessions that have an open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tistream.schema.visible import Name
from tistream.targets.mysql import MySqlTarget, TargetFailed

_NOT_THERE = frozenset({1109, 1142, 1146, 1227})  # unknown table, no such table, no right to read it
_OF_TABLE = "l.{0}_schema = %s AND %s IN ('', l.{0}_name)"  # an empty name stands for all tables of the database
_NAMED = (
    "SELECT DISTINCT s.processlist_id, s.processlist_user, s.processlist_host, s.processlist_time "
    "FROM performance_schema.metadata_locks l JOIN performance_schema.threads s ON s.thread_id = l.owner_thread_id "
    f"WHERE l.object_type = 'TABLE' AND l.lock_status = 'GRANTED' AND {_OF_TABLE.format('object')} ORDER BY 1",
    "SELECT DISTINCT s.id, s.user, s.host, s.time "
    "FROM information_schema.metadata_lock_info l JOIN information_schema.processlist s ON s.id = l.thread_id "
    f"WHERE {_OF_TABLE.format('table')} ORDER BY 1",
)
_OPEN = (
    "SELECT s.id, s.user, s.host, s.time "
    "FROM information_schema.innodb_trx x JOIN information_schema.processlist s ON s.id = x.trx_mysql_thread_id "
    "ORDER BY x.trx_started, 1"
)
_SHOWN_MAX = 5  # sessions in a text


@dataclass(frozen=True, slots=True)
class Session:
    """A connection to the server. `seconds`: for how long it has been in its present state."""

    id: int
    user: str
    host: str
    seconds: int

    def __str__(self) -> str:
        return f"{self.id} ({self.user}@{self.host}, {self.seconds} s)"


@dataclass(frozen=True, slots=True)
class LockHolders:
    """The sessions that hold a lock of a table. `certain`: whether the server names them; otherwise one of `sessions`
    may hold it."""

    table: Name
    sessions: Sequence[Session]
    certain: bool

    @property
    def shown(self) -> str:
        """The name of the table, or of the database if it stands for all tables of it."""
        return ".".join(self.table).removesuffix(".")

    def __str__(self) -> str:
        table = self.shown
        shown = ", ".join(map(str, self.sessions[:_SHOWN_MAX]))
        if not self.sessions:
            return f"a session that uses table {table}: `SHOW PROCESSLIST` there has it"
        if self.certain:
            return f"session {shown}, which uses table {table}"
        return f"a session that uses table {table}, perhaps one of those with an open transaction: {shown}"


def lock_holders(server: MySqlTarget, tables: Sequence[Name], own: Iterable[int]) -> LockHolders:
    """The sessions that hold a lock of the first of `tables` that is locked. `own`: the ids of the sink's own sessions,
    which are left out. Raises TargetFailed."""
    ours = {*own, server.session_id()}
    for sql in _NAMED:
        for table in tables:
            if found := list(_sessions(server, sql, table, ours)):
                return LockHolders(table, found, certain=True)
    return LockHolders(tables[0], list(_sessions(server, _OPEN, (), ours)), certain=False)


def _sessions(server: MySqlTarget, sql: str, values: tuple[str, ...], ours: set[int]) -> Iterator[Session]:
    """The sessions that a query finds; none if the server lacks what is queried, or the user may not read it."""
    try:
        rows = server.rows(sql, values)
    except TargetFailed as error:
        if error.code not in _NOT_THERE:
            raise
        return
    for number, user, host, seconds in rows:
        if number is not None and int(number) not in ours:
            yield Session(int(number), str(user), str(host), int(seconds or 0))
