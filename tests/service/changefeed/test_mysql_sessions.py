"""The sessions of a feed on a real MariaDB: dates that no calendar has, and a proxy in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from support.feed_tables import Change, Key, batch, column, version
from support.mariadb import MariaDb
from support.mysql_feed import CLOCK, USER, emptied, target_of
from support.renumbering_proxy import OFFSET, renumbering
from tistream.model.ids import TenantKey
from tistream.read.cursor import Position
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.table import DATE, ENUM
from tistream.service.ids import random_id
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.core.progress import Fence, Progress
from tistream_changefeed.core.shard import Order, Transaction
from tistream_changefeed.rows.net import net
from tistream_changefeed.rows.split import by_unique_index, split
from tistream_changefeed.rows.window import EventWindow
from tistream_changefeed.sinks.mysql import ddl_runner
from tistream_changefeed.sinks.mysql.connection import connected
from tistream_changefeed.sinks.mysql.mysql_sink import MySqlSink
from tistream_changefeed.sinks.mysql.payload import DdlMark, NetWindow
from tistream_changefeed.sinks.mysql.target import MySqlServer

BY_DAY = version(
    [column("day", DATE, flag=3), column("kind", ENUM, Elems=["x"]), column("v")],
    [Key("PRIMARY", ("day",), primary=True)],
)
Day = tuple[str, str, int]  # day, kind, v


@pytest.fixture
def server(mariadb: MariaDb) -> MariaDb:
    emptied(mariadb)
    return mariadb


@contextmanager
def opened(target: MySqlServer) -> Iterator[MySqlSink]:
    """An open sink of a feed."""
    sink = MySqlSink(target, Order(TenantKey("7", "acme"), "copy", 0, Fence(1, 1), 100), CLOCK, random_id())
    sink.open()
    try:
        yield sink
    finally:
        sink.close()


def written(ts: int, *changes: tuple[Day | None, Day | None]) -> Transaction:
    """The transaction with the changes of some rows."""

    def row(one: Day | None) -> dict[str, Any] | None:
        return None if one is None else dict(zip(("day", "kind", "v"), one, strict=True))

    found = [Change(row(old), row(new), ts, key=str((new or old or ("", "", 0))[2]).encode()) for old, new in changes]
    window = split(EventWindow((batch(BY_DAY, found),), ()), by_unique_index)
    return Transaction(NetWindow(net(window), ts), (), Progress(Position(ts), 0, Fence(1, 1)))


def days(server: MariaDb) -> Sequence[tuple[Any, ...]]:
    return server.run("SELECT CAST(day AS CHAR), kind, v FROM d.t ORDER BY v")


def test_dates_that_no_calendar_has_are_written_and_found_again_by_the_key(server: MariaDb) -> None:
    server.run("CREATE DATABASE d")
    server.run("CREATE TABLE d.t (day DATE PRIMARY KEY, kind ENUM('x'), v INT)")
    first, moved, zero = ("2024-02-28", "x", 1), ("2024-02-31", "x", 1), ("2024-04-31", "", 2)
    with opened(target_of(server, "?worker-count=2")) as sink:
        sink.write(written(11, (None, first), (None, zero)))
        sink.write(written(12, (first, moved)))
        assert days(server) == [moved, zero], "no row has the earlier key"
        sink.write(written(13, (moved, first), (zero, None)))
    assert days(server) == [first]


def test_a_ddl_that_waits_too_long_is_ended_though_a_proxy_has_other_ids_of_sessions(
    server: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ddl_runner, "LARGE_BYTES", 0)
    query, names = "alter table a modify v bigint", (("shop", "a"),)
    mark = DdlMark(DdlEvent(1 << 58, 1, 7, "shop", "a", query, "modify column", 1, names), (), names)
    server.run("CREATE DATABASE shop")
    server.run("CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
    server.run(f"REVOKE LOCK TABLES ON *.* FROM {USER}@127.0.0.1")  # so the check of the table lets it pass
    with renumbering(server.port) as port, closing(server.connect()) as user, user.cursor() as cursor:
        target = replace(target_of(server, "?worker-count=2"), port=port)
        with connected(target) as session:
            assert session._connection.thread_id() > OFFSET
        cursor.execute("INSERT INTO shop.a VALUES (2, 2)")  # a lock that the DDL needs before it copies rows
        with opened(target) as sink:
            runner = replace(sink._runner(), lock_wait_s=2)
            with pytest.raises(FeedFailed, match=r"job 7 .* waits for a session that uses table shop\.a") as refused:
                runner.run(mark)
        assert refused.value.failure.cause == "locked"
        assert f": {user.thread_id()} (root@" in refused.value.failure.reason
        server.run("INSERT INTO shop.a VALUES (1, 1)")  # others do not wait meanwhile
