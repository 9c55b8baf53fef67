"""The metrics of the meta server."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from tistream.wire.bulk.changefeeds import State
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Store


class MetaMetrics:
    """All metrics of the meta server. Create it once for each process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.owner = Gauge("tistream_meta_owner", "1 while this process is the owner, else 0.", registry=registry)
        self.owner_rev = Gauge("tistream_meta_owner_rev", "Election number of this owner.", registry=registry)
        self.route_version = Gauge("tistream_meta_route_version", "Version of the routes.", registry=registry)
        self.tenants = Gauge("tistream_meta_tenants", "Tenants registered.", registry=registry)
        self.tasks = Gauge("tistream_meta_tasks", "Tasks of all tenants.", registry=registry)
        self.stores = Gauge(
            "tistream_meta_stores",
            "Stores by whether a dispatcher is assigned to read them.",
            ("read",),
            registry=registry,
        )
        self.nodes = Gauge("tistream_meta_nodes", "Nodes by what is known of them.", ("state",), registry=registry)
        self.refused = Counter(
            "tistream_meta_refused_total",
            "Messages that came too late: report (a newer one was received), start (a newer one has registered), "
            "write (another is the owner).",
            ("what",),
            registry=registry,
        )
        self.erased = Counter(
            "tistream_meta_erased_objects_total", "Objects deleted of tenants that were deleted.", registry=registry
        )
        self.announced = Counter("tistream_meta_announcements_total", "Files announced by writers.", registry=registry)

        self.over_stored = Gauge(
            "tistream_meta_tenants_over_stored_quota",
            "Tenants that store more than their quota says, as the owner knows.",
            registry=registry,
        )

        self.feeds = Gauge(
            "tistream_meta_changefeeds", "Changefeeds by state, as the owner knows.", ("state",), registry=registry
        )
        self.feed_shards = Gauge(
            "tistream_meta_changefeed_shards",
            "Shards of running changefeeds by whether a worker holds them, as the owner knows.",
            ("held",),
            registry=registry,
        )

        self.territories = Gauge(
            "tistream_meta_territories",
            "Territories by whether an agent that is not lost holds them, as the owner knows.",
            ("held",),
            registry=registry,
        )

    def follow_ownership(self, is_owner: Callable[[], bool]) -> None:
        """Set the function that is called at each scrape to find out whether this process is the owner."""
        self.owner.set_function(is_owner)

    def count_nodes(self, states: Iterable[NodeState]) -> None:
        """Set the gauge of nodes by state."""
        tally = Tally(states)
        for state in NodeState:
            self.nodes.labels(state.value).set(tally[state])

    def count_feeds(self, states: Iterable[State], held: Iterable[bool]) -> None:
        """Set the gauges of changefeeds. `held` says for each shard of a running feed whether a worker holds it."""
        states_tally, held_tally = Tally(states), Tally(held)
        for state in get_args(State):
            self.feeds.labels(state).set(states_tally[state])
        self.feed_shards.labels("yes").set(held_tally[True])
        self.feed_shards.labels("no").set(held_tally[False])

    def count_territories(self, held: Iterable[bool]) -> None:
        """Set the gauge of territories. `held` says for each territory whether an agent holds it."""
        tally = Tally(held)
        self.territories.labels("yes").set(tally[True])
        self.territories.labels("no").set(tally[False])

    def count_stores(self, stores: Collection[Store]) -> None:
        """Set the gauge of stores by whether a dispatcher is assigned to read them. Retired stores are left out."""
        there = [store for store in stores if store.retired_ts is None]
        read = sum(store.dispatcher_node is not None for store in there)
        self.stores.labels("yes").set(read)
        self.stores.labels("no").set(len(there) - read)
