"""A table whose event cannot be sent stops by name, and the others go on; after a person has acted it catches up, and
each event is there once and in the order of its table (docs/changefeeds.md, "Changing a feed")."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from support.effort import cases
from support.model_kafka import Faults, ModelKafka
from support.pull_world import World, golden_world
from support.sim.changefeed_judge import Feed, undisturbed
from support.sim.changefeed_worker import PlayedPool
from tistream.clock import ManualClock
from tistream.read.scan import Budget
from tistream.schema.visible import Name
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.core.progress import Fence, Revision
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.dispatch.ownership import WHOLE, Ownership
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink

FEED = Feed("all", "open-protocol", "changes", 1)
SMALL = f"{FEED.uri}&max-message-bytes=1700"
UNFIT = {"sink": {"dispatchers": [{"matcher": ["*.*"], "partition": "columns", "columns": ["nope"]}]}}
POISONED = ("types", "everything")
STEPS = 2_000


class StillPool(PlayedPool):
    """A pool that is resolved to its end, and does not wait."""

    def wait_fresh(self) -> None:
        return None

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        return self.ts > ts


@dataclass
class Run:
    """The holders of one feed, one after the other, and what they have written."""

    seed: int = 0
    faults: Faults = field(default_factory=Faults)
    uri: str = SMALL
    document: Mapping[str, Any] = field(default_factory=dict)
    skips: list[Skip] = field(default_factory=list)
    revision: int = 0
    epoch: int = 0
    part: Ownership = WHOLE

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.clock = ManualClock(4_000_000_000_000)
        self.world: World = golden_world("everything")
        self.kafka = ModelKafka(self.clock.monotonic_ms, self.rng, self.faults)
        self.pool = StillPool(self.world, self.world.end_ts)
        self.budget = Budget(rows=self.rng.choice((50, 400)), first_rows=50) if self.seed else self.world.budget

    def holder(self) -> Holder:
        """The next one, which fences the others."""
        self.epoch += 1
        fence, revision = Fence(1, self.epoch), Revision(self.revision)
        start, end, part = self.world.snapshot_ts, self.world.end_ts, self.part
        order = Order(self.world.tenant, "all", part.shard, fence, start, end, revision, part.shards)
        feed = parsed(self.uri, self.document, self.skips)
        clients = self.kafka.clients(lambda seconds: self.clock.advance(int(seconds * 1000) + 1), lambda: True)
        return Holder(
            Shard(order, self.rng),
            lambda: self.pool,
            lambda: KafkaSink(feed.target, order, self.clock, clients),
            feed.pipeline(ownership=self.part),
            self.clock,
            self.budget,
            self.rng.choice((2_000, 20_000, 1 << 20)) if self.seed else 1 << 20,
            ChangefeedMetrics(CollectorRegistry()),
        )

    def settle(self, deaths: float = 0.0) -> Holder:
        """Go on until all is read that can be: the feed has finished, has failed, or waits for stopped tables."""
        holder = self.holder()
        for _ in range(STEPS):
            if self.rng.random() < deaths:
                holder = self.holder()
            rest = holder.step()
            self.clock.advance(1 if rest is None else max(1, min(1_000, rest.until_ms - self.clock.monotonic_ms())))
            shard, acked = holder.shard, holder.shard.acked
            if shard.phase in ("finished", "failed"):
                return holder
            if shard.phase == "running" and acked is not None and acked.at.commit_ts >= self.world.end_ts:
                return holder
        raise AssertionError(holder.report())

    def changed(self, *, skip: Skip | None = None, document: Mapping[str, Any] | None = None) -> None:
        """What a person does: name an event, or change the configuration."""
        self.revision += 1
        self.skips += [] if skip is None else [skip]
        self.document = self.document if document is None else document

    def messages(self, partition: int = 0) -> list[tuple[dict[str, Any], bytes | None]]:
        """What a reader of the topic has, in order: the key's members, and the value."""
        self.clock.advance(1_000)  # the markers of the last transaction are written
        found = [record for _, record in self.kafka.committed(FEED.topic, partition)]
        return [(json.loads((one.key or b"")[16:]), one.value) for one in found]

    def check_resolved(self) -> int:
        """Check that no row or DDL stands behind a resolved message of its ts. Returns the highest one."""
        resolved = 0
        for key, _ in self.messages():
            assert key["ts"] > resolved, f"{key} stands behind resolved {resolved}"
            resolved = key["ts"] if key["t"] == 3 else resolved
        return resolved


def by_table(found: Sequence[tuple[dict[str, Any], bytes | None]]) -> dict[Name, list[tuple[int, bytes | None]]]:
    """Rows and DDLs of each table, in order."""
    out: dict[Name, list[tuple[int, bytes | None]]] = {}
    for key, value in found:
        if key["t"] != 3:
            out.setdefault((key["scm"], key.get("tbl", "")), []).append((key["ts"], value))
    return out


@functools.cache
def wanted() -> dict[Name, list[tuple[int, bytes | None]]]:
    """What the tables of an undisturbed feed have."""
    found, _ = undisturbed(golden_world("everything"), FEED)
    return by_table([(json.loads((one.key or b"")[16:]), one.value) for one in found[0]])


def named(reason: str) -> Skip:
    """The event that a reason names."""
    found = re.match(r"table (\S+), commit_ts (\d+), key ([0-9a-f]+): ", reason)
    assert found is not None, reason
    return Skip(commit_ts=int(found[2]), table=found[1], key=found[3], reason="too large for us")


def test_a_table_stops_by_name_and_the_others_go_on() -> None:
    run = Run()
    holder = run.settle()
    report, every, there = holder.report(), wanted(), by_table(run.messages())
    [stopped] = report.stopped
    poison = named(stopped.reason)
    assert (stopped.database, stopped.table, stopped.left) == (*POISONED, False)
    assert [(one.stage, one.object) for one in report.held_by] == [("encode", ".".join(POISONED))]
    assert int(stopped.checkpoint_ts) == poison.commit_ts - 1 == report.checkpoint_ts
    assert (report.phase, report.skipped) == ("running", 0)
    assert {name: found for name, found in there.items() if name != POISONED} == {
        name: found for name, found in every.items() if name != POISONED
    }
    assert there[POISONED] == [one for one in every[POISONED] if one[0] < poison.commit_ts]
    assert run.check_resolved() < poison.commit_ts
    seen = len(run.messages())
    again = run.settle().report()
    assert (again.stopped, again.checkpoint_ts) == (report.stopped, report.checkpoint_ts), "a new holder says the same"
    assert len(run.messages()) == seen


@pytest.mark.parametrize("seed", cases([1], [0]))  # 0: without faults
def test_skips_by_name_release_the_table_and_nothing_is_lost_or_repeated(seed: int) -> None:
    run = Run(seed, Faults(lost=0.01, unanswered=0.01, refused=0.01, doubtful=0.02) if seed else Faults())
    holder = run.settle(deaths=0.1 if seed else 0.0)
    while holder.shard.phase != "finished":
        [stopped] = holder.report().stopped
        run.changed(skip=named(stopped.reason))
        holder = run.settle(deaths=0.1 if seed else 0.0)
    assert len(run.skips) > 2
    report, every, there = holder.report(), wanted(), by_table(run.messages())
    left_out = {one.commit_ts for one in run.skips}
    kept = [one for one in every[POISONED] if one in there[POISONED]]
    assert there[POISONED] == kept, "in order, each once"
    assert {ts for ts, _ in every[POISONED]} - {ts for ts, _ in kept} <= left_out
    assert len(every[POISONED]) - len(kept) == report.skipped
    assert {**there, POISONED: None} == {**every, POISONED: None}
    assert (report.stopped, report.checkpoint_ts, run.check_resolved()) == ([], run.world.end_ts, run.world.end_ts)


@pytest.mark.parametrize("seed", cases([1], [0]))  # 0: without faults
def test_tables_that_a_rule_does_not_fit_wait_with_their_ddls_until_the_rule_is_changed(seed: int) -> None:
    faults = Faults(lost=0.01, unanswered=0.01, refused=0.01, doubtful=0.02) if seed else Faults()
    run = Run(seed, faults, FEED.uri, UNFIT)
    holder = run.settle(deaths=0.1 if seed else 0.0)
    stopped, every = holder.report().stopped, wanted()
    assert any("waits for" in one.reason for one in stopped), "a DDL waits for its table"
    there = by_table(run.messages())
    assert 0 < sum(map(len, there.values())) < sum(map(len, every.values()))
    assert run.check_resolved() <= min(int(one.checkpoint_ts) for one in stopped)
    run.changed(document={})
    holder = run.settle(deaths=0.1 if seed else 0.0)
    assert holder.shard.phase == "finished"
    assert by_table(run.messages()) == every
    assert run.check_resolved() == run.world.end_ts


def test_a_table_that_is_left_holds_nothing_and_is_told() -> None:
    document = {"tistream": {"tables": [{"matcher": [".".join(POISONED)], "on-table-error": "leave-table"}]}}
    run = Run(document=document)
    report = run.settle().report()
    [stopped] = report.stopped
    assert ((stopped.database, stopped.table), stopped.left) == (POISONED, True)
    assert (report.phase, report.held_by, report.checkpoint_ts) == ("finished", [], run.world.end_ts)
    assert run.check_resolved() == run.world.end_ts
    there, every = by_table(run.messages()), wanted()
    assert {**there, POISONED: None} == {**every, POISONED: None}
    assert run.settle().report().stopped == report.stopped, "a new holder leaves it too"


@pytest.mark.parametrize("own", [True, False], ids=["of the table", "of the feed"])
def test_a_feed_that_is_to_stop_stops(own: bool) -> None:
    document = {"tistream": {"on-table-error": "stop-feed"}}
    if own:
        document = {"tistream": {"tables": [{"matcher": ["types.*"], "on-table-error": "stop-feed"}]}}
    report = Run(document=document).settle().report()
    assert report.phase == "failed"
    assert [one.object for one in report.held_by] == [".".join(POISONED)]
    assert "skip the event by name" in (report.error or "")


def test_a_table_that_fails_stops_its_shard_where_a_feed_has_several() -> None:
    """The other shards would pass the table's DDLs without this one, so the feed stops as a whole."""
    no_ddl = [{"matcher": ["*.*"], "ignore-event": ["all ddl"]}]
    document = {"filter": {"rules": ["types.everything", "shop.orders"], "event-filters": no_ddl}}
    runs = [Run(document=document, part=Ownership(shard, 2)) for shard in range(2)]
    holders = [run.settle() for run in runs]
    phases = sorted(holder.shard.phase for holder in holders)
    assert phases == ["failed", "finished"], "the topic has one partition, which one of them writes"
    [failed] = [holder for holder in holders if holder.shard.phase == "failed"]
    report = failed.report()
    assert report.stopped == []
    assert report.error is not None
    assert ".".join(POISONED) in report.error
    assert [one.object for one in report.held_by] == [".".join(POISONED)]
    assert report.checkpoint_ts is not None
    [run] = [run for run, holder in zip(runs, holders, strict=True) if holder is failed]
    assert max((key["ts"] for key, _ in run.messages()), default=0) <= report.checkpoint_ts, "no event passes it"


class TwoShards(Run):
    """A feed of two shards, each of which writes one of two partitions. A step never waits: a holder that is told to
    stop leaves a barrier at which it would wait."""

    def settle_both(self) -> list[Holder]:
        """Let both go on in turn, until neither has anything more to do. A shard that has failed is left alone."""
        holders = []
        for shard in range(2):
            self.part = Ownership(shard, 2)
            holders.append(self.holder())
            holders[-1].stop()
        still = 0
        while still < 3:
            before = [holder.shard.acked for holder in holders]
            for holder in holders:
                if holder.shard.phase not in ("finished", "failed"):
                    holder.step()
                    self.clock.advance(1_100)
            still = still + 1 if [holder.shard.acked for holder in holders] == before else 0
        return holders

    def ddls(self, partition: int) -> list[int]:
        return [key["ts"] for key, _ in self.messages(partition) if key["t"] == 2]


def test_a_table_that_fails_beside_a_ddl_of_several_shards_holds_the_others_there_and_loses_nothing() -> None:
    two = Feed("all", "open-protocol", "changes", 2)
    wanted = undisturbed(golden_world("everything"), two)[0]
    run = TwoShards(uri=f"{two.uri}&max-message-bytes=1700")
    holders = run.settle_both()
    stops = 0
    while any(holder.shard.phase == "failed" for holder in holders):
        [failed] = [holder for holder in holders if holder.shard.phase == "failed"]
        [other] = [holder for holder in holders if holder is not failed]
        assert failed.shard.failure is not None
        poison = named(failed.shard.failure.reason)
        barrier = min(
            one.commit_ts
            for each in wanted.values()
            for one in each
            if one.barrier and one.commit_ts >= poison.commit_ts
        )
        assert other.shard.phase == "running"
        assert other.shard.acked is not None
        assert other.shard.acked.at.commit_ts <= barrier
        assert run.ddls(0) == run.ddls(1), "a DDL is in both or in none"
        assert max(run.ddls(0)) < barrier
        stops += 1
        run.changed(skip=poison)
        holders = run.settle_both()
    assert [holder.shard.phase for holder in holders] == ["finished", "finished"]
    assert stops > 1
    left_out = {one.commit_ts for one in run.skips}
    for partition, every in wanted.items():
        there = [(key["ts"], value) for key, value in run.messages(partition) if key["t"] != 3]
        sent = set(there)
        lost = {(one.commit_ts, one.value) for one in every} - sent
        assert there == [(one.commit_ts, one.value) for one in every if (one.commit_ts, one.value) in sent]
        assert {ts for ts, _ in lost} <= left_out
