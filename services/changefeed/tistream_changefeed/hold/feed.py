"""The interface of a feed that can run, whatever its sink. sinks/feeds.py builds one from a sink URI and a
configuration. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tistream.clock import Clock
from tistream.schema.visible import TableVersion
from tistream_changefeed.config.plan import FeedPlan
from tistream_changefeed.core.shard import Order
from tistream_changefeed.hold.sink import Pipeline, Sink


@dataclass(frozen=True, slots=True)
class Allowed:
    """The places that the operator of the workers allows: the hosts that feeds may write to, and the URLs below which
    they may put files."""

    hosts: Sequence[str]
    file_urls: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Looked:
    """The answer of a sink before a feed is created: how many partitions its topics have, if it has topics, and
    warnings."""

    topics: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()


class Feed(Protocol):
    """A feed that can run. Where `values` is an argument, it has the values of the feed's secrets by name."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the configuration, for the feed's user."""

    def check_allowed(self, allowed: Allowed) -> None:
        """Check that the operator allows the places that the feed writes to. Raises TargetNotAllowed if not."""

    def plan(self, tables: Sequence[TableVersion]) -> FeedPlan:
        """Plan the feed's topics, tables and columns for the tables that exist. Raises InvalidRequest if a table does
        not fit the configuration."""

    def look(self, planned: FeedPlan, values: Mapping[str, str], allowed: Allowed, answer_s: float) -> Looked:
        """Connect to the sink, and check that the feed could write to it. Creates nothing. `answer_s`: seconds to wait
        for each answer. Raises FeedFailed."""

    def sinks(self, order: Order, clock: Clock, values: Mapping[str, str], allowed: Allowed) -> Callable[[], Sink]:
        """Return a function that makes a sink for the shard in `order`; a holder calls it again after each failure."""

    def pipeline_of(self, order: Order, values: Mapping[str, str]) -> Pipeline:
        """Build the pipeline of the shard in `order`, which filters and encodes its events."""
