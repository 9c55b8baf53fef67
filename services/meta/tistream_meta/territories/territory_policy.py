"""Assigns territories to agents. Pure. There are three policies:

* basic: every territory has exactly one agent. A new territory, or one whose agent is lost, gets the agent with the
  fewest territories at once. A territory whose agent has restarted stays with that agent.
* drain: an agent that is being drained has no territories.
* balance: no agent has many more territories than another. Territories move one at a time.

Each assignment has the next epoch. A move needs no preparation: the first file of the next agent fences the agent
before it, which stops reading the territory when it notices. Both may read for a moment, and no row is lost or
repeated. A move costs a scan of the last seconds, so only one territory moves at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tistream.errors import AlreadyDiffers, LimitReached
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream.wire.bulk.territories import TERRITORIES_MAX
from tistream_meta.decide.balance import UNEVEN, Move, NodeLoads, WeighedItem, drain, even_out
from tistream_meta.decide.liveness import NodeState

LOST_MS = 5_000  # silence after which an agent's territories are moved: less than for nodes, because a move is harmless
BALANCE_MOVES = 1


@dataclass(frozen=True, slots=True)
class Upstream:
    """The upstream cluster from which the changes of a territory come, and the part of it: TiDB or RawKV (`kind`), and
    the name of the keyspace (empty: none; `*`: all of RawKV). `pd`: the addresses of its PD."""

    pd: str
    pd_cluster_id: int
    kind: TenantKind = TenantKind.TIDB
    keyspace: str = ""


@dataclass(frozen=True, slots=True)
class Territory:
    """A row of the table `territories`. `node_id` and `instance` name the agent that holds the territory, and its
    process start. `epoch` is 0 if no agent ever held it."""

    tenant: TenantKey
    store_id: int
    span: KeySpan
    upstream: Upstream
    epoch: int = 0
    node_id: str | None = None
    instance: str = ""

    @property
    def key(self) -> tuple[TenantKey, int]:
        """What identifies the territory: tenant and store id."""
        return self.tenant, self.store_id

    def held_by(self, node_id: str, instance: str) -> bool:
        """Whether this start of an agent holds the territory."""
        return (self.node_id, self.instance) == (node_id, instance)


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent as the owner sees it. `silent_ms`: ms since its last heartbeat. `requests_territories`: whether it has
    requested territories from this owner. `serves`: the id of the only PD cluster that it can reach; None if it can
    reach any, or has not requested any territory yet."""

    instance: str
    state: NodeState
    silent_ms: int
    requests_territories: bool = True
    serves: int | None = None

    @property
    def lost(self) -> bool:
        """Whether the agent's territories must be assigned to other agents."""
        return self.state is NodeState.LOST or self.silent_ms >= LOST_MS

    @property
    def ready(self) -> bool:
        """Whether territories may be assigned to the agent."""
        return self.state is NodeState.ALIVE and self.requests_territories and not self.lost

    def reaches(self, territory: Territory) -> bool:
        """Whether the agent can reach the cluster of the territory."""
        return self.serves is None or self.serves == territory.upstream.pd_cluster_id


def is_held(territory: Territory, agents: Mapping[str, Agent]) -> bool:
    """Whether an agent that is not lost holds the territory, so that its changes are pushed as files."""
    agent = agents.get(territory.node_id or "")
    return agent is not None and not agent.lost and territory.held_by(territory.node_id or "", agent.instance)


def assignments(territories: Sequence[Territory], agents: Mapping[str, Agent]) -> list[tuple[Territory, str]]:
    """Compute which territories must be assigned to another agent now, each with its new agent and epoch, and the
    reason; empty if nothing needs to change."""
    given: dict[tuple[TenantKey, int], tuple[Territory, str]] = {}
    for clusters in _groups(territories):
        able = {name: one for name, one in agents.items() if one.reaches(clusters[0])}
        for territory, why in _of_cluster(clusters, able):
            given[territory.key] = territory, why
    return [given[key] for key in sorted(given)]


def _groups(territories: Iterable[Territory]) -> list[list[Territory]]:
    """The territories, grouped by the cluster that an agent must reach to read them."""
    found: dict[int, list[Territory]] = {}
    for one in territories:
        found.setdefault(one.upstream.pd_cluster_id, []).append(one)
    return list(found.values())


def _of_cluster(territories: Sequence[Territory], agents: Mapping[str, Agent]) -> Iterator[tuple[Territory, str]]:
    here = [one for one in territories if one.node_id is not None and _holds(agents.get(one.node_id))]
    for one in here:
        agent = agents[one.node_id or ""]
        if one.instance != agent.instance and agent.state is not NodeState.DRAINING:
            yield _given(one, one.node_id or "", agents), f"{one.node_id} has restarted"
    ready = {name for name, one in agents.items() if one.ready}
    if not ready:
        return
    loads = NodeLoads({name: float(sum(one.node_id == name for one in here)) for name in sorted(ready)})
    for one in sorted(set(territories) - set(here), key=lambda one: one.key):
        node = loads.least()
        loads.give(node, 1.0)
        yield _given(one, node, agents), f"{one.node_id} is lost" if one.node_id else "new"
    for move in _moves(here, agents, loads):
        yield _given(move.item, move.target, agents), move.why


def _holds(agent: Agent | None) -> bool:
    return agent is not None and not agent.lost


def _moves(here: Sequence[Territory], agents: Mapping[str, Agent], loads: NodeLoads) -> Iterator[Move[Territory]]:
    weighed = [WeighedItem(one, one.node_id or "", 1.0) for one in sorted(here, key=lambda one: one.key)]
    yield from drain((one for one in weighed if agents[one.node].state is NodeState.DRAINING), loads)
    settled = (one for one in weighed if one.node in loads.of and one.item.instance == agents[one.node].instance)
    yield from islice(even_out(settled, loads, UNEVEN, fill=False), BALANCE_MOVES)


def _given(one: Territory, node: str, agents: Mapping[str, Agent]) -> Territory:
    return replace(one, epoch=one.epoch + 1, node_id=node, instance=agents[node].instance)


def check_new(there: Sequence[Territory], wanted: Territory) -> bool:
    """Check that a tenant with the territories `there` may have another one. Returns whether it is new; False if an
    equal one exists. Raises AlreadyDiffers if another territory has its id or some of its keys, and LimitReached if
    there are TERRITORIES_MAX."""
    for one in there:
        if one.store_id == wanted.store_id:
            if (one.span, one.upstream) == (wanted.span, wanted.upstream):
                return False
            raise AlreadyDiffers(
                f"territory {one.store_id} of tenant {one.tenant} exists already with another PD, keyspace or keys: "
                "`tistream disconnect` it first"
            )
        if one.span.overlaps(wanted.span):
            raise AlreadyDiffers(
                f"territory {one.store_id} of tenant {one.tenant} has keys of territory {wanted.store_id}: each key is "
                "in one territory"
            )
    if len(there) >= TERRITORIES_MAX:
        raise LimitReached(
            f"tenant {wanted.tenant} has {len(there)} territories, and {TERRITORIES_MAX} is the maximum: `tistream "
            "disconnect` one first"
        )
    return True


def check_replacement(
    there: Sequence[Territory], gone: Collection[int], wanted: Sequence[Territory]
) -> list[Territory]:
    """Check that a tenant with the territories `there` may have the `wanted` ones in place of those with the ids
    `gone`: all of `gone` exist, or were replaced by all of `wanted` before. In any other case one of them was removed
    after the caller had read them, and must not come back. Returns the wanted ones that do not exist yet. Raises the
    errors of `check_new`, and AlreadyDiffers if one was removed."""
    present, heirs = {one.store_id for one in there}, {one.store_id for one in wanted}
    removed = sorted(set(gone) - present)
    repeated = heirs <= present and present.isdisjoint(set(gone) - heirs)
    if removed and not repeated:
        raise AlreadyDiffers(
            f"the replacement is out of date: territory {removed[0]} of tenant {[*there, *wanted][0].tenant} was "
            "removed meanwhile. `tistream disconnect --territory` ends what is left of a division, and `tistream "
            "connect --assign` then gives its keys to new ones"
        )
    left, new = [one for one in there if one.store_id not in gone], []
    for one in wanted:
        if check_new(left, one):
            left.append(one)
            new.append(one)
    return new
