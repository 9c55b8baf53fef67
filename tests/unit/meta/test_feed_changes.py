"""Changes of a changefeed in the meta database: what may be changed when, what its worker is told, and what is told of
it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from support.audit_world import ACME as PATH
from support.audit_world import World
from support.effort import FULL
from tistream.errors import AlreadyDiffers, InvalidRequest, LimitReached
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import (
    Applied,
    FeedReport,
    FeedShard,
    FeedWork,
    Move,
    NewChangefeed,
    Phase,
    Skip,
    StoppedTableInfo,
    WorkerBeat,
)
from tistream.wire.bulk.feed_changes import EVENTS_MAX, SKIPS_MAX, ChangedFeed
from tistream_meta.feeds import feed_events
from tistream_meta.feeds.feed_book import FeedBook

ACME = TenantKey("7", "acme")
URI, OTHER = "kafka://broker:9092/orders", "kafka://broker:9092/else"
ICEBERG = "iceberg://lake?catalog-uri=sqlite:////lake/c.db&warehouse=file:///lake"


class Feeds:
    """A tenant with the feed `a`, and a worker."""

    def __init__(self, world: World) -> None:
        self.world, self.book = world, world.repository.part(FeedBook)
        self.book.add(ACME, NewChangefeed(changefeed_id="a", sink_uri=URI, start_ts="100", start_given=True))
        self.work: list[FeedWork] = []

    def beat(
        self,
        phase: Phase = "running",
        at: int | None = None,
        applied: Applied | None = None,
        stopped: Sequence[StoppedTableInfo] = (),
    ) -> FeedWork | None:
        """A beat of the worker with the state of what it holds; what it is to hold then."""
        reports = [
            FeedReport(
                shard=FeedShard(
                    cluster_id="7", tenant_id="acme", changefeed_id="a", shard=0, generation=feed.generation
                ),
                epoch=shard.epoch,
                phase=phase,
                checkpoint_ts=at,
                resolved_ts=1_000,
                applied=applied,
                stopped=list(stopped),
                error="orders-0: too large" if phase == "failed" else None,
            )
            for feed, shard in [self.book.one(ACME, "a")]
        ]
        self.book.beat(WorkerBeat(node_id="w1", instance="1", reports=reports), {"w1"})
        told = self.world.ask(
            "POST", "/upcall/v1/changefeeds/beats", {"node_id": "w1", "instance": "1", "reports": []}
        )["shards"]
        return FeedWork.model_validate(told[0]) if told else None

    def state(self) -> tuple[str, int]:
        feed, shard = self.book.one(ACME, "a")
        return feed.state, shard.checkpoint_ts

    def change(self, revision: int = 0, uri: str = URI, end_ts: int | None = None, **config: object) -> None:
        wanted = ChangedFeed(
            revision=revision, sink_uri=uri, end_ts=None if end_ts is None else str(end_ts), config=config
        )
        self.book.update(ACME, "a", wanted)

    def events(self) -> list[str]:
        return [one.what for one in self.book.events(ACME, "a")]


@pytest.fixture
def feeds(tmp_path: Path) -> Feeds:
    world = World(tmp_path)
    world.tenant("acme")
    told = {"role": "changefeed", "url": "http://w1", "instance": "1", "start_epoch": 1}
    world.ask("PUT", "/upcall/v1/nodes/w1", told)
    return Feeds(world)


def test_a_feed_that_runs_is_not_changed(feeds: Feeds) -> None:
    with pytest.raises(AlreadyDiffers, match="pause it, update it"):
        feeds.change(end_ts=500)
    with pytest.raises(AlreadyDiffers, match="pause it, and then move its checkpoint"):
        feeds.book.resume(ACME, "a", 90)
    assert feeds.book.one(ACME, "a")[0].revision == 0


def test_a_change_goes_to_the_next_holder_and_the_ts_is_told_once(feeds: Feeds) -> None:
    first = feeds.beat()
    feeds.beat(at=150)
    feeds.book.pause(ACME, "a")
    feeds.change(sink={"protocol": "canal-json"})
    feeds.change(sink={"protocol": "canal-json"})  # the same call again
    assert feeds.state() == ("paused", 150)
    feeds.book.resume(ACME, "a")
    work = feeds.beat()
    assert first is not None
    assert work is not None
    assert (first.revision, work.revision, work.moved, work.config) == (
        0,
        1,
        None,
        {"sink": {"protocol": "canal-json"}},
    )
    assert (work.epoch, work.start_ts) == (first.epoch + 1, 100)
    applied = Applied(revision=1, from_ts=160, after_ts=160)
    for _ in range(2):
        feeds.beat(at=160, applied=applied)
    found = feeds.book.events(ACME, "a")
    assert [one.what for one in found] == ["applied", "held", "resumed", "updated", "paused", "held", "created"]
    assert (found[0].after_ts, found[0].reason, found[3].reason) == ("160", None, "config")
    assert feeds.book.one(ACME, "a")[0].applied == applied


def test_a_revision_is_above_those_that_the_sink_has_applied_before_the_database_was_restored(feeds: Feeds) -> None:
    feeds.beat()
    feeds.beat(at=150, applied=Applied(revision=4, from_ts=150, after_ts=150))
    feeds.book.pause(ACME, "a")
    feeds.change(end_ts=500)
    assert feeds.book.one(ACME, "a")[0].revision == 5
    feeds.book.resume(ACME, "a", 90)
    assert feeds.book.one(ACME, "a")[0].moved == Move(revision=6, ts=90)


def test_two_callers_do_not_overwrite_each_other(feeds: Feeds) -> None:
    feeds.book.pause(ACME, "a")
    feeds.change(sink={"protocol": "canal-json"})
    with pytest.raises(AlreadyDiffers, match="was changed by another request"):
        feeds.change(end_ts=500)
    feeds.change(revision=1, end_ts=500)
    assert feeds.book.one(ACME, "a")[0].revision == 2


@pytest.mark.parametrize(("ts", "shown", "says"), [(120, 120, "sent again"), (1 << 40, 150, "not in the sink")])
def test_a_checkpoint_is_moved_and_the_gap_or_the_replay_is_told(feeds: Feeds, ts: int, shown: int, says: str) -> None:
    feeds.beat()
    feeds.beat(at=150)
    feeds.book.pause(ACME, "a")
    for _ in range(2):
        feeds.book.resume(ACME, "a", ts)
        assert feeds.state() == ("running", shown), "a move forward shows when the sink has it"
    work = feeds.beat()
    assert work is not None
    assert (work.revision, work.moved) == (1, Move(revision=1, ts=ts))
    feeds.beat(at=ts, applied=Applied(revision=1, from_ts=150, after_ts=ts))
    assert feeds.state() == ("running", ts)
    found = feeds.book.events(ACME, "a")[0]
    assert (found.what, found.from_ts, found.after_ts) == ("applied", "150", str(ts))
    assert says in (found.reason or "")


def test_another_sink_begins_at_the_checkpoint_of_the_one_before(feeds: Feeds) -> None:
    feeds.beat()
    feeds.beat(at=150)
    feeds.book.pause(ACME, "a")
    feeds.book.resume(ACME, "a", 130)
    feeds.beat()
    feeds.book.pause(ACME, "a")
    feeds.change(revision=1, uri=OTHER)
    feeds.book.resume(ACME, "a")
    work = feeds.beat()
    assert work is not None
    assert (work.sink_uri, work.moved) == (OTHER, Move(revision=1, ts=130)), "the move is still due"
    feeds.beat(at=170, applied=Applied(revision=2, from_ts=130, after_ts=130))
    feeds.book.pause(ACME, "a")
    feeds.change(revision=2, uri=URI)
    feeds.book.resume(ACME, "a")
    work = feeds.beat()
    assert work is not None
    assert (work.sink_uri, work.moved, work.start_ts) == (URI, None, 170), "it was made, and is not made again"


def test_a_finished_feed_goes_on_to_a_later_end_or_sends_again(feeds: Feeds) -> None:
    feeds.book.pause(ACME, "a")
    feeds.change(end_ts=500)
    feeds.book.resume(ACME, "a")
    feeds.beat()
    feeds.beat("finished", at=500)
    with pytest.raises(AlreadyDiffers, match="update end_ts, or resume with a checkpoint_ts"):
        feeds.book.resume(ACME, "a")
    with pytest.raises(InvalidRequest, match="not above the checkpoint"):
        feeds.change(revision=1, end_ts=400)
    with pytest.raises(InvalidRequest, match="nothing would be sent"):
        feeds.book.resume(ACME, "a", 500)
    feeds.change(revision=1, end_ts=600)
    assert feeds.state() == ("paused", 500)
    feeds.book.resume(ACME, "a")
    feeds.beat()
    feeds.beat("finished", at=600)
    feeds.book.resume(ACME, "a", 550)
    assert feeds.state() == ("running", 550)


def test_events_have_their_callers_and_the_oldest_are_dropped(feeds: Feeds, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = EVENTS_MAX if FULL else 20
    monkeypatch.setattr(feed_events, "EVENTS_MAX", kept)
    for _ in range(kept // 2 + 2):
        feeds.world.ask("POST", f"{PATH}/changefeeds/a/pause", **{"tistream-actor": '{"name": "bo\\u1234b"}'})
        feeds.book.resume(ACME, "a")
    found = feeds.world.ask("GET", f"{PATH}/changefeeds/a/events")["events"]
    assert len(found) == kept
    assert [(one["what"], one["by"]) for one in found[:2]] == [("resumed", None), ("paused", "bo\u1234b")]
    assert [one["seq"] for one in found] == list(range(found[0]["seq"], found[-1]["seq"] - 1, -1))


def test_a_failure_is_an_event_with_its_reason(feeds: Feeds) -> None:
    feeds.beat()
    feeds.beat("failed", at=150)
    found = feeds.book.events(ACME, "a")[0]
    assert (found.what, found.reason, found.by) == ("failed", "orders-0: too large", None)


def test_a_table_that_stops_and_goes_on_is_told_and_shown(feeds: Feeds) -> None:
    feeds.beat()
    orders = StoppedTableInfo(database="shop", table="orders", checkpoint_ts="120", reason="too large", left=False)
    every = orders.model_copy(update={"database": "old", "table": "", "left": True})
    for stopped in ([orders], [orders], [orders, every]):
        feeds.beat(at=120, stopped=stopped)
    found = feeds.world.ask("GET", f"{PATH}/changefeeds/a")
    assert (found["state"], [one["table"] for one in found["stopped"]]) == ("running", ["orders", ""])
    feeds.beat(at=130, stopped=[every])
    events = [one for one in reversed(feeds.book.events(ACME, "a")) if "table" in one.what]
    told = [(one.what, one.reason, one.from_ts) for one in events]
    assert told == [
        ("table-stopped", "shop.orders (120): too large", None),
        ("table-stopped", "old.* (120, left): too large", None),
        ("table-goes-on", "shop.orders (120)", "120"),
    ]


def test_an_event_is_named_once_and_the_next_holder_is_told(feeds: Feeds) -> None:
    first = feeds.beat()
    feeds.beat("failed", at=150)
    skip = Skip(commit_ts=151, table="shop.orders", key="7480", reason="too large")
    for again in (skip, skip, skip.model_copy(update={"reason": "said again"})):
        feeds.book.skip(ACME, "a", again)
    ddl = Skip(commit_ts=152, table="shop.orders", ddl_job=7, reason="not for us")
    feeds.book.skip(ACME, "a", ddl)
    assert feeds.state()[0] == "failed", "a person resumes it"
    feeds.book.resume(ACME, "a")
    work = feeds.beat()
    assert first is not None
    assert work is not None
    assert (work.skips, work.epoch) == ([skip, ddl], first.epoch + 1)
    assert feeds.events()[:4] == ["held", "resumed", "skipped", "skipped"]
    assert feeds.book.events(ACME, "a")[3].reason == "shop.orders, commit_ts 151, key 7480: too large"


@pytest.mark.parametrize("uri", ["s3://bucket/f?protocol=csv", ICEBERG])
def test_a_feed_into_files_skips_no_event(feeds: Feeds, uri: str) -> None:
    feeds.book.add(ACME, NewChangefeed(changefeed_id="f", sink_uri=uri, start_ts="100", start_given=True))
    with pytest.raises(InvalidRequest, match="leave out its table"):
        feeds.book.skip(ACME, "f", Skip(commit_ts=151, table="shop.orders", key="7480", reason="too large"))


def test_the_checkpoint_of_a_feed_into_iceberg_is_never_moved_back(feeds: Feeds) -> None:
    feeds.book.add(ACME, NewChangefeed(changefeed_id="f", sink_uri=ICEBERG, start_ts="100", start_given=True))
    feeds.book.pause(ACME, "f")
    with pytest.raises(InvalidRequest, match="below 100, the checkpoint of changefeed f: an Iceberg"):
        feeds.book.resume(ACME, "f", 99)
    feeds.book.resume(ACME, "f", 150)
    assert feeds.book.one(ACME, "f")[0].state == "running"


def test_a_feed_skips_a_limited_number_of_events(feeds: Feeds) -> None:
    for number in range(SKIPS_MAX):
        feeds.book.skip(ACME, "a", Skip(commit_ts=number, table="a.b", key="00", reason="r"))
    with pytest.raises(LimitReached, match="leave the table out by a rule"):
        feeds.book.skip(ACME, "a", Skip(commit_ts=999, table="a.b", key="00", reason="r"))


def test_calls_that_change_a_feed_are_in_the_audit_log(feeds: Feeds) -> None:
    ask, path = feeds.world.ask, f"{PATH}/changefeeds/a"
    ask("POST", f"{path}/pause")
    ask("PUT", path, {"revision": 0, "sink_uri": OTHER, "end_ts": None, "config": {"case-sensitive": True}})
    ask("POST", f"{path}/resume", {"checkpoint_ts": "90"})
    skip = {"commit_ts": 91, "table": "a.b", "key": "00", "ddl_job": None, "reason": "r"}
    ask("POST", f"{path}/skip", skip)
    entries = [one for one in feeds.world.entries() if one["subject"] == "changefeed a"][-3:]
    assert [(one["action"], one["became"]) for one in entries] == [
        ("UpdateChangefeed", {"sink_uri": OTHER, "config": {"case-sensitive": True}}),
        ("ResumeChangefeed", {"state": "running", "checkpoint_ts": "90"}),
        ("SkipEvent", {"skips": [skip]}),
    ]
