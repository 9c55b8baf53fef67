"""Runs a changefeed over a golden set into a real MariaDB, with the worker's own holder, and compares what is there."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pymysql
from prometheus_client import CollectorRegistry

from support.feed_run import StillView
from support.mariadb import MariaDb
from support.pull_world import World, committed
from support.waiting import ends, eventually
from tistream.clock import SystemClock
from tistream.decode.rows import decode_rows
from tistream.follow.tenant_view import TenantView
from tistream.model.ts import MAX_TS
from tistream.pool.versions.reader import StoreReader
from tistream.read.cursor import Scope
from tistream.read.scan import Budget
from tistream.restore.fingerprint import Fingerprint, of_rows, of_selected, select_list
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.quoting import quoted_name
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream.service.ids import random_id
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.core.progress import Fence, Revision
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.core.sync_points import SyncPoints
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.mysql.ddl_runner import LOCK_WAIT_S
from tistream_changefeed.sinks.mysql.mysql_feed import mysql_feed
from tistream_changefeed.sinks.mysql.mysql_sink import MySqlSink
from tistream_changefeed.sinks.mysql.target import MySqlServer, server_of

USER, PASSWORD = "feed", "feed-password"
CLOCK = SystemClock()
SMALL = Budget(rows=500, first_rows=500)
_OWN = ("information_schema", "mysql", "performance_schema", "sys")


def emptied(server: MariaDb) -> None:
    """Drop all databases but that of the fixture, and give the feed's user all rights."""
    for (name,) in server.run("SHOW DATABASES"):
        if name not in _OWN:
            server.run(f"DROP DATABASE {quoted_name(name)}")
    server.run(f"CREATE USER IF NOT EXISTS {USER}@127.0.0.1 IDENTIFIED BY '{PASSWORD}'")
    server.run(f"GRANT ALL ON *.* TO {USER}@127.0.0.1")


def uri_of(server: MariaDb, options: str = "") -> str:
    return f"mysql://{USER}:${{secret:password}}@127.0.0.1:{server.port}/{options}"


def target_of(server: MariaDb, options: str = "") -> MySqlServer:
    feed = mysql_feed(uri_of(server, options), {}, ())
    assert feed.config.mysql is not None
    return server_of(feed.config.mysql, "mysql").with_secrets({"password": PASSWORD})


@dataclass
class MySqlFeedRun:
    """A feed over a world: one holder after the other, each under a higher epoch."""

    world: World
    server: MariaDb
    document: Mapping[str, Any]
    options: str = ""
    slot_rows: int = 20
    window_bytes: int = 20_000
    budget: Budget = SMALL
    skips: Sequence[Skip] = ()
    start_ts: int | None = None  # None: the world's beginning
    shards: int = 1
    revision: int = 0
    sync_ms: int | None = None  # how often a sync point is marked
    lock_wait_s: int = LOCK_WAIT_S

    def __post_init__(self) -> None:
        self._epochs = itertools.count(1)

    def holder(self, shard: int = 0) -> Holder:
        """The next holder of a shard of the feed."""
        feed = mysql_feed(uri_of(self.server, self.options), self.document, self.skips)
        fence = Fence(1, next(self._epochs))
        start_ts = self.world.snapshot_ts if self.start_ts is None else self.start_ts
        revision, end_ts = Revision(self.revision), self.world.end_ts
        order = Order(self.world.tenant, "copy", shard, fence, start_ts, end_ts, revision, self.shards)
        view = cast(TenantView, StillView(self.world))
        target = feed.server.with_secrets({"password": PASSWORD})
        pipeline = feed.pipeline_of(order, {})
        if self.sync_ms is not None:  # a configuration has at least 30 seconds
            target = replace(target, sync_retention_ms=3_600_000)
            pipeline = replace(pipeline, sync_points=SyncPoints(self.sync_ms))
        return Holder(
            Shard(order, Random(1)),
            lambda: view,
            lambda: MySqlSink(target, order, CLOCK, random_id(), self.slot_rows, self.lock_wait_s),
            pipeline,
            CLOCK,
            self.budget,
            self.window_bytes,
            ChangefeedMetrics(CollectorRegistry()),
            (PASSWORD,),
            reader=StoreReader(self.world.objects),
        )


def join(thread: threading.Thread, holder: Holder) -> None:
    """Wait until a thread that runs a holder has ended. Fails if the holder writes nothing more for PATIENCE_S."""

    def written() -> tuple[int | None, int | None, int]:
        report = holder.report()
        return report.checkpoint_ts, report.reached_ts, report.rows

    try:
        ends(lambda: not thread.is_alive(), written)
    except AssertionError:
        print(holder.report())
        raise


def tables_of(world: World) -> Iterator[TableVersion]:
    """The base tables at the end of a world."""
    for version in world.source.tables_at(world.end_ts, Scope(world.tenant)):
        if version.head.kind == "table":
            yield version


def rows_at(name: str, version: TableVersion, ts: int) -> pl.DataFrame:
    """The rows of a table as of `ts` in a golden set."""
    rows, _ = committed(name)
    own = rows.filter(pl.col("table_id").is_in(version.table.physical_ids) & (pl.col("commit_ts") <= ts))
    return own.sort("commit_ts").group_by("key").last().filter(pl.col("op") == 1)


def wanted(name: str, version: TableVersion, columns: Sequence[Column] = ()) -> Fingerprint:
    """What SELECT shows of a table at the end of a golden set; `columns`: of these."""
    last = rows_at(name, version, MAX_TS)
    columns = columns or version.table.visible_columns
    found = decode_rows(
        version.table, columns, last["key"].to_arrow().cast(pa.binary()), last["value"].to_arrow().cast(pa.binary())
    )
    assert not found.errors
    return of_rows(found.batch, columns, Dialect.MARIADB)


def there(server: MariaDb, version: TableVersion, columns: Sequence[Column] = ()) -> Fingerprint:
    """What the server shows of the table."""
    columns = columns or version.table.visible_columns
    place = ".".join(map(quoted_name, version.name))
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for sql in ("SET NAMES utf8mb4", "SET time_zone = '+00:00'", f"SELECT {select_list(columns)} FROM {place}"):
            cursor.execute(sql)
        return of_selected(cursor.fetchall(), columns, Dialect.MARIADB)


def killed(server: MariaDb) -> int:
    """End every connection of the feed; how many there were."""
    numbers = server.run(f"SELECT id FROM information_schema.processlist WHERE user = '{USER}'")
    for (number,) in numbers:
        with suppress(pymysql.err.OperationalError):  # it has ended by itself
            server.run(f"KILL {number}")
    return len(numbers)


@contextmanager
def first_slot_held(server: MariaDb) -> Iterator[None]:
    """Run a `with` block in which the row of the first slot is locked, and a transaction of the feed waits for it."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        ((feed,),) = server.run("SELECT DISTINCT feed FROM tistream.progress")
        cursor.execute("SELECT * FROM tistream.progress WHERE feed = %s AND slot = 0 FOR UPDATE", (feed,))
        waiting = "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        eventually(lambda: server.run(waiting))
        yield
        connection.rollback()


def begun(server: MariaDb) -> list[str | None]:
    """The cursor in the row of each slot."""
    return [text for (text,) in server.run("SELECT begun FROM tistream.progress ORDER BY slot")]


def progress_of(server: MariaDb) -> dict[str, Any]:
    """The progress of the feed that the first slot has; empty before there is any."""
    if not server.run(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = 'tistream' AND table_name = 'progress'"
    ):
        return {}
    found = server.run("SELECT progress FROM tistream.progress WHERE slot = 0")
    return {} if not found or found[0][0] is None else json.loads(found[0][0])


def rows_written(server: MariaDb) -> int:
    """How many row events the progress counts; 0 before the sink is opened."""
    return int(progress_of(server).get("rows", 0))
