"""A feed into Kafka: implements hold.feed.Feed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.schema.visible import TableVersion
from tistream.storage.open import open_objects
from tistream_changefeed.config.plan import FeedPlan, plan
from tistream_changefeed.core.shard import Order
from tistream_changefeed.dispatch.ownership import Ownership
from tistream_changefeed.hold.feed import Allowed, Looked
from tistream_changefeed.hold.sink import Pipeline, Sink
from tistream_changefeed.registry.of_feed import registry_of
from tistream_changefeed.sinks.allowed import check_hosts, storage_url
from tistream_changefeed.sinks.claim_check import ClaimFiles
from tistream_changefeed.sinks.kafka.feed_settings import RunnableFeed
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink
from tistream_changefeed.sinks.kafka.topics import Topics


@dataclass(frozen=True, slots=True)
class KafkaFeed:
    """A feed into Kafka that can run. `feed` has its settings."""

    feed: RunnableFeed

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the configuration, for the feed's user."""
        return self.feed.warnings

    def check_allowed(self, allowed: Allowed) -> None:
        """Check that the operator allows the brokers, the schema registry, and the place of large messages. Raises
        TargetNotAllowed."""
        check_hosts(self.feed.hosts, allowed.hosts)
        if self.feed.claim_check is not None:
            storage_url(self.feed.claim_check, allowed.file_urls)

    def plan(self, tables: Sequence[TableVersion]) -> FeedPlan:
        """Plan the topics and columns for the tables that exist. Raises InvalidRequest."""
        return plan(self.feed.config, tables)

    def look(self, planned: FeedPlan, values: Mapping[str, str], allowed: Allowed, answer_s: float) -> Looked:  # noqa: ARG002
        """Read the partitions and message limits of the topics that exist, and warn of limits that are too low. Creates
        nothing. Raises FeedFailed."""
        topics = Topics(self.feed.target.with_secrets(values), "tistream-check", answer_s)
        found = topics.planned(planned.topics)
        small = topics.small(planned.topics)
        return Looked(
            found,
            [
                f"topic {topic!r} takes messages of at most {most} bytes, less than max-message-bytes: raise its "
                "max.message.bytes, because a larger message stops the feed"
                for topic, most in small.items()
            ],
        )

    def sinks(self, order: Order, clock: Clock, values: Mapping[str, str], allowed: Allowed) -> Callable[[], Sink]:
        """Return a function that makes a sink for the shard in `order`. `values`: the values of the feed's secrets by
        name."""
        target, claims, place = self.feed.target.with_secrets(values), None, self.feed.claim_check
        if place is not None:
            claims = ClaimFiles(open_objects(storage_url(place, allowed.file_urls)), place)
        return lambda: KafkaSink(target, order, clock, claims=claims)

    def pipeline_of(self, order: Order, values: Mapping[str, str]) -> Pipeline:
        """Build the pipeline of the shard in `order`. `values`: the values of the feed's secrets by name."""
        registry = registry_of(self.feed.config, values)
        owner = f"{order.tenant}/{order.feed_id}"
        return self.feed.pipeline(registry, owner, Ownership(order.shard, order.shards))
