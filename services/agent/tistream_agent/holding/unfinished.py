"""Finishes divisions of territories whose commands have died, with the meta servers in place of the API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from tistream.concurrency import sleep
from tistream.errors import UnknownName
from tistream.model.ids import TenantKey
from tistream.storage.object_store import ObjectStore
from tistream.wire.bulk.territories import ReplaceTerritories, TerritoryInfo
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.territory_client import replace_territories, territories_of
from tistream_agent.connecting.checks import Check
from tistream_agent.connecting.divider import Divider
from tistream_agent.connecting.finishing import finish_division
from tistream_agent.connecting.platform import TenantTerritories
from tistream_agent.core.chain import Child
from tistream_agent.order import Order
from tistream_agent.upstream.keyspaces import tenant_keys
from tistream_agent.upstream.pd import PdClient

log = logging.getLogger(__name__)


class MetaTerritories:
    """The territories of tenants, at the meta servers. Its methods raise TiStreamError."""

    def __init__(self, meta: MetaClient) -> None:
        self._meta = meta

    def territories(self, tenant: TenantKey) -> Mapping[int, TerritoryInfo]:
        """The territories of the tenant, by id. Empty if the tenant does not exist."""
        try:
            found = territories_of(self._meta, _path(tenant)).territories
        except UnknownName:
            return {}
        return {int(one.territory): one for one in found}

    def replace_territories(self, tenant: TenantKey, wanted: ReplaceTerritories) -> None:
        """Remove territories and create others, in one step."""
        replace_territories(self._meta, _path(tenant), wanted)


class DivisionFinisher:
    """Finishes the divisions that the last files of chains name. Thread-safe.

    Args:
        new_nonce: draws a new hexadecimal text.
        pause: waits for a number of seconds.
    """

    def __init__(
        self,
        objects: ObjectStore,
        meta: MetaClient,
        new_nonce: Callable[[], str],
        pause: Callable[[float], None] = sleep,
    ) -> None:
        self._objects, self._territories = objects, MetaTerritories(meta)
        self._new_nonce, self._pause = new_nonce, pause

    def finish(self, order: Order, pd: PdClient, children: Sequence[Child]) -> None:
        """Finish the division of an order's territory, whose last file names `children`. Raises TiStreamError."""
        owned, pds = tenant_keys(pd, order.kind, order.keyspace), ",".join(order.pd)
        assigned = TenantTerritories(self._territories, order.tenant, pds, pd.cluster_id, order.kind, order.keyspace)
        divider = Divider(
            *(order.tenant, owned, pd, self._objects, assigned, self._pause, self._show), nonce=self._new_nonce()
        )
        made = finish_division(divider, self._objects, order.tenant, order.store_id, children, assigned)
        of = {"tenant": str(order.tenant), "territory": order.store_id}
        log.info("division finished", extra={**of, "into": ", ".join(str(child.store_id) for child in made)})

    def _show(self, check: Check) -> None:
        log.info("a step of a division", extra={"what": check.name, "result": check.why})


def _path(tenant: TenantKey) -> str:
    return f"/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}"
