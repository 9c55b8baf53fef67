"""A feed with `shards-max` gets more shards when they send much, and fewer when they have sent little for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.audit_world import World
from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import FeedReport, FeedShard, NewChangefeed, WorkerBeat
from tistream.wire.bulk.feed_changes import ChangedFeed
from tistream.wire.limits import Limits
from tistream_meta.feeds import feed_shards
from tistream_meta.feeds.feed_book import FeedBook
from tistream_meta.feeds.feed_rows import Shown
from tistream_meta.feeds.shard_loads import LoadRules, ShardLoads

ACME = TenantKey("7", "acme")
URI = "kafka://broker:9092/orders"
AUTO = {"tistream": {"shards": 2, "shards-max": 6}}
RULES = LoadRules()
WINDOW_BYTES = RULES.split_bytes_s * RULES.window_ms // 1000  # above which a shard is too busy


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.tenant("acme")
    return world


@pytest.fixture
def book(world: World) -> FeedBook:
    return world.repository.part(FeedBook)


def add(book: FeedBook, config: dict[str, object]) -> list[Shown]:
    book.add(ACME, NewChangefeed(changefeed_id="a", sink_uri=URI, start_ts="100", start_given=True, config=config))
    return beat(book)


def beat(book: FeedBook, *reports: FeedReport) -> list[Shown]:
    return list(book.beat(WorkerBeat(node_id="w", instance="1", reports=list(reports)), {"w"}))


def report(held: Shown, sent: int, at: int | None = None) -> FeedReport:
    feed, shard = held
    return FeedReport(
        shard=FeedShard(
            cluster_id="7", tenant_id="acme", changefeed_id="a", shard=shard.shard, generation=feed.generation
        ),
        epoch=shard.epoch,
        phase="running" if at is None else "finished",
        checkpoint_ts=at or 300,
        reached_ts=at or 300,
        resolved_ts=800,
        bytes=sent,
    )


def after_windows(held: list[Shown], *sent: int) -> list[int]:
    """The numbers that are ordered after windows in which each shard sends so many bytes."""
    loads, total, found = ShardLoads(), 0, []
    for number, one in enumerate((0, *sent)):
        total += one
        reports = [report(shown, total) for shown in held]
        found += [shards for _, shards in loads.record([held[0][0]], reports, number * RULES.window_ms)]
    return found


def test_the_load_of_its_shards_decides_how_many_a_feed_has(book: FeedBook) -> None:
    held = add(book, AUTO)
    busy, calm, idle = (WINDOW_BYTES * part // 100 for part in (101, 99, 20))
    assert after_windows(held, busy) == [4]
    assert after_windows(held, calm, calm) == []
    assert after_windows(held, *[idle] * (RULES.merge_windows - 1), calm, idle) == [], "not for a moment"
    assert after_windows(held, *[idle] * RULES.merge_windows) == [1]


@pytest.mark.parametrize(("shards", "wanted"), [(4, [6]), (6, [])])
def test_a_feed_does_not_grow_beyond_its_highest_number(book: FeedBook, shards: int, wanted: list[int]) -> None:
    held = add(book, {"tistream": {"shards": shards, "shards-max": 6}})
    assert after_windows(held, 2 * WINDOW_BYTES) == wanted


def test_a_feed_with_a_fixed_number_keeps_it(book: FeedBook) -> None:
    assert after_windows(add(book, {"tistream": {"shards": 2}}), 1 << 40, *[0] * 20) == []


def test_a_running_feed_is_cut_by_its_load_and_keeps_what_it_has_got(book: FeedBook) -> None:
    held = add(book, AUTO)
    beat(book, *(report(one, 10) for one in held))
    assert book.resize(ACME, "a", 4)
    assert not book.resize(ACME, "a", 6), "it is being cut"
    beat(book, *(report(one, 10, 300) for one in beat(book)))
    feed, _ = book.one(ACME, "a")
    assert (feed.recut, feed_shards.shard_count(feed), len(beat(book))) == (None, 4, 4)
    assert feed.state == "running"
    book.pause(ACME, "a")
    for config, wanted in (({"tistream": {"shards": 2, "shards-max": 3}}, 3), ({"tistream": {"shards": 2}}, 2)):
        feed, _ = book.one(ACME, "a")
        book.update(ACME, "a", ChangedFeed(revision=feed.revision, sink_uri=URI, end_ts=None, config=config))
        assert feed_shards.target_shards(book.one(ACME, "a")[0]) == wanted


def test_a_feed_does_not_grow_beyond_the_quota_of_its_tenant(book: FeedBook, world: World) -> None:
    add(book, AUTO)
    world.server.tenant_rules.set_limits(ACME, Limits(changefeed_shards=3))
    assert not book.resize(ACME, "a", 4)
    assert not book.resize(ACME, "b", 4), "it was removed"
    assert book.resize(ACME, "a", 3)


def test_a_wrong_highest_number_is_refused(book: FeedBook) -> None:
    with pytest.raises(InvalidRequest, match=r"tistream\.shards-max is not a whole number from 1 to 64"):
        add(book, {"tistream": {"shards-max": 65}})
