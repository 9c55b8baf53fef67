"""Makes the agent a node of the platform: it sends heartbeats to the meta servers, and holds the territories (spans of
keys) that they assign to it."""

from __future__ import annotations

import logging

from tistream.errors import TiStreamError, UnknownName
from tistream.wire.bulk.territories import AgentBeat
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.territory_client import beat_territories
from tistream_agent.holding.territories import Territories
from tistream_agent.order import order_of

log = logging.getLogger(__name__)


class NodeLoop:
    """The heartbeats of an agent. A background loop must call `beat`. While no meta server answers, the territories
    that the process holds continue.

    Args:
        serves: the id of the only PD cluster that this process can reach; empty if it can reach any.
    """

    def __init__(
        self, meta: MetaClient, member: Membership, node_id: str, instance: str, serves: str, territories: Territories
    ) -> None:
        self._meta, self._member = meta, member
        self._node_id, self._instance, self._serves = node_id, instance, serves
        self._territories = territories
        self._answered = False
        self.problem = "no meta server has answered yet"

    def beat(self) -> int | None:
        """Loop body: send a heartbeat, report the territories, and hold those that the answer lists. Returns the
        milliseconds until the next call; None: the interval of the loop. Raises Unavailable."""
        try:
            next_ms = self._member.beat()
            if self._member.registered is not None:
                self._ask()
        except TiStreamError as error:
            self.problem = f"no meta server answers: {error}"
            raise
        return next_ms

    def _ask(self) -> None:
        reports, fenced = self._territories.reports()
        beat = AgentBeat(node_id=self._node_id, instance=self._instance, serves=self._serves, reports=reports)
        try:
            answer = beat_territories(self._meta, beat)
        except UnknownName as error:
            self.problem = f"the meta servers are of a version without territories: upgrade them first ({error})"
            return
        self._answered, self.problem = True, ""
        self._territories.follow([order_of(work) for work in answer.territories], fenced)

    def not_ready(self) -> str | None:
        """The reason why the process cannot hold territories; None if it can. A territory that waits does not count
        here, but is shown in /status: a PD that does not answer must not keep the platform from starting."""
        return None if self._answered else self.problem
