"""Changefeeds with several shards in the meta database: workers share them, and a feed is what all of them are."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.audit_world import World
from tistream.errors import InvalidRequest, QuotaReached
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import (
    Applied,
    FeedReport,
    FeedShard,
    HeldBy,
    Move,
    NewChangefeed,
    Phase,
    StoppedTableInfo,
    WorkerBeat,
)
from tistream.wire.bulk.feed_changes import ChangedFeed
from tistream.wire.limits import Limits
from tistream_meta.feeds import feed_changes, feed_shards
from tistream_meta.feeds.feed_book import FeedBook
from tistream_meta.feeds.feed_rows import Shown
from tistream_meta.routes.feed_routes import info_of

ACME = TenantKey("7", "acme")
URI = "kafka://broker:9092/orders"
CONFIG = {"tistream": {"shards": 3}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.tenant("acme")
    return world


@pytest.fixture
def book(world: World) -> FeedBook:
    book = world.repository.part(FeedBook)
    book.add(
        ACME,
        NewChangefeed(changefeed_id="a", sink_uri=URI, start_ts="100", start_given=True, end_ts="900", config=CONFIG),
    )
    return book


def report(held: Shown, phase: Phase = "running", at: int | None = None, applied: Applied | None = None) -> FeedReport:
    feed, shard = held
    of = FeedShard(
        cluster_id="7",
        tenant_id="acme",
        changefeed_id="a",
        shard=shard.shard,
        generation=feed.generation,
    )
    waits = [HeldBy(stage="ddl", object="shard 1", reason="it is late")] if phase == "running" else []
    return FeedReport(
        shard=of,
        epoch=shard.epoch,
        phase=phase,
        checkpoint_ts=at,
        resolved_ts=800,
        rows=10,
        held_by=waits,
        error="orders-1: too large" if phase == "failed" else None,
        applied=applied,
    )


def beat(book: FeedBook, node: str, *reports: FeedReport) -> list[Shown]:
    return list(book.beat(WorkerBeat(node_id=node, instance="1", reports=list(reports)), {"w1", "w2"}))


def test_workers_share_the_shards_of_a_feed(book: FeedBook) -> None:
    first, second = beat(book, "w1"), beat(book, "w2")
    assert [[shard.shard for _, shard in held] for held in (first, second)] == [[0, 1], [2]]


def test_the_checkpoint_is_the_lowest_of_all_shards_of_the_feed_whether_they_report_or_not(book: FeedBook) -> None:
    first, second = beat(book, "w1"), beat(book, "w2")
    beat(book, "w1", *(report(one, at=500) for one in first))
    info = info_of(*book.one(ACME, "a"))
    assert (info.checkpoint_ts, info.rows) == ("100", 20), "shard 2 has not said anything"
    beat(book, "w2", report(second[0], at=300))
    info = info_of(*book.one(ACME, "a"))
    assert (info.checkpoint_ts, info.rows, info.state) == ("300", 30, "running")
    assert {one.object for one in info.held_by} == {"shard 1"}
    assert [shown[1].checkpoint_ts for shown in book.of_tenant(ACME)] == [300]


def test_a_feed_is_finished_with_its_last_shard(book: FeedBook) -> None:
    first, second = beat(book, "w1"), beat(book, "w2")
    beat(book, "w1", *(report(one, "finished", 900) for one in first))
    assert info_of(*book.one(ACME, "a")).state == "running"
    assert "finished" not in {event.what for event in book.events(ACME, "a")}
    beat(book, "w2", report(second[0], "finished", 900))
    info = info_of(*book.one(ACME, "a"))
    assert (info.state, info.checkpoint_ts) == ("finished", "900")
    assert [event.what for event in book.events(ACME, "a")].count("finished") == 1


def test_a_feed_has_failed_with_one_of_its_shards_and_all_go_on_together(book: FeedBook) -> None:
    first, second = beat(book, "w1"), beat(book, "w2")
    assert beat(book, "w2", report(second[0], "failed", 200)) == []
    info = info_of(*book.one(ACME, "a"))
    assert (info.state, info.error) == ("failed", "orders-1: too large")
    assert beat(book, "w1", *(report(one, at=500) for one in first)) == [], "none runs on"
    book.resume(ACME, "a")
    assert [shard.epoch for _, shard in beat(book, "w1")] == [2, 2]
    assert info_of(*book.one(ACME, "a")).state == "running"


def test_a_revision_is_in_force_when_it_is_in_every_shard(book: FeedBook) -> None:
    book.pause(ACME, "a")
    book.resume(ACME, "a", checkpoint_ts=400)
    first, second = beat(book, "w1"), beat(book, "w2")
    beat(book, "w1", *(report(one, at=400, applied=Applied(revision=1, from_ts=300, after_ts=400)) for one in first))
    assert book.one(ACME, "a")[0].applied is None
    beat(book, "w2", report(second[0], at=400, applied=Applied(revision=1, from_ts=250, after_ts=400)))
    assert book.one(ACME, "a")[0].applied == Applied(revision=1, from_ts=250, after_ts=400)
    beat(book, "w1", *(report(one, at=500, applied=Applied(revision=1, from_ts=300, after_ts=400)) for one in first))
    assert [event.what for event in book.events(ACME, "a")].count("applied") == 1


def recut(book: FeedBook, shards: int) -> None:
    book.pause(ACME, "a")
    feed, _ = book.one(ACME, "a")
    config = {"tistream": {"shards": shards}}
    book.update(ACME, "a", ChangedFeed(revision=feed.revision, sink_uri=URI, end_ts="900", config=config))
    book.resume(ACME, "a")


def stands(held: Shown, at: int, reached: int | None = None) -> FeedReport:
    return report(held, "finished", at).model_copy(update={"reached_ts": reached or at})


def test_a_feed_gets_other_shards_where_all_of_them_stand(book: FeedBook) -> None:
    beat(book, "w1", *(report(one, at=ts) for one, ts in zip(beat(book, "w1"), (400, 300), strict=True)))
    recut(book, 5)
    first, second = beat(book, "w1"), beat(book, "w2")
    feed, _ = book.one(ACME, "a")
    assert (feed_shards.shard_count(feed), feed_shards.end_ts(feed)) == (3, 100), (
        "no shard goes beyond the lowest of all"
    )
    beat(book, "w1", stands(first[0], 400), stands(first[1], 300, 301))
    assert feed_shards.shard_count(book.one(ACME, "a")[0]) == 3, "shard 2 has not reported"
    assert beat(book, "w2", stands(second[0], 100)) == []
    feed, _ = book.one(ACME, "a")
    assert (feed.state, feed_shards.shard_count(feed), feed_shards.end_ts(feed)) == ("running", 3, 400)
    first, second = beat(book, "w1"), beat(book, "w2")
    beat(book, "w1", *(stands(one, 400) for one in first))
    beat(book, "w2", stands(second[0], 400))
    feed, shown = book.one(ACME, "a")
    assert (feed.recut, feed_shards.shard_count(feed), feed_shards.end_ts(feed)) == (None, 5, 900)
    assert (feed.moved, feed.begin_ts, shown.checkpoint_ts) == (Move(revision=2, ts=400, cut=True), 400, 400)
    held = [*beat(book, "w1"), *beat(book, "w2")]
    assert [shard.shard for _, shard in held] == [0, 1, 2, 3, 4]
    assert {shard.epoch for _, shard in held} == {4}, "above every epoch that the feed had"
    [event] = [one for one in book.events(ACME, "a") if one.what == "cut"]
    assert (event.after_ts, event.reason) == ("400", "3 shards have stopped at one ts, and 5 continue")
    assert "finished" not in {one.what for one in book.events(ACME, "a")}


def test_a_feed_is_not_cut_within_a_transaction(book: FeedBook) -> None:
    recut(book, 1)
    held = [*beat(book, "w1"), *beat(book, "w2")]
    beat(book, "w1", *(stands(one, 300, 301) for one in held[:2]))
    beat(book, "w2", stands(held[2], 300, 301))
    feed, _ = book.one(ACME, "a")
    assert (feed_shards.shard_count(feed), feed_shards.end_ts(feed)) == (3, 301), "the rest of it is sent first"


def test_rows_of_shards_that_a_cut_has_ended_still_count(book: FeedBook) -> None:
    recut(book, 1)
    held = [*beat(book, "w1"), *beat(book, "w2")]
    beat(book, "w1", *(stands(one, 300) for one in held[:2]))
    beat(book, "w2", stands(held[2], 300))
    [one] = beat(book, "w1")
    beat(book, "w1", report(one, at=400).model_copy(update={"rows": 15}))
    assert info_of(*book.one(ACME, "a")).rows == 35, "15 of shard 0, which has its earlier 10, and 10 of each other"


def test_a_cut_obeys_the_quota_of_shards(book: FeedBook, world: World) -> None:
    world.server.tenant_rules.set_limits(ACME, Limits(changefeed_shards=4))
    recut(book, 4)
    book.pause(ACME, "a")
    with pytest.raises(QuotaReached, match="5 shards of changefeeds"):
        recut(book, 5)


def test_a_cut_is_called_off_by_the_number_that_the_feed_has(book: FeedBook) -> None:
    recut(book, 1)
    recut(book, 3)
    feed, _ = book.one(ACME, "a")
    assert (feed.recut, feed_shards.shard_count(feed), feed.moved) == (None, 3, None)
    recut(book, 2)
    feed, _ = book.one(ACME, "a")
    beat(book, "w1", *(stands(one, 900) for one in beat(book, "w1")))
    assert feed_shards.end_ts(feed) == 100


@pytest.mark.parametrize("wrong", [0, 65, "x", "", -1, None, [2], "1" * 400])
def test_a_wrong_number_of_shards_is_refused(book: FeedBook, wrong: object) -> None:
    with pytest.raises(InvalidRequest, match=r"tistream\.shards"):
        book.add(
            ACME,
            NewChangefeed(
                changefeed_id="b",
                sink_uri=URI,
                start_ts="100",
                start_given=True,
                config={"tistream": {"shards": wrong}},
            ),
        )


def test_a_worker_is_told_what_the_sink_is_known_to_have(book: FeedBook) -> None:
    held = beat(book, "w1")
    assert [feed_shards.known_ts(*one) for one in held] == [None, None], "the sink may be empty"
    held = beat(book, "w1", *(report(one, at=300) for one in held))
    assert [feed_shards.known_ts(*one) for one in held] == [300, 300]
    book.pause(ACME, "a")
    book.resume(ACME, "a", checkpoint_ts=400)
    held = beat(book, "w1")
    assert [feed_shards.known_ts(*one) for one in held] == [None, None], "a move is due, which accepts an empty sink"
    book.pause(ACME, "a")
    feed, shown = book.one(ACME, "a")
    assert shown.checkpoint_ts == 100, "shard 2 has not begun"
    other = ChangedFeed(revision=feed.revision, sink_uri=f"{URI}-2", end_ts="900", config=CONFIG)
    book.update(ACME, "a", other)
    book.resume(ACME, "a")
    assert [feed_shards.known_ts(*one) for one in beat(book, "w1")] == [None, None], "another sink may be empty"


def with_stopped(held: Shown, *tables: tuple[str, int, str], left: bool = False) -> FeedReport:
    """The report of a shard in which these tables have stopped, with their checkpoints and reasons."""
    stopped = [
        StoppedTableInfo(database="shop", table=table, checkpoint_ts=str(ts), reason=reason, left=left)
        for table, ts, reason in tables
    ]
    waits = [HeldBy(stage="encode", object=f"shop.{table}", reason=reason) for table, _, reason in tables]
    return report(held, at=150).model_copy(update={"stopped": stopped, "held_by": waits})


def test_a_table_that_has_stopped_in_several_shards_is_told_once_for_each_reason(book: FeedBook) -> None:
    held = [*beat(book, "w1"), *beat(book, "w2")]
    beat(book, "w1", with_stopped(held[0], ("a", 150, "large")), with_stopped(held[1], ("a", 140, "large")))
    beat(book, "w2", with_stopped(held[2], ("a", 160, "larger")))
    info = info_of(*book.one(ACME, "a"))
    assert [(one.checkpoint_ts, one.reason) for one in info.stopped] == [("140", "large"), ("160", "larger")]
    assert [one.reason for one in info.held_by] == ["large", "larger"]
    told = [one.reason for one in book.events(ACME, "a") if one.what == "table-stopped"]
    assert sorted(told) == ["shop.a (150): large", "shop.a (160): larger"]
    beat(book, "w1", with_stopped(held[0]), with_stopped(held[1]))
    assert [one for one in book.events(ACME, "a") if one.what == "table-goes-on"] == [], "not in all shards"
    beat(book, "w2", with_stopped(held[2]))
    assert [one.reason for one in book.events(ACME, "a") if one.what == "table-goes-on"] == ["shop.a (160)"]


def test_all_shards_retry_a_stopped_table_under_another_revision_once_the_feed_is_resumed(book: FeedBook) -> None:
    held = [*beat(book, "w1"), *beat(book, "w2")]
    beat(book, "w1", with_stopped(held[0], ("a", 150, "large")), with_stopped(held[1], ("b", 1, "left"), left=True))
    assert book.resume(ACME, "a")[0].revision == 0, "it runs"
    assert [book.pause(ACME, "a")[0].revision for _ in range(3)] == [1, 1, 1]
    assert [one.what for one in book.events(ACME, "a")].count("paused") == 1
    assert [book.resume(ACME, "a")[0].revision for _ in range(2)] == [1, 1]
    assert [one.what for one in book.events(ACME, "a")][:2] == ["resumed", "paused"]
    held = [*beat(book, "w1"), *beat(book, "w2")]
    beat(book, "w1", with_stopped(held[0]))
    book.pause(ACME, "a")
    assert book.resume(ACME, "a")[0].revision == 1, "a table that is left waits for a change"


# Attack: a feed whose tables have stopped is paused again and again, and the reports that say so are still there
def test_a_paused_feed_is_not_changed_by_another_pause(book: FeedBook) -> None:
    held = [*beat(book, "w1"), *beat(book, "w2")]
    beat(book, "w1", with_stopped(held[0], ("a", 150, "large")))
    feed, shard = book.one(ACME, "a")
    once = feed_changes.paused(feed, shard)
    assert (once.state, once.revision) == ("paused", 1)
    assert feed_changes.paused(once, shard) == once
