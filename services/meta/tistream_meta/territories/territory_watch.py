"""Counts the territories of agents for the owner's metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tistream_meta.metrics import MetaMetrics
from tistream_meta.territories.territory_book import TerritoryBook
from tistream_meta.territories.territory_policy import Agent, is_held

WATCH_MS = 5_000


class TerritoryWatch:
    """Sets the owner's metrics of territories. A meta server that is not the owner sets them to 0. `agents` returns
    every agent by name, and raises Unavailable if this process is not the owner."""

    def __init__(
        self,
        book: TerritoryBook,
        agents: Callable[[], Mapping[str, Agent]],
        is_owner: Callable[[], bool],
        metrics: MetaMetrics,
    ) -> None:
        self._book, self._agents, self._is_owner, self._metrics = book, agents, is_owner, metrics

    def step(self) -> None:
        """Loop body: count the territories and set the metrics. Raises Unavailable."""
        if not self._is_owner():
            self._metrics.count_territories(())
            return
        agents = self._agents()
        self._metrics.count_territories(is_held(one, agents) for one in self._book.wanted())
