"""Merges a route table with later changes. Pure."""

from __future__ import annotations

from tistream.wire.meta import RouteTable


def merged(known: RouteTable | None, told: RouteTable) -> RouteTable:
    """Build the complete table from `known`, the reader's table, and `told`, an answer with changes. Unchanged tenants
    stay the same objects.

    The answer may have been made for an older table than `known`. Then it contains more than needed, but no older data,
    as long as the answer itself is not older.
    """
    if told.since is None:
        return told
    assert known is not None, "an answer to nothing"
    assert (known.owner_rev, known.version) <= (told.owner_rev, told.version), "an older answer"
    if known.version == told.version:
        return known
    tenants = {(route.cluster_id, route.tenant_id): route for route in known.tenants}
    tenants |= {(route.cluster_id, route.tenant_id): route for route in told.tenants}
    for key in told.gone:
        tenants.pop(key, None)
    in_order = [tenants[key] for key in sorted(tenants)]
    return told.model_copy(update={"tenants": in_order, "since": None, "gone": []})
