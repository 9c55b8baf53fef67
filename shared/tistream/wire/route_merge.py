"""A route table and what has changed since. Pure."""

from __future__ import annotations

from tistream.wire.meta import RouteTable


def merged(known: RouteTable | None, told: RouteTable) -> RouteTable:
    """The whole table, of one that a reader has and an answer to it. What has not changed is the same object.

    An answer may be one to an older table than `known`: then it tells more than needed, and nothing older, as long as
    it is not older itself.
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
