"""HTTP routes to retire stores. They parse requests, call StoreRules and translate answers."""

from __future__ import annotations

import re

from fastapi import APIRouter, Request

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey, parse_store_id
from tistream.model.ts import MAX_TS
from tistream.wire.meta import Accepted, RetireStore
from tistream_meta.routes.forwarding import OwnersRoute
from tistream_meta.routes.forwarding import server_of as _server

_TS = re.compile(r"[0-9]{1,20}")

router = APIRouter(route_class=OwnersRoute)


@router.put(
    "/upcall/v1/clusters/{cluster_id}/tenants/{tenant_id}/stores/{store_id}/retirement",
    status_code=202,
    operation_id="RetireStore",
)
def retire_store(request: Request, cluster_id: str, tenant_id: str, store_id: str, body: RetireStore) -> Accepted:
    """Retire a store that no task needs any more. Idempotent."""
    key = TenantKey.parse(cluster_id, tenant_id)
    if not _TS.fullmatch(body.taken_ts) or int(body.taken_ts) > MAX_TS:
        raise InvalidRequest(
            f"taken_ts {body.taken_ts[:80]!r} is not a decimal timestamp (TSO)", {"parameter": "taken_ts"}
        )
    _server(request).store_rules.retire(key, parse_store_id(store_id), int(body.taken_ts), discard=body.discard)
    return Accepted()
