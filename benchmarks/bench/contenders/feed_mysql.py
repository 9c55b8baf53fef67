"""The holder of a changefeed into MariaDB, as a worker runs it, on a pool in memory; and PyMySQL's executemany."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql
from prometheus_client import CollectorRegistry

from bench.contenders.feed_kafka import CLOCK, Feeds, Pool, _finish
from bench.inputs.changes import TENANT
from bench.inputs.mixed_rows import committed
from bench.inputs.pulled_pool import SNAPSHOT_TS, source_of
from bench.inputs.version_runs import OBJECT_ROWS, put_run
from tistream.format.run import SCHEMA
from tistream.model.base_cover import Base
from tistream.model.span import WHOLE
from tistream.pool.versions.plan import IndexShard
from tistream.pool.versions.reader import StoreReader
from tistream.read.cursor import Scope
from tistream.read.source import TenantSource
from tistream.schema.tidb.create_table import Dialect, table_statements
from tistream.schema.tidb.quoting import quoted_name
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.mysql.mysql_feed import mysql_feed
from tistream_changefeed.sinks.mysql.mysql_sink import MySqlSink

AT_ONCE = 10_000
LOOK_S = 0.002


class FirstRows(Pool):
    """A pool whose rows are those of a base run as of its end."""

    def __init__(self, source: TenantSource, ts: int, objects: MemoryObjectStore, rows: pa.Table) -> None:
        super().__init__(source, ts)
        parts = [rows.slice(at, OBJECT_ROWS) for at in range(0, rows.num_rows, OBJECT_ROWS)]
        runs = tuple(put_run(objects, part, "base", number, None, ts) for number, part in enumerate(parts))
        self._shard = IndexShard(WHOLE, (), runs, ts, ts, ts, cover=(Base(WHOLE, ts),))

    def shards(self) -> list[IndexShard]:
        return [self._shard]


class TableLoads:
    """Writes the table of a pool into a server, anew in each call: `feed` by a changefeed, `executemany` the same rows
    by PyMySQL. With `snapshot=now` among the options the feed begins with the rows, which must be inserts. Gives the
    row events, or the rows. `lag`: the pool grows by `every_rows` each EVERY_S; gives the microseconds after which the
    server has committed 99 of 100 of these parts. The server's user needs no password."""

    def __init__(self, port: int, user: str, rows: int, updates: float, options: str, every_rows: int = 0) -> None:
        self._port, self._user, self._options = port, user, options
        self._pool = Feeds("", rows, updates, 1, "", every_rows=every_rows)
        self._count, self._loads = rows, "snapshot=now" in options
        self._rows: tuple[tuple[Any, ...], ...] = ()
        self._view: FirstRows | None = None
        ways: dict[str, Callable[[], int]] = {
            "empty": self._empty,
            "feed": self._feed,
            "executemany": self._executemany,
            "lag": self._lag,
        }
        self._ways = ways

    def __call__(self, way: str) -> int:
        return self._ways[way]()

    def _empty(self) -> int:
        """Keep the rows that are there, and create the table anew."""
        pool = self._pool
        source = source_of(pool._objects, pool._segments, pool._ends[-1], 1, pool._settings.cache_bytes)
        (version,) = source.tables_at(pool._ends[-1], Scope(TENANT))
        self._source = source
        if self._loads and self._view is None:
            rows = committed(self._count, SNAPSHOT_TS).select(SCHEMA.names)
            self._view = FirstRows(source, pool._ends[-1], pool._objects, rows)
        self._table = ".".join(map(quoted_name, version.name))
        self._columns = [column.name for column in version.table.visible_columns]
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted_name(version.name[0])}")
            if not self._rows and cursor.execute(f"SHOW TABLES FROM {quoted_name(version.name[0])}"):
                cursor.execute(f"SELECT {', '.join(map(quoted_name, self._columns))} FROM {self._table}")
                self._rows = tuple(cursor.fetchall())
            cursor.execute(f"DROP TABLE IF EXISTS {self._table}")
            cursor.execute(table_statements(version.stored.info(), version.name, Dialect.MARIADB).create)
        return 1

    def _feed(self) -> int:
        holder = self._holder(self._view or Pool(self._source, self._pool._ends[-1]))
        _finish(holder)
        return holder.report().rows

    def _lag(self) -> int:
        view = Pool(self._source, SNAPSHOT_TS)
        holder = self._holder(view)
        waits: list[tuple[int, float]] = []
        lags: list[float] = []

        def watch() -> None:
            """Note when the server has committed each part."""
            while len(lags) < len(self._pool._ends):
                acked = holder.shard.acked
                at_ts = 0 if acked is None else acked.at.low_ts
                while len(lags) < len(waits) and waits[len(lags)][0] <= at_ts:
                    lags.append(time.perf_counter() - waits[len(lags)][1])
                time.sleep(LOOK_S)

        threads = [threading.Thread(target=_finish, args=(holder,)), threading.Thread(target=watch)]
        for thread in threads:
            thread.start()
        for end in self._pool._ends:
            time.sleep(self._pool.EVERY_S)
            waits.append((end, time.perf_counter()))
            view.move(end)
        for thread in threads:
            thread.join()
        return int(np.quantile(lags, 0.99) * 1e6)

    def _holder(self, view: Pool) -> Holder:
        pool = self._pool
        feed = mysql_feed(f"mysql://{self._user}@127.0.0.1:{self._port}/{self._options}", {}, ())
        end_ts = pool._ends[-1]
        order = Order(TENANT, "bench", 0, Fence(CLOCK.now_ms(), 1), end_ts if self._loads else SNAPSHOT_TS, end_ts)
        return Holder(
            Shard(order, Random(1)),
            lambda: view,
            lambda: MySqlSink(feed.server, order, CLOCK, "bench"),
            feed.pipeline_of(order, {}),
            CLOCK,
            pool._settings.budget,
            pool._settings.window_bytes,
            ChangefeedMetrics(CollectorRegistry()),
            reader=StoreReader(pool._objects),
        )

    def _executemany(self) -> int:
        names = ", ".join(map(quoted_name, self._columns))
        sql = f"INSERT INTO {self._table} ({names}) VALUES ({', '.join(['%s'] * len(self._columns))})"
        with self._connect() as connection, connection.cursor() as cursor:
            for at in range(0, len(self._rows), AT_ONCE):
                cursor.executemany(sql, self._rows[at : at + AT_ONCE])
                connection.commit()
        return len(self._rows)

    def _connect(self) -> pymysql.Connection[Any]:
        return pymysql.connect(host="127.0.0.1", port=self._port, user=self._user, charset="utf8mb4")
