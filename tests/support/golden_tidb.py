"""A server that speaks MySQL's protocol (mysql-mimic) and answers stale reads from the rows of a golden set.

It knows the statements of a backfill by SQL. Conditions are evaluated on the values that SELECT shows, and rows are
ordered by them, so that nothing here knows of record keys. Faults are set by the test.
"""

from __future__ import annotations

import asyncio
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import polars as pl
import sqlglot
from mysql_mimic import MysqlServer, ResultColumn, ResultSet
from mysql_mimic.auth import IdentityProvider, NativePasswordAuthPlugin, User
from mysql_mimic.errors import MysqlError
from mysql_mimic.session import Session
from mysql_mimic.types import ColumnType
from sqlglot import expressions as exp

from support.cut_set import CutSet
from support.sql_texts import shown_texts
from tistream.decode.cells.kinds import Kind, kind_of
from tistream.decode.keys import int_handles
from tistream.encode.rows import record_prefix
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream.targets.mysql_url import MySqlUrl, parse_mysql_url

PASSWORD = "hush-0451"
ROWID = "_tidb_rowid"
_SELECT = re.compile(
    r"SELECT (?P<shown>.+?) FROM `(?P<db>[^`]+)`\.`(?P<table>[^`]+)`(?: PARTITION \(`(?P<part>[^`]+)`\))?"
    r"(?P<sample> TABLESAMPLE REGIONS\(\))?(?: WHERE (?P<where>.+?))?(?: ORDER BY (?P<order>.+?))?"
    r"(?: LIMIT (?P<limit>\d+))?(?: OFFSET (?P<offset>\d+))?",
    re.DOTALL,
)
_TABLE_ID = re.compile(r"SELECT TIDB_TABLE_ID .* TABLE_SCHEMA = '(.+)' AND TABLE_NAME = '(.+)'")
_JOB = re.compile(r"SELECT job_id FROM mysql.tidb_ddl_job WHERE reorg AND FIND_IN_SET\('(\d+)', table_ids\) LIMIT 1")


@dataclass
class GoldenTidb:
    """now: the TSO. below_gc: a read at a ts below it fails. lose_at: numbers of SELECTs of rows whose connection is
    lost. reorganising: (first ts, last ts) of DDL jobs by table id. skew: reads are as of another ts than asked for.
    regions: every how many rows a Region begins; None: TABLESAMPLE is not known. has_commit_ts, encodes_keys: whether
    the server has what newer versions have."""

    made: CutSet
    now: int
    below_gc: int = 0
    lose_at: set[int] = field(default_factory=set)
    reorganising: dict[int, tuple[int, int]] = field(default_factory=dict)
    skew: Callable[[int], int] = lambda ts: ts
    regions: int | None = None
    has_commit_ts: bool = False
    encodes_keys: bool = False
    reads: list[tuple[int, str]] = field(default_factory=list)  # (ts, statement) of each SELECT of rows
    url: MySqlUrl = field(init=False)
    _kept: dict[tuple[int, str | None], list[_Row]] = field(default_factory=dict)
    _kept_ts: int = 0

    @contextmanager
    def serving(self) -> Iterator[GoldenTidb]:
        """Listen on a port of its own."""
        loop = asyncio.new_event_loop()
        server = MysqlServer(session_factory=lambda: _Session(self), identity_provider=_Reader())
        loop.run_until_complete(server.start_server(host="127.0.0.1", port=0))
        port = server.sockets()[0].getsockname()[1]
        self.url = parse_mysql_url(f"mysql://reader:{PASSWORD}@127.0.0.1:{port}")
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(_end(server), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def rows(self, version: TableVersion, partition: str | None, ts: int) -> list[_Row]:
        """The rows of a table; those of a ts are kept until another is read."""
        if self._kept_ts != ts:
            self._kept, self._kept_ts = {}, ts
        key = version.head.id, partition
        if key not in self._kept:
            self._kept[key] = _rows(self.made, version, partition, ts)
        return self._kept[key]

    def version(self, database: str, table: str, ts: int) -> TableVersion | None:
        found = (one for one in self.made.history.visible_tables(ts, database) if one.head.name == table)
        return next(found, None)


async def _end(server: MysqlServer) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Reader(IdentityProvider):  # type: ignore[misc]  # mysql-mimic has no types
    """One user with a password."""

    async def get_user(self, username: str) -> User | None:
        secret = NativePasswordAuthPlugin.create_auth_string(PASSWORD)
        return User(username, secret, NativePasswordAuthPlugin.name) if username == "reader" else None


class _Session(Session):  # type: ignore[misc]
    def __init__(self, tidb: GoldenTidb) -> None:
        super().__init__()
        self._tidb = tidb
        self._ts = 0
        self._in_transaction = False

    async def handle_query(self, sql: str, attrs: dict[str, str]) -> Any:  # noqa: PLR0911  # a statement each
        tidb, ts = self._tidb, self._ts or self._tidb.now
        if sql in ("BEGIN", "ROLLBACK"):
            self._in_transaction = sql == "BEGIN"
            return [], []
        if sql.startswith("SET "):
            if "tidb_snapshot" in sql:
                self._ts = int(sql.split("'")[1])
                self._check_gc()
            return [], []
        if sql == "SELECT @@tidb_current_ts":
            return _answer(["ts"], [(str(tidb.now if self._in_transaction else 0),)])
        if "new_collation_enabled" in sql:
            return _answer(["v"], [("True",)])
        if found := _TABLE_ID.fullmatch(sql):
            version = tidb.version(found[1], found[2], ts)
            return _answer(["id"], [] if version is None else [(str(version.head.id),)])
        if found := _JOB.fullmatch(sql):
            low, high = tidb.reorganising.get(int(found[1]), (1, 0))
            return _answer(["job_id"], [("9",)] if low <= ts <= high else [])
        match = _SELECT.fullmatch(sql)
        assert match is not None, f"a statement that this server does not know: {sql}"
        return self._select(match, ts)

    def _check_gc(self) -> None:
        if self._ts and self._ts < self._tidb.below_gc:
            raise MysqlError("GC life time is shorter than transaction duration", 9006)

    def _select(self, match: re.Match[str], ts: int) -> Any:
        tidb = self._tidb
        self._check_gc()
        if match["sample"] and tidb.regions is None:
            raise MysqlError("You have an error in your SQL syntax", 1064)
        if "_tidb_commit_ts" in match["shown"] and not tidb.has_commit_ts:
            raise MysqlError("Unknown column '_tidb_commit_ts' in 'field list'", 1054)
        if "TIDB_ENCODE_RECORD_KEY" in match["shown"] and not tidb.encodes_keys:
            raise MysqlError("FUNCTION TIDB_ENCODE_RECORD_KEY does not exist", 1305)
        if match["limit"] == "0":
            return _answer(["c"], [])
        tidb.reads.append((self._ts, match[0]))
        if len(tidb.reads) in tidb.lose_at:
            self.connection.stream.writer.transport.abort()
            raise ConnectionResetError
        version = tidb.version(match["db"], match["table"], ts)
        if version is None:
            raise MysqlError(f"Table '{match['db']}.{match['table']}' doesn't exist", 1146)
        rows = list(tidb.rows(version, match["part"], tidb.skew(ts)))
        if match["where"]:
            where = sqlglot.parse_one(match["where"], dialect="mysql")
            rows = [row for row in rows if row.meets(where)]
        order = [name.strip("`") for name in (match["order"] or "").split(", ") if name]
        rows.sort(key=lambda row: tuple(row.typed(name) for name in order))
        if match["sample"]:
            rows = rows[:: tidb.regions]
        offset = int(match["offset"] or 0)
        rows = rows[offset : offset + int(match["limit"] or len(rows))]
        names = re.split(r", (?![^(]*\))", match["shown"])
        return _answer(names, [tuple(row.shown(name) for name in names) for row in rows])


def _answer(names: list[str], rows: list[tuple[str | bytes | None, ...]]) -> ResultSet:
    return ResultSet(rows, [ResultColumn(name[:60], ColumnType.VARCHAR) for name in names])


@dataclass(frozen=True)
class _Row:
    """One row: the text of each column by its name."""

    columns: dict[str, Column]
    texts: dict[str, bytes | None]
    key: bytes
    commit_ts: int

    def shown(self, name: str) -> bytes | str | None:
        if name == "_tidb_commit_ts":
            return str(self.commit_ts)
        if name.startswith("TIDB_ENCODE_RECORD_KEY"):
            return self.key.hex()
        return self.texts[name.removeprefix("CAST(").removesuffix(" AS UNSIGNED)").strip("`")]

    def typed(self, name: str) -> Any:
        return self._typed(name, self.texts[name] or b"")

    def _typed(self, name: str, text: bytes) -> Any:
        if name == ROWID:
            return int(text)
        column = self.columns[name]
        kind = kind_of(column)
        if kind in (Kind.INT, Kind.UINT, Kind.DECIMAL):
            return Decimal(text.decode())
        if kind is Kind.TEXT:
            folded = text.decode().rstrip(" ")
            return (_without_accents(folded) if column.collate.endswith("_ci") else folded).encode()
        return text

    def meets(self, where: Any) -> bool:
        match where:
            case exp.Paren():
                return self.meets(where.this)
            case exp.And():
                return self.meets(where.left) and self.meets(where.right)
            case exp.Or():
                return self.meets(where.left) or self.meets(where.right)
        name = where.left.name
        mine, other = self.typed(name), self._typed(name, _literal(where.right))
        found: bool = {
            exp.GT: mine > other, exp.GTE: mine >= other, exp.LT: mine < other, exp.LTE: mine <= other,
            exp.EQ: mine == other,
        }[type(where)]  # fmt: skip
        return found


def _without_accents(text: str) -> str:
    """What collations of TiDB compare that end with `_ci`, for the letters of the golden sets."""
    letters = unicodedata.normalize("NFD", text.casefold())
    return "".join(one for one in letters if not unicodedata.combining(one))


def _literal(value: Any) -> bytes:
    match value:
        case exp.HexString():
            return bytes.fromhex(value.this)
        case exp.Neg():
            return b"-" + _literal(value.this)
    text: str = value.this
    return text.encode()


def _rows(made: CutSet, version: TableVersion, partition: str | None, ts: int) -> list[_Row]:
    ids = version.head.physical_ids
    if partition is not None:
        definitions = version.stored.info()["partition"]["definitions"]
        ids = tuple(one["id"] for one in definitions if one["name"]["O"] == partition)
    table, found = version.table, []
    state = made.state(ts)
    for physical_id in ids:
        own = state.filter(pl.col("key").bin.starts_with(record_prefix(physical_id)))
        keys, values = own["key"].to_arrow(), own["value"].to_arrow()
        if not len(keys):
            continue
        shown = shown_texts(table, keys, values)
        columns = {column.name: column for column in table.visible_columns}
        texts = {name: shown[column.id].to_pylist() for name, column in columns.items()}
        if not table.handle_columns:
            texts[ROWID] = [b"%d" % one for one in int_handles(keys)[0]]
        for at, (key, commit_ts) in enumerate(own.select("key", "commit_ts").iter_rows()):
            found.append(_Row(columns, {name: listed[at] for name, listed in texts.items()}, key, commit_ts))
    return found
