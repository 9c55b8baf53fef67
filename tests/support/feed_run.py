"""Runs a changefeed over a golden set into a real Kafka, with the worker's own holder, and reads its topics back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from prometheus_client import CollectorRegistry

from support.pull_world import World
from tistream.clock import SystemClock
from tistream.follow.tenant_view import TenantView
from tistream.model.span import KeySpan
from tistream.pool.versions.plan import IndexShard
from tistream.read.row_events import Barrier
from tistream.read.source import TenantSource
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.dispatch.ownership import WHOLE, Ownership
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.protocols.avro.encoder import SchemaIds
from tistream_changefeed.sinks.claim_check import ClaimFiles
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink

WINDOW_BYTES = 1 << 20
CLOCK = SystemClock()


@dataclass(frozen=True)
class StillView:
    """A tenant whose pool does not grow: a world as a holder follows it."""

    world: World

    @property
    def source(self) -> TenantSource:
        return self.world.source

    def resolved_ts(self) -> int:
        return self.world.end_ts

    def wait_fresh(self) -> None:
        """It is always fresh."""

    def check_known(self) -> None:
        """It is known."""

    def check_served(self, ts: int) -> None:
        assert ts >= self.world.snapshot_ts

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        return False

    def shards(self) -> list[IndexShard]:
        (index,) = self.world.indexes
        return [IndexShard(KeySpan(b"", b""), tuple(index.segments), logged_ts=0)]

    def replan(self) -> None:
        """Nothing disappears."""

    def record_barrier(self, barrier: Barrier) -> None:
        raise AssertionError(barrier)


def holder_of(
    world: World,
    uri: str,
    document: Mapping[str, Any],
    feed_id: str,
    registry: SchemaIds | None = None,
    claims: ClaimFiles | None = None,
    part: Ownership = WHOLE,
) -> Holder:
    """A holder of a feed's shard, from the world's beginning to its end."""
    feed = parsed(uri, document)
    fence, start, end = Fence(1, 1), world.snapshot_ts, world.end_ts
    order = Order(world.tenant, feed_id, part.shard, fence, start, end, shards=part.shards)
    view = cast(TenantView, StillView(world))
    return Holder(
        Shard(order, Random(1)),
        lambda: view,
        lambda: KafkaSink(feed.target, order, CLOCK, claims=claims),
        feed.pipeline(registry, feed_id, part),
        CLOCK,
        world.budget,
        WINDOW_BYTES,
        ChangefeedMetrics(CollectorRegistry()),
    )


def finish(holder: Holder) -> None:
    """Step until the feed has reached its end."""
    while holder.shard.phase != "finished":
        holder.step()
        assert holder.shard.failure is None, holder.shard.failure
    holder.stop()
    holder.run()
