"""Counts the changefeeds of the platform for the owner's metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from sqlalchemy import ColumnElement, Connection, and_, func, select

from tistream.wire.bulk.changefeeds import Phase, State, StoredState
from tistream_meta.database import tables
from tistream_meta.database.audit_log import Write
from tistream_meta.database.transactions import Transactions
from tistream_meta.decide.feed_policy import shown_state
from tistream_meta.metrics import MetaMetrics

WATCH_MS = 5_000
_FEEDS, _SHARDS = tables.changefeeds, tables.feed_shards


class FeedCounts:
    """Reads the states of the changefeeds of all tenants. Each call is a transaction of its own, and raises the errors
    of the repository's calls."""

    def __init__(self, transactions: Transactions, _: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._now_ms = transactions, now_ms

    def read(self) -> tuple[Sequence[State], Sequence[bool]]:
        """Returns (the state of each feed; for each shard of a running feed, whether a worker holds it)."""

        def body(connection: Connection) -> tuple[Sequence[State], Sequence[bool]]:
            keys = [_FEEDS.c[name] == _SHARDS.c[name] for name in ("cluster_id", "tenant_id", "changefeed_id")]
            held = and_(_SHARDS.c.node_id.is_not(None), _SHARDS.c.lease_until_ms >= self._now_ms)
            rows = connection.execute(
                select(*_FEEDS.primary_key, _FEEDS.c.state, _SHARDS.c.report, held.label("held"))
                .select_from(_FEEDS.join(_SHARDS, and_(*keys)))
                .order_by(*_FEEDS.primary_key, _SHARDS.c.shard)
            ).all()
            stored: dict[tuple[str, ...], StoredState] = {}
            phases: dict[tuple[str, ...], set[Phase | None]] = {}
            for row in rows:
                key = (row.cluster_id, row.tenant_id, row.changefeed_id)
                stored[key] = row.state
                phase = None if row.report is None else json.loads(row.report)["phase"]
                phases.setdefault(key, set()).add(phase)
            states = [
                shown_state(state, "retrying" if "retrying" in phases[key] else None) for key, state in stored.items()
            ]
            return states, [bool(row.held) for row in rows if row.state == "running"]

        return self._transactions.run(body)

    def held(self) -> dict[str, int]:
        """The number of shards that each worker holds, by its node id."""

        def body(connection: Connection) -> dict[str, int]:
            rows = connection.execute(
                select(_SHARDS.c.node_id, func.count().label("shards"))
                .where(_SHARDS.c.node_id.is_not(None), _SHARDS.c.lease_until_ms >= self._now_ms)
                .group_by(_SHARDS.c.node_id)
            )
            return {row.node_id: row.shards for row in rows}

        return self._transactions.run(body)


class FeedWatch:
    """Sets the owner's metrics of changefeeds. A meta server that is not the owner sets them to 0."""

    def __init__(self, counts: FeedCounts, is_owner: Callable[[], bool], metrics: MetaMetrics) -> None:
        self._counts, self._is_owner, self._metrics = counts, is_owner, metrics

    def step(self) -> None:
        """Loop body: read the counts and set the metrics. Raises Unavailable."""
        self._metrics.count_feeds(*(self._counts.read() if self._is_owner() else ((), ())))
