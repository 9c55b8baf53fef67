"""A table of a feed into Iceberg whose event cannot be sent stops, and the others go on; once the cause has gone it
catches up, with its DDLs, though workers are killed: tables are what SELECT shows, and each change is there once."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from test_lake_versions import at

from support.feed_batches import golden_window
from support.feed_lake import HastyClock, Killed, LakeRun, counted, run_to_end, selected
from support.pull_world import World, golden_world
from tistream.model.ts import Window
from tistream.read.cursor import Scope
from tistream.read.events import Events
from tistream_changefeed.core.progress import Revision
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.hold.sink import Encoded, PartitionsOf
from tistream_changefeed.sinks.iceberg.lake_pipeline import LakePipeline
from tistream_changefeed.table_errors.table_failed import TableFailed
from tistream_client.lake.now import rows_now

ORDERS, DDL1 = ("shop", "orders"), ("shop", "ddl1")
STEPS = 500


@dataclass(frozen=True)
class Refusing(LakePipeline):
    """A pipeline that refuses the events of two tables from a commit_ts on."""

    since_ts: tuple[int, int] = (0, 0)

    def rows(self, events: Events, partitions: PartitionsOf) -> Encoded[RowEvents]:
        for one in LakePipeline.rows(self, events, partitions).messages.window.rows:
            since = dict(zip((ORDERS, DDL1), self.since_ts, strict=True)).get(one.version.name)
            refused = [] if since is None else [ts for ts in one.commit_ts.tolist() if ts >= since]
            if refused:
                raise TableFailed(one.version.name, min(refused), None, "it is refused")
        return LakePipeline.rows(self, events, partitions)


def refusing(holder: Holder, since_ts: tuple[int, int]) -> Holder:
    made = holder.pipeline
    assert isinstance(made, LakePipeline)
    holder.pipeline = Refusing(made.filter, made.errors, made.loads, made.mirrors, made.skips, since_ts)
    return holder


def stamps(name: tuple[str, str]) -> list[int]:
    found = {ts for one in golden_window(numbered=False).batches if one.version.name == name for ts in one.commit_ts}
    return sorted(map(int, found))


def until_stopped(holder: Holder, end_ts: int) -> None:
    """Work until all other tables have come to the end."""
    for _ in range(STEPS):
        holder.step()
        assert holder.shard.failure is None, holder.shard.failure
        acked = holder.shard.acked
        if acked is not None and acked.at.commit_ts >= end_ts:
            break
    assert {(one.database, one.table) for one in holder.report().stopped} >= {ORDERS, DDL1}
    holder.stop()
    holder.run()


@pytest.mark.parametrize("options", ["flush-interval=1m", "flush-interval=100ms&delta-share=30"])
def test_a_table_that_has_stopped_catches_up_with_its_ddls(tmp_path: Path, options: str) -> None:
    world = golden_world("everything")
    ddls = world.source.ddl_events(Scope(world.tenant), Window(world.snapshot_ts, world.end_ts)).events
    world = replace(world, end_ts=next(one.commit_ts for one in ddls if one.query == "truncate table ddl2") - 1)
    rules = ["shop.orders", "shop.ddl1", "shop.ddl2", "shop.items"]
    run = LakeRun(world, tmp_path, "both", rules, options, window_bytes=6_000, clock=HastyClock())
    orders = stamps(ORDERS)
    since = orders[len(orders) // 3], stamps(DDL1)[1]
    until_stopped(refusing(run.holder(), since), world.end_ts)
    items = [ts for ts in stamps(("shop", "items")) if ts <= world.end_ts]
    assert changes_of(run, "items") == Counter(events_of("items", world))
    assert int(run.table("shop.orders__changes").properties["tistream.resolved_ts"]) < since[0]
    assert items
    run.revision = Revision(1)
    for last in itertools.cycle((13, 14, 15)):
        try:
            run_to_end(run.holder(last))
        except Killed:
            continue
        break
    for name in ("orders", "items"):
        assert changes_of(run, name) == Counter(events_of(name, world))
        assert now(run, name) == selected("everything", "shop", name, world.end_ts, run.table(f"shop.{name}"))
    assert now(run, "ddl2") == at(world, "ddl2", world.end_ts, run.table("shop.ddl2"))


def now(run: LakeRun, name: str) -> Counter[tuple[object, ...]]:
    table = run.table(f"shop.{name}")
    delta = run.table(f"shop.{name}_delta") if table.properties.get("tistream.delta") else None
    found = table.scan().to_arrow() if delta is None else rows_now(table, delta)
    return counted(found.to_pylist(), table)


def changes_of(run: LakeRun, name: str) -> Counter[int]:
    """The number of changes by commit_ts."""
    return Counter(run.table(f"shop.{name}__changes").scan().to_arrow()["_commit_ts"].to_pylist())


def events_of(name: str, world: World) -> list[int]:
    batches = [one for one in golden_window(numbered=False).batches if one.version.name == ("shop", name)]
    return [int(ts) for one in batches for ts in one.commit_ts if ts <= world.end_ts]
