"""The owner's metrics of changefeeds: their states, and shards that no worker holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import update

from support.audit_world import World
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import FeedReport, FeedShard, NewChangefeed, Phase, WorkerBeat
from tistream_meta.database import tables
from tistream_meta.feeds.feed_book import FeedBook
from tistream_meta.feeds.feed_watch import FeedCounts, FeedWatch
from tistream_meta.metrics import MetaMetrics

ACME = TenantKey("7", "acme")


class Watched:
    """A meta database with four feeds, one of them paused, and its owner's metrics."""

    def __init__(self, world: World) -> None:
        world.tenant("acme")
        self.world, self.owner = world, True
        self.book, self._registry = world.repository.part(FeedBook), CollectorRegistry()
        counts = world.repository.part(FeedCounts)
        self.watch = FeedWatch(counts, lambda: self.owner, MetaMetrics(self._registry))
        for name in ("a", "b", "c", "d"):
            wanted = NewChangefeed(changefeed_id=name, sink_uri="kafka://b:1/t", start_ts="100", start_given=True)
            self.book.add(ACME, wanted)
        self.book.pause(ACME, "d")

    def beat(self, phases: dict[str, Phase]) -> None:
        """A worker takes all running feeds, then reports these phases."""
        held = self.book.beat(WorkerBeat(node_id="w", instance="i", reports=[]), {"w"})
        reports = [
            FeedReport(
                shard=FeedShard(
                    cluster_id="7", tenant_id="acme", changefeed_id=feed.feed_id, shard=0, generation=feed.generation
                ),
                epoch=shard.epoch,
                phase=phases[feed.feed_id],
                checkpoint_ts=150,
                resolved_ts=200,
            )
            for feed, shard in held
        ]
        self.book.beat(WorkerBeat(node_id="w", instance="i", reports=reports), {"w"})

    def value(self, name: str, **labels: str) -> float | None:
        self.watch.step()
        return self._registry.get_sample_value(f"tistream_meta_{name}", labels)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(World(tmp_path))


def test_running_feeds_without_a_worker_are_not_held(watched: Watched) -> None:
    assert watched.value("changefeeds", state="running") == 3
    assert watched.value("changefeeds", state="paused") == 1
    assert watched.value("changefeed_shards", held="no") == 3


def test_states_are_those_that_users_see(watched: Watched) -> None:
    watched.beat({"a": "running", "b": "retrying", "c": "failed"})
    states = {state: watched.value("changefeeds", state=state) for state in ("running", "retrying", "failed", "paused")}
    assert states == {"running": 1, "retrying": 1, "failed": 1, "paused": 1}
    assert watched.value("changefeed_shards", held="yes") == 2
    assert watched.value("changefeed_shards", held="no") == 0


def test_a_shard_whose_lease_has_expired_is_not_held(watched: Watched) -> None:
    watched.beat({"a": "running", "b": "running", "c": "running"})
    watched.world.repository._write(
        lambda connection: connection.execute(update(tables.feed_shards).values(lease_until_ms=1))
    )
    assert watched.value("changefeed_shards", held="no") == 3


def test_a_server_that_is_not_the_owner_shows_none(watched: Watched) -> None:
    assert watched.value("changefeeds", state="running") == 3
    watched.owner = False
    assert watched.value("changefeeds", state="running") == 0
    assert watched.value("changefeed_shards", held="no") == 0
