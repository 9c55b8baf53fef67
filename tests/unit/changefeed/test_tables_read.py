"""A feed reads the tables that its rules choose: of others nothing is fetched or decoded, and what it sends is the same
as if it had read everything."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from random import Random
from typing import cast

import polars as pl
import pytest
from prometheus_client import CollectorRegistry

from support import golden
from support.feed_run import StillView
from support.model_kafka import ModelKafka
from support.pull_world import World, committed
from tistream.clock import ManualClock
from tistream.follow.tenant_view import TenantView
from tistream.format.segment import SCHEMA
from tistream.model.ids import TenantKey
from tistream.model.ts import Window
from tistream.pool.segment_index import SegmentIndex
from tistream.pool.writer import write_segment
from tistream.read.chosen_scope import ChosenScope
from tistream.read.cursor import Position, Scope
from tistream.read.events import Ddls, Rows
from tistream.read.group_cache import GroupCache
from tistream.read.plan import GroupRef
from tistream.read.scan import Budget, Scan
from tistream.read.source import TenantSource
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.pipeline import FeedPipeline
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink

URI = "kafka://broker:9092/changes?protocol=canal-json&partition-num=2"
ONE_TABLE = ["shop.orders"]


@dataclass
class CountedGroups(GroupCache):
    """What is read of a pool: the row groups, in the order of the first read of each."""

    objects: MemoryObjectStore
    fetched: dict[tuple[str, int], GroupRef] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.objects, 64 << 20)

    def rows(self, group: GroupRef) -> object:
        self.fetched[group.segment.key, group.index] = group
        return super().rows(group)


@dataclass(frozen=True)
class Pool:
    """The set `everything` with each table in row groups of its own."""

    tenant: TenantKey
    low: int
    high: int
    groups: CountedGroups
    source: TenantSource
    index: SegmentIndex
    world: World

    def scan(self, pipeline: FeedPipeline, scope: Scope) -> Scan:
        return pipeline.scan(self.source, scope, Position(self.low), self.high, Budget())

    def whole_scan(self, pipeline: FeedPipeline, scope: Scope) -> Scan:
        """A scan that decodes all columns."""
        numbered, moving = pipeline.encoder.numbered, pipeline.splitting
        return Scan(self.source, scope, Position(self.low), self.high, Budget(), numbered=numbered, moving=moving)

    def ids(self) -> set[int]:
        """The tables of the row groups that were fetched."""
        return {group.info.table_id_min for group in self.groups.fetched.values()}


@pytest.fixture
def pool() -> Pool:
    loaded = golden.load("everything")
    rows, history = committed("everything")
    objects, index = MemoryObjectStore(), SegmentIndex()
    refs = []
    length = loaded.end_ts - loaded.snapshot_ts
    for number in range(4):
        low, high = (loaded.snapshot_ts + length * at // 4 for at in (number, number + 1))
        part = rows.filter((pl.col("commit_ts") > low) & (pl.col("commit_ts") <= high))
        table = part.sort("table_id", "commit_ts", "start_ts", "key").select(SCHEMA.names).to_arrow().cast(SCHEMA)
        key = layout.segment(loaded.tenant, 0, 1, f"{number:04x}", 0)
        body, ref = write_segment(table, key, packed_rows=1)
        objects.put(key, body)
        refs.append(ref)
    index.update(tuple(refs))
    groups = CountedGroups(objects)
    source = TenantSource(threading.RLock(), lambda: history, lambda: [index], groups, lambda: None)
    world = World(loaded.tenant, loaded.snapshot_ts, loaded.end_ts, objects, [index], history, source)
    return Pool(loaded.tenant, loaded.snapshot_ts, loaded.end_ts, groups, source, index, world)


def sent(pipeline: FeedPipeline, scan: Scan) -> list[tuple[int, bytes | None, bytes | None]]:
    """Partition, key and value of each message of rows that the feed sends of what a scan shows."""
    found = []
    for batch in scan.batches():
        messages = pipeline.rows(batch.events, lambda _: 2).messages
        found += [(one.partition, one.key, one.value) for one in messages.each()]
    return found


def chosen_of(pool: Pool, pipeline: FeedPipeline) -> ChosenScope:
    return ChosenScope(pool.tenant, choice=pipeline.tables)


def test_only_row_groups_of_tables_that_the_rules_choose_are_fetched_and_decoded(pool: Pool) -> None:
    pipeline = parsed(URI, {"filter": {"rules": ONE_TABLE}}).pipeline()
    decoded: set[tuple[str, str]] = set()
    ddls = 0
    for batch in pool.scan(pipeline, chosen_of(pool, pipeline)).batches():
        for one in batch.events.sets:
            assert isinstance(one, Rows | Ddls)
            if isinstance(one, Rows):
                decoded.add(one.version.name)
            else:
                ddls += len(one.events)
    assert decoded == {("shop", "orders")}
    orders = pool.source.table(pool.high, "shop", "orders")
    assert orders is not None
    assert pool.ids() == set(orders.head.physical_ids)
    every = [group for one in pool.index.overlapping(Window(pool.low, pool.high)) for group in one.row_groups]
    assert 0 < len(pool.groups.fetched) < len(every) / 10
    assert ddls == len(pool.source.ddl_events(Scope(pool.tenant), Window(pool.low, pool.high)).events)


@pytest.mark.parametrize(
    "rules",
    [ONE_TABLE, ["shop.k_*", "!shop.k_u*"], ["shop.old1", "shop.swap?"], ["types.*"], ["*.*"], ["none.*"]],
    ids=lambda rules: rules[0],
)
def test_what_is_sent_is_the_same_as_of_a_read_of_everything(pool: Pool, rules: list[str]) -> None:
    pipeline = parsed(URI, {"filter": {"rules": rules}}).pipeline()
    wanted = sent(pipeline, pool.scan(pipeline, Scope(pool.tenant)))
    assert bool(wanted) == (rules != ["none.*"])
    assert sent(pipeline, pool.scan(pipeline, chosen_of(pool, pipeline))) == wanted


SELECTORS = [
    {"matcher": ["shop.big"], "columns": ["*", "!pad"]},
    {"matcher": ["shop.busy"], "columns": ["*", "!s"]},
    {"matcher": ["shop.orders", "types.everything", "shop.k_auto"], "columns": ["id"]},
]
DECIDING = {
    "selectors alone": {},
    "an expression": {
        "filter": {"event-filters": [{"matcher": ["shop.orders"], "ignore-update-new-value-expr": "amount > 50"}]}
    },
    "a partition rule": {
        "sink": {"dispatchers": [{"matcher": ["shop.orders"], "partition": "columns", "columns": ["note"]}]}
    },
    "changes of other columns": {
        "filter": {"event-filters": [{"matcher": ["shop.b*"], "ignore-update-only-columns": ["pad", "s"]}]}
    },
}


@pytest.mark.parametrize("deciding", DECIDING.values(), ids=DECIDING)
def test_columns_that_a_feed_does_not_need_are_not_decoded_and_it_sends_the_same(
    pool: Pool, deciding: dict[str, dict[str, object]]
) -> None:
    """An update of such columns alone is sent, and an update that has changed nothing is not."""
    filter_ = {"rules": ["shop.big", "shop.busy", "shop.orders", "types.*", "shop.k_*"], **deciding.get("filter", {})}
    sink = {"column-selectors": SELECTORS, **deciding.get("sink", {})}
    pipeline = parsed(URI, {"filter": filter_, "sink": sink}).pipeline()
    scope = chosen_of(pool, pipeline)
    wanted = sent(pipeline, pool.whole_scan(pipeline, scope))
    assert wanted
    assert sent(pipeline, pool.scan(pipeline, scope)) == wanted
    left: dict[str, int] = {}
    for batch in pool.scan(pipeline, scope).batches():
        for one in batch.events.sets:
            if isinstance(one, Rows):
                left[one.version.table.name] = left.get(one.version.table.name, 0) + one.undecoded
    assert left["everything"] >= 51, "of 52 columns one is sent"
    assert left["orders"] > 0
    assert left["k_int"] == 0, "no selector includes it"
    assert (left["big"] > 0) == ("shop.b*" not in str(deciding)), "that filter looks at every column"


def test_feeds_with_equal_rules_share_what_they_have_read(pool: Pool) -> None:
    one, other = (parsed(URI, {"filter": {"rules": ["shop.*"]}}).pipeline() for _ in range(2))
    assert one.tables == other.tables
    first, second = ([*pool.scan(of, chosen_of(pool, of)).batches()] for of in (one, other))
    events = [(a.events, b.events) for a, b in zip(first, second, strict=True) if len(a.events)]
    assert events
    assert all(a is b for a, b in events), "they were made once"
    third = parsed(URI, {"filter": {"rules": ["shop.*"]}, "case-sensitive": True}).pipeline()
    assert third.tables != one.tables


def test_a_table_is_chosen_by_the_name_that_it_has_at_each_commit(pool: Pool) -> None:
    """Ids are kept while no table changes, and looked up anew for a window in which one does."""
    pipeline = parsed(URI, {"filter": {"rules": ["shop.swap1"]}}).pipeline()
    scope = chosen_of(pool, pipeline)
    ends = [pool.low + (pool.high - pool.low) * at // 50 for at in range(51)]
    for low, high in itertools.pairwise(ends):
        found = pool.source.physical_ids(scope, Window(low, high))
        tables = pool.source.tables_named(Scope(pool.tenant, "shop", "swap1"), Window(low, high))
        wanted = {one for table in tables for one in table.physical_ids}
        assert found is not None or not pool.source.tables_at(low, Scope(pool.tenant))
        assert found is None or set(found.tolist()) == wanted


def test_a_holder_fetches_nothing_of_other_tables(pool: Pool) -> None:
    clock = ManualClock(4_000_000_000_000)
    clients = ModelKafka(clock.monotonic_ms, Random(1)).clients(lambda _: None, lambda: True)
    order = Order(pool.tenant, "one", 0, Fence(1, 1), pool.low, pool.high)
    feed = parsed(URI, {"filter": {"rules": ONE_TABLE}})
    holder = Holder(
        Shard(order, Random(1)),
        lambda: cast(TenantView, StillView(pool.world)),
        lambda: KafkaSink(feed.target, order, clock, clients),
        feed.pipeline(),
        clock,
        Budget(),
        1 << 20,
        ChangefeedMetrics(CollectorRegistry()),
    )
    holder.step()
    assert holder.report().phase == "finished"
    assert holder.tally.undecoded == 0
    assert holder.report().rows > 0
    orders = pool.source.table(pool.high, "shop", "orders")
    assert orders is not None
    assert pool.ids() == set(orders.head.physical_ids)
