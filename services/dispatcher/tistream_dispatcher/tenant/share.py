"""The stores of a tenant that one dispatcher reads (its share), according to the route table. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.wire.meta import TenantRoute


@dataclass(frozen=True, slots=True)
class Share:
    """The stores of one tenant that concern one dispatcher. `stores`: those that only this dispatcher reads. `named`:
    all stores in the route table, retired ones included. `discovers`: whether this dispatcher looks for stores that the
    table does not name. `whole`: the meta server does not assign stores, so this dispatcher reads all that it finds."""

    stores: frozenset[int] = frozenset()
    named: frozenset[int] = frozenset()
    discovers: bool = False
    whole: bool = False

    @classmethod
    def of(cls, route: TenantRoute, node_id: str) -> Share:
        """The share of the dispatcher `node_id` in the stores of a tenant."""
        if route.stores is None:
            return cls(discovers=True, whole=True)
        mine = frozenset(store.store_id for store in route.stores if store.dispatcher_node == node_id)
        named = frozenset([*(store.store_id for store in route.stores), *route.retired_stores])
        return cls(mine, named, discovers=route.dispatcher_node == node_id)

    @property
    def is_empty(self) -> bool:
        """Whether this dispatcher has nothing to do for the tenant."""
        return not self.stores and not self.discovers

    def reads(self, store_id: int) -> bool:
        """Whether this dispatcher must read the store."""
        return self.whole or store_id in self.stores

    def concerns(self, store_id: int) -> bool:
        """Whether announcements of the store's files concern this dispatcher: it reads the store, or must discover
        it."""
        return self.reads(store_id) or (self.discovers and store_id not in self.named)
