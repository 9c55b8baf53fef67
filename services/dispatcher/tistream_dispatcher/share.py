"""What one dispatcher has of a tenant, as the route table says. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.wire.meta import TenantRoute


@dataclass(frozen=True, slots=True)
class Share:
    """`stores` are the ones that it reads, and nobody else; `named` all that the table names, those
    that were retired among them. `discovers`: it looks for
    those that the table does not name. `whole`: the meta server gives no stores out; all that are found are its own."""

    stores: frozenset[int] = frozenset()
    named: frozenset[int] = frozenset()
    discovers: bool = False
    whole: bool = False

    @classmethod
    def of(cls, route: TenantRoute, node_id: str) -> Share:
        """The share of that dispatcher."""
        if route.stores is None:
            return cls(discovers=True, whole=True)
        mine = frozenset(store.store_id for store in route.stores if store.dispatcher_node == node_id)
        named = frozenset([*(store.store_id for store in route.stores), *route.retired_stores])
        return cls(mine, named, discovers=route.dispatcher_node == node_id)

    @property
    def is_empty(self) -> bool:
        """Whether the tenant is none of its business."""
        return not self.stores and not self.discovers

    def reads(self, store_id: int) -> bool:
        """Whether it reads that store."""
        return self.whole or store_id in self.stores

    def concerns(self, store_id: int) -> bool:
        """Whether it has to know of that store's files: it reads them, or is to find the store."""
        return self.reads(store_id) or (self.discovers and store_id not in self.named)
