"""Merges an answer that has only changes into a complete route table. Pure."""

from __future__ import annotations

from tistream.wire.meta import RouteTable


def merged(known: RouteTable | None, answer: RouteTable) -> RouteTable:
    """Build the complete table from `known`, the reader's table, and `answer`, which has changes. Unchanged tenants
    stay the same objects.

    The caller must ignore an answer that is older than `known`. The changes may be relative to an older table than
    `known`: then the answer has more tenants than needed, which does no harm.
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
