"""Runs a changefeed over a golden set into Iceberg tables, with the worker's own holder, and reads them back."""

from __future__ import annotations

import base64
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
from prometheus_client import CollectorRegistry
from pyiceberg import types as it
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from support import golden
from support.feed_run import StillView
from support.pull_world import World, committed
from tistream.clock import Clock, SystemClock
from tistream.decode.rows import decode_rows
from tistream.follow.tenant_view import TenantView
from tistream.pool.versions.reader import StoreReader
from tistream.schema.visible import TableVersion
from tistream.service.ids import random_id
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.core.progress import FIRST, Fence, Revision
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.iceberg.lake import Commit, Lake
from tistream_changefeed.sinks.iceberg.lake_feed import LakeFeed, lake_feed
from tistream_changefeed.sinks.iceberg.lake_sink import LakeSink

Row = tuple[Any, ...]
_NO_DATES, _NO_DAY = "0000-", "-00"


class Killed(BaseException):
    """The worker is dead."""


class HastyClock(SystemClock):
    """A clock by which each window is due at once."""

    def monotonic_ms(self) -> int:
        self.passed_ms = getattr(self, "passed_ms", 0) + 101
        return self.passed_ms


class MortalLake(Lake):
    """The catalog of a worker that is killed before its commit with the number `last`."""

    left: int

    def commit(self, table: Table, change: Commit) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed
        super().commit(table, change)


@dataclass
class LakeRun:
    """A feed over a world into a catalog of SQLite and a directory: one holder after the other, each under a higher
    epoch."""

    world: World
    root: Path
    mode: str
    rules: Sequence[str]
    options: str = "flush-interval=1m"
    warehouse: str = ""
    places: Sequence[str] = ()
    clock: Clock = field(default_factory=SystemClock)
    window_bytes: int = 20_000
    catalog_uri: str = ""
    start_ts: int | None = None
    endless: bool = False  # the feed goes on after the world's end
    secrets: Mapping[str, str] = field(default_factory=dict)
    skips: Sequence[Skip] = ()
    revision: Revision = FIRST

    def __post_init__(self) -> None:
        self._epochs = itertools.count(1)
        self.warehouse = self.warehouse or f"file://{self.root}/warehouse"
        self.catalog_uri = self.catalog_uri or f"sqlite:///{self.root}/catalog.db"

    @property
    def uri(self) -> str:
        return (
            f"iceberg://lake?catalog-uri={self.catalog_uri}&warehouse={self.warehouse}&mode={self.mode}&{self.options}"
        )

    @property
    def document(self) -> dict[str, Any]:
        return {"filter": {"rules": list(self.rules)}}

    @property
    def feed(self) -> LakeFeed:
        return lake_feed(self.uri, self.document, self.skips)

    @property
    def allowed(self) -> Allowed:
        return Allowed(("127.0.0.1",), [*self.places, self.warehouse, f"file://{self.root}"])

    def holder(self, last: int | None = None) -> Holder:
        """The next holder of the feed. `last`: after so many commits it is killed."""
        feed = self.feed
        fence = Fence(1, next(self._epochs))
        start_ts = self.world.snapshot_ts if self.start_ts is None else self.start_ts
        end_ts = None if self.endless else self.world.end_ts
        order = Order(self.world.tenant, "lake", 0, fence, start_ts, end_ts, self.revision)
        view = cast(TenantView, StillView(self.world))
        allowed = self.allowed

        def new_sink() -> LakeSink:
            lake = feed.lake(self.secrets, allowed)
            if last is not None:
                lake.__class__, lake.left = MortalLake, last  # type: ignore[attr-defined]
            return LakeSink(feed.target, lake, order, self.clock, random_id)

        return Holder(
            Shard(order, Random(1)),
            lambda: view,
            new_sink,
            feed.pipeline_of(order, {}),
            self.clock,
            self.world.budget,
            self.window_bytes,
            ChangefeedMetrics(CollectorRegistry()),
            reader=StoreReader(self.world.objects),
        )

    def catalog(self, **properties: str) -> Catalog:
        """The catalog, as a reader opens it."""
        place = {"type": "sql", "uri": self.catalog_uri, "warehouse": self.warehouse}
        return load_catalog("lake", **{**place, **properties})

    def table(self, name: str, **properties: str) -> Table:
        """An Iceberg table, as a reader opens it."""
        return self.catalog(**properties).load_table(name)


def rows_of(table: Table, snapshot_id: int | None = None) -> Counter[Row]:
    """The rows of a table that is mirrored, without columns that TiDB does not have."""
    found = table.scan(snapshot_id=snapshot_id).to_arrow()
    names = [name for name in found.column_names if not name.startswith("_")]
    return Counter(tuple(plain(row[name]) for name in names) for row in found.select(names).to_pylist())


def counted(rows: list[dict[str, object]], like: Table) -> Counter[Row]:
    """Rows as the client and SQL show them, without columns that TiDB does not have."""
    names = [one.name for one in like.schema().fields if not one.name.startswith("_")]
    return Counter(tuple(plain(row[name]) for name in names) for row in rows)


def plain(value: Any) -> Any:
    """A value of a table as SELECT has it: times without a time zone, lists as tuples."""
    if isinstance(value, list):
        return tuple(value)
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def selected(name: str, database: str, table: str, ts: int, like: Table) -> Counter[Row]:
    """What SELECT showed of a table at a ts, as values of the types of `like`."""
    out: Counter[Row] = Counter()
    for commit in golden.expected(name, "rows"):
        if int(commit["commit_ts"]) > ts:
            break
        for one in commit["tables"]:
            if (one["database"], one["table"]) == (database, table):
                out.subtract(tuple(map(_hashable, row)) for row in one["removed"])
                out.update(tuple(map(_hashable, row)) for row in one["added"])
    kinds = [one.field_type for one in like.schema().fields if not one.name.startswith("_")]
    return Counter(
        {
            tuple(value_of(kind, text) for kind, text in zip(kinds, row, strict=True)): count
            for row, count in out.items()
            if count
        }
    )


def at_end(name: str, version: TableVersion, like: Table) -> Counter[Row]:
    """The rows of a table at the end of a golden set, decoded from their last values, as values of the types of
    `like`."""
    rows, _ = committed(name)
    own = rows.filter(pl.col("table_id").is_in(version.table.physical_ids))
    last = own.sort("commit_ts").group_by("key").last().filter(pl.col("op") == 1)
    keys, values = (last[one].to_arrow().cast(pa.binary()) for one in ("key", "value"))
    found = decode_rows(version.table, version.table.visible_columns, keys, values)
    kinds = [one.field_type for one in like.schema().fields if not one.name.startswith("_")]
    shown = zip(*(column.to_pylist() for column in found.batch.columns), strict=True)
    return Counter(tuple(value_of(kind, one) for kind, one in zip(kinds, row, strict=True)) for row in shown)


def _hashable(value: Any) -> Any:
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def _no_date(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text.startswith(_NO_DATES) or _NO_DAY in text[:10] else read(text)


_VALUES: dict[type[it.IcebergType], Callable[[Any], Any]] = {
    it.IntegerType: int,
    it.LongType: int,
    it.FloatType: lambda text: float(np.float32(text)),
    it.DoubleType: float,
    it.DecimalType: Decimal,
    it.DateType: _no_date(date.fromisoformat),
    it.TimestampType: _no_date(datetime.fromisoformat),
    it.TimestamptzType: _no_date(datetime.fromisoformat),
    it.ListType: lambda text: tuple(float(np.float32(one)) for one in json.loads(text)),
    it.StringType: lambda text: str(int.from_bytes(text, "big") if isinstance(text, bytes) else text),  # BIT is bytes
}


def value_of(kind: it.IcebergType, text: Any) -> Any:
    """What a value of SELECT is in a column of an Iceberg table."""
    return None if text is None else _VALUES.get(type(kind), lambda value: value)(text)


def run_to_end(holder: Holder) -> None:
    """Step until the feed has reached its end."""
    while holder.shard.phase != "finished":
        holder.step()
        assert holder.shard.failure is None, holder.shard.failure
    holder.stop()
    holder.run()


def resolved(table: Table) -> Iterator[tuple[int, int]]:
    """(snapshot id, resolved_ts) of the snapshots of a table, the oldest first."""
    for snapshot in table.metadata.snapshots:
        summary: Mapping[str, str] = snapshot.summary.additional_properties if snapshot.summary else {}
        yield snapshot.snapshot_id, int(summary["tistream.resolved_ts"])
