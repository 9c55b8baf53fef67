"""Finishes the division of a territory whose command has died (`tistream agent divide`). The agent that the platform
still gives the territory does so."""

from __future__ import annotations

from collections.abc import Sequence

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.storage.object_store import ObjectStore
from tistream_agent.connecting.divider import Assignments, Divider
from tistream_agent.core.chain import Child
from tistream_agent.reserved_ids import ReservedIds


def finish_division(
    divider: Divider,
    objects: ObjectStore,
    tenant: TenantKey,
    store_id: int,
    children: Sequence[Child],
    assigned: Assignments,
) -> tuple[Child, ...]:
    """Finish the division of the territory `store_id`, whose last file names `children`, as it was begun. If that
    fails, garbage collection is held back for the territory for another day. Returns the new territories; empty if the
    platform does not have the territory any more, so that nothing is left to do. Raises the errors of `Divider.divide`;
    InvalidRequest too if the ids of the children are reserved for no division."""
    if store_id not in assigned.spans() or not divider.keep_held(store_id):
        return ()
    named = {child.store_id for child in children}
    found = {one.parents for one in ReservedIds(objects, tenant).by_divisions() if one.store_id in named}
    if not found:
        raise InvalidRequest(
            f"no division has reserved the ids {', '.join(map(str, sorted(named)))}: run `tistream agent divide` again "
            f"for territory {store_id} and those that were divided with it"
        )
    parents = {store_id, *(number for parents in found for number in parents)}
    return divider.divide(sorted(parents), len(children))
