"""Merges the dispatchers' reports of a tenant's stores. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tistream.wire.dispatcher import StoreList, StoreStatus
from tistream.wire.meta import TenantRoute
from tistream.wire.sorter import Hold


def merged(route: TenantRoute, answers: Sequence[StoreList]) -> list[StoreStatus]:
    """Merge the reports to one status for each store, ordered by id. While a store moves, several dispatchers report
    it; the report of the dispatcher that the route names for the store is used. Retired stores are left out."""
    holders = {store.store_id: store.dispatcher_node for store in route.stores or ()}
    found: dict[int, tuple[bool, StoreStatus]] = {}
    for answer in answers:
        for store in answer.stores:
            own = holders.get(store.store_id) == answer.node_id
            if store.store_id not in route.retired_stores and (own or store.store_id not in found):
                found[store.store_id] = (own, store)
    return [store for _, (_, store) in sorted(found.items())]


def unread(route: TenantRoute, answers: Sequence[StoreList]) -> list[Hold]:
    """The holds (see glossary) for stores of the route that no dispatcher reports, each with its reason."""
    reported = {store.store_id for answer in answers for store in answer.stores}
    there = {answer.node_id for answer in answers}
    return [
        Hold(stage="dispatch", store_id=str(store.store_id), reason=_why(store.dispatcher_node, there))
        for store in route.stores or ()
        if store.store_id not in reported
    ]


def _why(node: str | None, there: Collection[str]) -> str:
    if node is None:
        return "no dispatcher reads the store, because none takes stores"
    if node not in there:
        return f"no dispatcher reads the store: {node}, which has it, does not answer"
    return f"no dispatcher reads the store: {node}, which has it, has not taken it yet"
