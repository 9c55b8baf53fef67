"""Runs holders of a feed over a recorded tenant and a model of Kafka, one after the other, for tests of tables that
stop."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from support.model_kafka import Faults, ModelKafka
from support.pull_world import World, golden_world
from support.sim.changefeed_judge import Feed
from support.sim.changefeed_worker import PlayedPool
from tistream.clock import Clock, ManualClock
from tistream.read.scan import Budget
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import Name
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.core.outgoing import SentMessage
from tistream_changefeed.core.progress import Fence, Revision
from tistream_changefeed.core.shard import Order, Shard, Transaction
from tistream_changefeed.dispatch.ownership import WHOLE, Ownership
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.pipeline import FeedPipeline
from tistream_changefeed.sinks.kafka.clients import KafkaClients
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.table_errors.tables_refused import TablesRefused

FEED = Feed("all", "open-protocol", "changes", 1)
SMALL = f"{FEED.uri}&max-message-bytes=1700"
STEPS = 2_000


class StillPool(PlayedPool):
    """A pool that is resolved to its end, and does not wait."""

    def wait_fresh(self) -> None:
        return None

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        return self.ts > ts


@dataclass
class Run:
    """The holders of one feed, one after the other, and what they have written. `ends`: whether the feed has an end_ts,
    that of the recorded tenant. `sink` makes the sinks."""

    seed: int = 0
    faults: Faults = field(default_factory=Faults)
    uri: str = SMALL
    document: Mapping[str, Any] = field(default_factory=dict)
    skips: list[Skip] = field(default_factory=list)
    revision: int = 0
    epoch: int = 0
    part: Ownership = WHOLE
    ends: bool = True
    sink: Callable[[KafkaTarget, Order, Clock, KafkaClients], KafkaSink] = KafkaSink

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
        start, end, part = self.world.snapshot_ts, self.world.end_ts if self.ends else None, self.part
        order = Order(self.world.tenant, "all", part.shard, fence, start, end, revision, part.shards)
        feed = parsed(self.uri, self.document, self.skips)
        clients = self.kafka.clients(lambda seconds: self.clock.advance(int(seconds * 1000) + 1), lambda: True)
        return Holder(
            Shard(order, self.rng),
            lambda: self.pool,
            lambda: self.sink(feed.target, order, self.clock, clients),
            self.pipeline(),
            self.clock,
            self.budget,
            self.rng.choice((2_000, 20_000, 1 << 20)) if self.seed else 1 << 20,
            ChangefeedMetrics(CollectorRegistry()),
        )

    def pipeline(self) -> FeedPipeline:
        """What the next holder encodes by."""
        return parsed(self.uri, self.document, self.skips).pipeline(ownership=self.part)

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


def concerned(ddl: DdlEvent) -> Sequence[Name]:
    """The tables that a DDL of a feed without rules concerns."""
    return ddl.involved or ((ddl.database, ddl.table),)


def refusing(ddl: DdlEvent) -> type[KafkaSink]:
    """Sinks of which that of the first shard refuses a DDL, as a database does."""

    class Refuses(KafkaSink):
        def write(self, transaction: Transaction) -> bool:
            keys = [json.loads(one.key[16:]) for one in transaction.marks if isinstance(one, SentMessage) and one.key]
            if self._order.shard == 0 and any((key["ts"], key["t"]) == (ddl.commit_ts, 2) for key in keys):
                raise TablesRefused(concerned(ddl), "it is refused", of_ddl=True)
            return super().write(transaction)

    return Refuses


def by_table(found: Sequence[tuple[dict[str, Any], bytes | None]]) -> dict[Name, list[tuple[int, bytes | None]]]:
    """Rows and DDLs of each table, in order."""
    out: dict[Name, list[tuple[int, bytes | None]]] = {}
    for key, value in found:
        if key["t"] != 3:
            out.setdefault((key["scm"], key.get("tbl", "")), []).append((key["ts"], value))
    return out
