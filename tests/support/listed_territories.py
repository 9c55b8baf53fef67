"""The territories of a tenant as the meta server lists them, for tests without one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream_agent.core.chain import Child
from tistream_meta.territories.territory_policy import Territory, Upstream, check_replacement


def replaced(
    tenant: TenantKey, there: Mapping[int, KeySpan], gone: Collection[int], children: Sequence[Child]
) -> dict[int, KeySpan]:
    """The keys of each territory after ReplaceTerritories, by the meta server's own rule. Raises AlreadyDiffers,
    LimitReached."""

    def row(number: int, span: KeySpan) -> Territory:
        return Territory(tenant, number, span, Upstream("pd", 1))

    new = check_replacement(
        [row(*one) for one in there.items()], gone, [row(child.store_id, child.span) for child in children]
    )
    left = {number: span for number, span in there.items() if number not in gone}
    return left | {one.store_id: one.span for one in new}
