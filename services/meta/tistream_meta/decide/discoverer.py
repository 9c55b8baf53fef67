"""Chooses the dispatcher that looks for a tenant's new stores. Pure.

Rendezvous hashing: each tenant ranks the dispatchers by a hash of both names, and the first live one is its discoverer.
So every meta server computes the same result without a row in the database, and a dispatcher that comes or goes changes
only the tenants that it wins or had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from tistream.model.ids import TenantKey
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Node

_MASK = (1 << 64) - 1


class Discoverers:
    """The dispatchers among which the discoverer of each tenant is chosen: the live ones that are not being drained. If
    all live ones are being drained, these are used; and without any live dispatcher the lost ones, because one of them
    may have lost only its connection to the meta server."""

    def __init__(self, dispatchers: Mapping[str, NodeState]) -> None:
        there = {node: state for node, state in dispatchers.items() if state is not NodeState.LOST}
        staying = [node for node, state in there.items() if state is not NodeState.DRAINING]
        self._nodes = [(node, _hash(node)) for node in sorted(staying or there or dispatchers)]

    def of(self, tenant: TenantKey) -> str | None:
        """The discoverer of a tenant; None if there is no dispatcher at all."""
        number = _hash(str(tenant))
        return max(self._nodes, key=lambda node: (_mixed(number ^ node[1]), node[0]), default=("", 0))[0] or None


def dispatchers(nodes: Iterable[Node], states: Mapping[str, NodeState]) -> dict[str, NodeState]:
    """The state of every dispatcher by name. A dispatcher without an entry in `states` counts as lost."""
    return {node.node_id: states.get(node.node_id, NodeState.LOST) for node in nodes if node.role == "dispatcher"}


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def _mixed(number: int) -> int:
    """The last step of splitmix64: every bit of the result depends on every bit of the number."""
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _MASK
    return number ^ number >> 31
