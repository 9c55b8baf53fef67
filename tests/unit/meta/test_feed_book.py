"""Changefeeds in the meta database: which worker holds which shard, which reports count, and what users see."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import update

from support.audit_world import ACME as PATH
from support.audit_world import World
from tistream.errors import AlreadyDiffers, InvalidRequest, LimitReached, QuotaReached, UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import (
    FEEDS_MAX,
    Applied,
    FeedReport,
    FeedShard,
    HeldBy,
    NewChangefeed,
    Phase,
    WorkerBeat,
)
from tistream.wire.bulk.feed_changes import ChangedFeed
from tistream.wire.limits import Limits
from tistream_meta.database import tables
from tistream_meta.decide.feed_policy import Feed, HeldShard, check_room
from tistream_meta.feeds.feed_book import FeedBook
from tistream_meta.routes.feed_routes import info_of

ACME, OTHER = TenantKey("7", "acme"), TenantKey("7", "other")
URI = "kafka://broker:9092/orders"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.tenant("acme")
    world.tenant("other")
    return world


@pytest.fixture
def book(world: World) -> FeedBook:
    return world.repository.part(FeedBook)


def wanted(name: str, start_ts: int = 100, *, given: bool = True, uri: str = URI) -> NewChangefeed:
    return NewChangefeed(changefeed_id=name, sink_uri=uri, start_ts=str(start_ts), start_given=given)


def report(held: tuple[Feed, HeldShard], phase: Phase = "running", checkpoint_ts: int | None = 150) -> FeedReport:
    feed, shard = held
    return FeedReport(
        shard=FeedShard(
            cluster_id=feed.tenant.cluster_id,
            tenant_id=feed.tenant.tenant_id,
            changefeed_id=feed.feed_id,
            shard=shard.shard,
            generation=feed.generation,
        ),
        epoch=shard.epoch,
        phase=phase,
        checkpoint_ts=checkpoint_ts,
        resolved_ts=200 << 18,
        error=None if phase == "running" else "orders-0: too large",
        held_by=[] if phase == "running" else [HeldBy(stage="sink", object="orders-0", reason="too large")],
    )


class Workers:
    """Workers that beat."""

    def __init__(self, book: FeedBook, world: World, *alive: str) -> None:
        self.book, self.world, self.alive = book, world, set(alive)
        self.instances = dict.fromkeys(alive, 1)

    def beat(self, node: str, *reports: FeedReport) -> list[tuple[Feed, HeldShard]]:
        beat = WorkerBeat(node_id=node, instance=str(self.instances[node]), reports=list(reports))
        return list(self.book.beat(beat, self.alive))

    def lease_ends(self) -> None:
        """As after ten seconds without a beat."""

        def body(connection: object) -> None:
            connection.execute(update(tables.feed_shards).values(lease_until_ms=1))  # type: ignore[attr-defined]

        self.world.repository._write(body)


def names(held: list[tuple[Feed, HeldShard]]) -> list[tuple[str, int]]:
    return [(feed.feed_id, shard.epoch) for feed, shard in held]


def test_a_feed_is_created_once(book: FeedBook) -> None:
    (first, shard), new = book.add(ACME, wanted("a"))
    assert (new, first.state, shard.epoch, shard.checkpoint_ts) == (True, "running", 0, 100)
    assert book.add(ACME, wanted("a")) == ((first, shard), False)
    assert book.add(ACME, wanted("a", 170, given=False)) == ((first, shard), False), "the default moves with the clock"
    for other in (wanted("a", 170), wanted("a", uri=f"{URI}-2")):
        with pytest.raises(AlreadyDiffers, match="exists already with another"):
            book.add(ACME, other)
    assert book.add(OTHER, wanted("a"))[1]
    with pytest.raises(UnknownName):
        book.add(TenantKey("7", "none"), wanted("a"))


def test_a_tenant_has_a_limited_number_of_feeds(book: FeedBook) -> None:
    (feed, _), _ = book.add(ACME, wanted("a"))
    check_room([feed] * (FEEDS_MAX - 1), ACME)
    with pytest.raises(LimitReached, match=f"{FEEDS_MAX} changefeeds"):
        check_room([feed] * FEEDS_MAX, ACME)


def test_a_quota_bounds_the_feeds_of_a_tenant_and_their_shards(book: FeedBook, world: World) -> None:
    world.server.tenant_rules.set_limits(ACME, Limits(changefeeds=3, changefeed_shards=4))
    book.add(ACME, wanted("a"))
    with pytest.raises(QuotaReached, match="5 shards of changefeeds, and its quota is 4") as refused:
        book.add(ACME, wanted("b").model_copy(update={"config": {"tistream": {"shards": 4}}}))
    assert refused.value.http_status == 429
    book.add(ACME, wanted("b"))
    book.add(ACME, wanted("c"))
    assert not book.add(ACME, wanted("c"))[1], "the same again"
    with pytest.raises(QuotaReached, match="4 changefeeds, and its quota is 3"):
        book.add(ACME, wanted("d"))
    book.remove(ACME, "a")
    assert book.add(ACME, wanted("d"))[1]
    assert book.add(OTHER, wanted("a"))[1]


def test_events_that_were_left_out_are_counted_in_every_topic(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    workers = Workers(book, world, "w1")

    def left_out(count: int) -> int:
        [held] = workers.beat("w1")
        workers.beat("w1", report(held, checkpoint_ts=held[1].checkpoint_ts + 1).model_copy(update={"skipped": count}))
        return info_of(*book.one(ACME, "a")).skipped_events

    assert (left_out(2), left_out(3)) == (2, 3)
    for uri, count, total in ((f"{URI}-2", 4, 7), (URI, 5, 9)):
        feed, _ = book.pause(ACME, "a")
        book.update(ACME, "a", ChangedFeed(revision=feed.revision, sink_uri=uri, end_ts=None, config={}))
        book.resume(ACME, "a")
        assert info_of(*book.one(ACME, "a")).skipped_events == total - count + (3 if uri == URI else 0)
        assert left_out(count) == total


def test_workers_share_the_feeds_and_each_holds_one_epoch(book: FeedBook, world: World) -> None:
    for name in "abcd":
        book.add(ACME, wanted(name))
    workers = Workers(book, world, "w1", "w2")
    first, second = workers.beat("w1"), workers.beat("w2")
    assert (names(first), names(second)) == ([("a", 1), ("b", 1)], [("c", 1), ("d", 1)])
    assert workers.beat("w1", *map(report, first)) == book_of(book, "w1"), "nothing moves"
    assert names(workers.beat("w2", *map(report, second))) == names(second)


def book_of(book: FeedBook, node: str) -> list[tuple[Feed, HeldShard]]:
    return [one for one in book.of_tenant(ACME) if one[1].node_id == node]


def test_the_feeds_of_a_lost_worker_are_taken_under_the_next_epoch(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    workers = Workers(book, world, "w1", "w2")
    old = workers.beat("w1")
    assert workers.beat("w2") == []
    workers.lease_ends()
    assert names(workers.beat("w2")) == [("a", 2)]
    assert workers.beat("w1", *(report(one, checkpoint_ts=999) for one in old)) == [], "its report does not count"
    assert book.one(ACME, "a")[1].checkpoint_ts == 100


def test_a_worker_that_starts_anew_takes_its_feeds_at_once(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    workers = Workers(book, world, "w1")
    assert names(workers.beat("w1")) == [("a", 1)]
    workers.instances["w1"] = 2
    assert names(workers.beat("w1")) == [("a", 2)]


def test_a_drained_worker_gives_its_feeds_away(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    workers = Workers(book, world, "w1", "w2")
    held = workers.beat("w1")
    workers.alive.discard("w1")
    assert workers.beat("w1", *map(report, held)) == []
    assert names(workers.beat("w2")) == [("a", 2)]


def test_the_checkpoint_never_goes_down_and_idle_beats_write_nothing(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    workers = Workers(book, world, "w1")
    held = workers.beat("w1")
    for checkpoint_ts, shown in ((None, 100), (150, 150), (140, 150), (160, 160)):
        held = workers.beat("w1", *(report(one, checkpoint_ts=checkpoint_ts) for one in held))
        assert book.one(ACME, "a")[1].checkpoint_ts == shown
    before = book.one(ACME, "a")
    writes = []
    inner = book._write
    book._write = lambda body: writes.append(body) or inner(body)  # type: ignore[func-returns-value,assignment,return-value]
    workers.beat("w1", *(report(one, checkpoint_ts=160) for one in held))
    assert (writes, book.one(ACME, "a")) == ([], before)


def test_a_feed_that_fails_stops_alone_and_is_resumed(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    book.add(ACME, wanted("b"))
    workers = Workers(book, world, "w1")
    first, second = workers.beat("w1")
    assert names(workers.beat("w1", report(first, "failed"), report(second))) == [("b", 1)]
    info = info_of(*book.one(ACME, "a"))
    assert (info.state, info.error, [one.object for one in info.held_by]) == (
        "failed",
        "orders-0: too large",
        ["orders-0"],
    )
    assert book.resume(ACME, "a")[0].state == "running"
    assert names(workers.beat("w1", report(second))) == [("a", 2), ("b", 1)]
    assert info_of(*book.one(ACME, "a")).error is None


def test_a_feed_that_has_read_nothing_has_no_lag(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    workers = Workers(book, world, "w1")
    [held] = workers.beat("w1")
    workers.beat("w1", report(held, "failed").model_copy(update={"resolved_ts": 0}))
    info = info_of(*book.one(ACME, "a"))
    assert (info.resolved_ts, info.lag_seconds) == (None, None)


def test_a_feed_that_tries_again_is_shown_so(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    workers = Workers(book, world, "w1")
    [held] = workers.beat("w1")
    workers.beat("w1", report(held, "retrying"))
    assert info_of(*book.one(ACME, "a")).state == "retrying"


def test_pause_and_removal_end_the_holder(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    workers = Workers(book, world, "w1")
    held = workers.beat("w1")
    for _ in range(2):
        assert book.pause(ACME, "a")[0].state == "paused"
    assert workers.beat("w1", *map(report, held)) == []
    book.resume(ACME, "a")
    again = workers.beat("w1", *map(report, held))
    assert names(again) == [("a", 2)]
    book.remove(ACME, "a")
    assert workers.beat("w1", *map(report, again)) == []
    with pytest.raises(UnknownName, match="no changefeed 'a'"):
        book.remove(ACME, "a")


def test_a_finished_feed_stays_finished(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    workers = Workers(book, world, "w1")
    [held] = workers.beat("w1")
    assert workers.beat("w1", report(held, "finished")) == []
    for call in (book.pause, book.resume):
        with pytest.raises(AlreadyDiffers, match="has reached its end_ts"):
            call(ACME, "a")


def test_the_report_of_an_earlier_feed_of_the_same_name_does_not_count(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    workers = Workers(book, world, "w1")
    [(feed, shard)] = workers.beat("w1")
    stale = report((feed, shard), checkpoint_ts=999)
    earlier = stale.shard.model_copy(update={"generation": stale.shard.generation - 1})
    stale = stale.model_copy(update={"shard": earlier})
    workers.beat("w1", stale)
    assert book.one(ACME, "a")[1].checkpoint_ts == 100


def test_calls_of_operators_are_in_the_audit_log(world: World) -> None:
    world.ask("POST", f"{PATH}/changefeeds", wanted("a").model_dump(mode="json"))
    for call in ("pause", "pause", "resume"):
        world.ask("POST", f"{PATH}/changefeeds/a/{call}")
    assert [one["changefeed_id"] for one in world.ask("GET", f"{PATH}/changefeeds")["changefeeds"]] == ["a"]
    world.ask("DELETE", f"{PATH}/changefeeds/a")
    entries = [one for one in world.entries() if one["subject"] == "changefeed a"]
    assert [one["action"] for one in entries] == [
        "CreateChangefeed",
        "PauseChangefeed",
        "ResumeChangefeed",
        "RemoveChangefeed",
    ]
    assert (entries[1]["was"], entries[1]["became"]) == ({"state": "running"}, {"state": "paused"})


def test_a_tenant_that_is_being_deleted_has_no_feed_run(book: FeedBook, world: World) -> None:
    book.add(ACME, wanted("a"))
    world.ask("PUT", f"{PATH}/deletion", {"confirm": "acme", "grace_ms": "86400000"})
    assert Workers(book, world, "w1").beat("w1") == []


def test_a_meta_server_that_is_not_the_owner_any_more_says_so_and_ends_its_ownership(world: World) -> None:
    def elected(connection: object) -> None:
        connection.execute(update(tables.owner).values(owner_rev=tables.owner.c.owner_rev + 1))  # type: ignore[attr-defined]

    world.repository._transactions.run(elected)
    answer = world.client.post(f"{PATH}/changefeeds", json=wanted("a").model_dump(mode="json"))
    assert (answer.status_code, "owner" in answer.text) == (503, True)
    assert not world.server.is_owner()


def test_a_feed_that_was_removed_with_its_progress_continues_when_it_is_created_again(book: FeedBook) -> None:
    asked = wanted("a").model_copy(update={"start_given": False})
    (before, _), _ = book.add(ACME, asked)
    book.beat(WorkerBeat(node_id="w1", instance="1", reports=[]), {"w1"})
    _, held = book.one(ACME, "a")
    book.remove(ACME, "a", keep_progress=True)
    with pytest.raises(InvalidRequest, match=r"had 1 shards, not 2: set tistream\.shards = 1"):
        book.add(ACME, asked.model_copy(update={"config": {"tistream": {"shards": 2}}}))
    (after, shard), new = book.add(ACME, asked.model_copy(update={"start_ts": "99999"}))
    assert new
    assert (after.generation, after.start_ts) == (before.generation, held.checkpoint_ts), (
        "the sink's progress is its own"
    )
    assert after.revision == before.revision + 1, "workers apply its configuration"
    assert shard.epoch == held.epoch == 1, "the next worker fences the one before"
    assert "continues" in (book.events(ACME, "a")[0].reason or "")
    book.remove(ACME, "a", keep_progress=True)
    (other, _), _ = book.add(ACME, wanted("a"))
    assert other.generation > before.generation, "with a start_ts it begins there"
    book.remove(ACME, "a")
    assert book.add(ACME, asked)[0][0].generation > before.generation, "nothing was kept"


def test_a_move_that_no_worker_has_applied_is_kept_with_the_progress(book: FeedBook) -> None:
    asked = wanted("a").model_copy(update={"start_given": False})
    (begun, _), _ = book.add(ACME, asked)
    book.pause(ACME, "a")
    moved, _ = book.resume(ACME, "a", begun.start_ts + 500)
    book.remove(ACME, "a", keep_progress=True)
    (after, _), _ = book.add(ACME, asked)
    assert after.moved == moved.moved, "the sink has not come there yet"
    assert after.revision == moved.revision + 1
    (held,) = book.beat(WorkerBeat(node_id="w1", instance="1", reports=[]), {"w1"})
    applied = Applied(revision=after.revision, from_ts=begun.start_ts, after_ts=begun.start_ts + 500)
    said = report(held, checkpoint_ts=applied.after_ts).model_copy(update={"applied": applied})
    book.beat(WorkerBeat(node_id="w1", instance="1", reports=[said]), {"w1"})
    book.remove(ACME, "a", keep_progress=True)
    assert book.add(ACME, asked)[0][0].moved is None, "a move that is in force is not repeated"
