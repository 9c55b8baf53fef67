"""Merges an answer that has only changes into a complete route table. Pure."""

from __future__ import annotations

from tistream.wire.meta import RouteTable


def merged(known: RouteTable | None, answer: RouteTable) -> RouteTable:
    """Build the complete table from `known`, the reader's table, and `answer`, which has changes. Unchanged tenants
    stay the same objects.

    The answer may have been made for an older table than `known`. Then it contains more than needed, but no older data,
    as long as the answer itself is not older.
    """
    if answer.since is None:
        return answer
    assert known is not None, "an answer to nothing"
    assert (known.owner_rev, known.version) <= (answer.owner_rev, answer.version), "an older answer"
    if known.version == answer.version:
        return known
    tenants = {(route.cluster_id, route.tenant_id): route for route in known.tenants}
    tenants |= {(route.cluster_id, route.tenant_id): route for route in answer.tenants}
    for key in answer.gone:
        tenants.pop(key, None)
    in_order = [tenants[key] for key in sorted(tenants)]
    return answer.model_copy(update={"tenants": in_order, "since": None, "gone": []})
