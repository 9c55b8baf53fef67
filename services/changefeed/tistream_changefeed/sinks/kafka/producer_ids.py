"""Decides the transactional ids under which the shards of feeds write. By its id the broker fences the previous holder
of a shard. Pure.

Earlier releases joined the ids of cluster, tenant and feed by hyphens. Where the id of a cluster or a tenant has a
hyphen, two feeds can have the same joined id, and fence each other for ever. So a shard of such ids that begins now
writes under a dotted id, because no id of a cluster, a tenant or a feed has a dot. A shard that has progress keeps its
id: workers of an earlier release fence the joined id only, and could write beside a dotted one.

The first transaction of a shard decides. Its holder has fenced both ids, then read that there is no progress, and
commits under the joined id, which a holder of any release fences. The record says that the id is dotted (Progress), and
has a version that an earlier release refuses. From then on all holders write under the dotted id.
"""

from __future__ import annotations

from tistream.model.ids import TenantKey
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.shard import Order


def joined_id(order: Order) -> str:
    """The id of a shard in the form of earlier releases."""
    return _joined(order.tenant, order.feed_id, str(order.shard))


def shard_id(order: Order) -> str:
    """The id of a shard that begins now. No other shard of any feed has it."""
    return _unique(order.tenant, order.feed_id, str(order.shard))


def repair_id(tenant: TenantKey, feed_id: str) -> str:
    """The id under which missing messages of a feed are written into another topic."""
    return _unique(tenant, feed_id, "repair")


def fenced_ids(order: Order, found: Progress | None) -> tuple[str, ...]:
    """The ids that a new holder must fence before it reads the progress. `found` is the progress that was read before:
    what it says of the id stays true while the feed exists."""
    mine = _own(order, found)
    if mine is None:
        return tuple(dict.fromkeys((shard_id(order), joined_id(order))))
    return (written_id(order, mine),)


def written_id(order: Order, found: Progress | None) -> str:
    """The id under which a holder writes its first transaction. `found` is the progress that was read after the ids
    were fenced."""
    mine = _own(order, found)
    return shard_id(order) if mine is not None and mine.dotted_id else joined_id(order)


def later_id(order: Order, found: Progress | None) -> str:
    """The id under which a holder writes all later transactions. `found`: as for `written_id`."""
    return shard_id(order) if _own(order, found) is None else written_id(order, found)


def is_dotted(order: Order, found: Progress | None) -> bool:
    """Whether the records of a holder say that the id is dotted. `found`: as for `written_id`."""
    return later_id(order, found) != joined_id(order)


def _own(order: Order, found: Progress | None) -> Progress | None:
    """The progress, unless it is that of an earlier feed with this name."""
    return found if found is not None and found.fence.generation >= order.fence.generation else None


def _unique(tenant: TenantKey, feed_id: str, part: str) -> str:
    if "-" in tenant.cluster_id or "-" in tenant.tenant_id:
        return f"tistream-{tenant.cluster_id}.{tenant.tenant_id}.{feed_id}.{part}"
    return _joined(tenant, feed_id, part)


def _joined(tenant: TenantKey, feed_id: str, part: str) -> str:
    return f"tistream-{tenant.cluster_id}-{tenant.tenant_id}-{feed_id}-{part}"
