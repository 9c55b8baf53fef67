"""The HTTP route of `tistream store retire`. It asks every sorter of the tenant what it still needs of the store, then
calls the meta server to retire the store."""

from __future__ import annotations

import re
from collections.abc import Callable

from fastapi import APIRouter
from fastapi.responses import Response

from tistream.errors import FatalError, InvalidRequest, Unavailable, UnknownName
from tistream.model.ids import TenantKey, parse_store_id
from tistream.wire.api import Retired
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import RetireOrder, RetireStore, TenantRoute
from tistream.wire.sorter import StoreNeed
from tistream_api.admission import gate
from tistream_api.request.bodies import Body, read
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.pull_routes import TENANT
from tistream_api.status.store_retirement import taken_ts

_STORE = re.compile(r"[0-9]{1,19}")
_DISCARD = {"discard": {"type": "boolean", "example": False}}


def build_store_router(meta: MetaClient, http: HttpClient, route_of: Callable[[TenantKey], TenantRoute]) -> APIRouter:
    """Build the router of the call that retires a store. Its routes must be behind the gate (admission/gate.py).
    `route_of` returns the tenant's route; it raises UnknownName and Unavailable."""
    router = APIRouter(tags=["tenant"])

    @router.post(
        TENANT + "/stores/{store_id}/retire",
        operation_id="RetireStore",
        response_model=Retired,
        status_code=202,
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=openapi.json_doc(_DISCARD, optional=True),
    )
    @gate.OPERATE_TENANT
    def retire_store(cluster_id: str, tenant_id: str, store_id: str, body: Body) -> Response:
        """Retire a store that no longer exists: its files are no longer read and are deleted, and `status` does not
        show it any more. Returns 400 with the reason while a range of keys waits for its changes or a task needs its
        files, and, without `{"discard": true}`, if it has files that were never read. A store that pushes again is
        discovered again."""
        key = TenantKey.parse(name_of(cluster_id), name_of(tenant_id))
        name = name_of(store_id)
        if not _STORE.fullmatch(name):
            raise UnknownName(
                f"tenant {key} has no store {name[:80]!r}: a store's id is a decimal number; TenantPlacement has the "
                "ids"
            )
        store = parse_store_id(name)
        order = read(RetireOrder, body)
        through = taken_ts(store, _needs(http, route_of(key), store))
        meta.retire_store(
            key.cluster_id, key.tenant_id, str(store), RetireStore(taken_ts=str(through), discard=order.discard)
        )
        return Response(b"{}", 202, media_type="application/json")

    return router


def _needs(http: HttpClient, route: TenantRoute, store_id: int) -> dict[int, StoreNeed]:
    """Ask the sorters what each task of the tenant still needs from the store. Returns it by task id. Raises
    InvalidRequest if the tenant has no task yet, and Unavailable if a sorter cannot be asked."""
    if not route.tasks:
        raise InvalidRequest(
            f"tenant {route.cluster_id}/{route.tenant_id} has no task yet, because its schema_snap has not been read: "
            "ListTenants has the problem"
        )
    found = {}
    for task in route.tasks:
        if task.sorter_url is None:
            raise Unavailable(
                f"task {task.task_id} has no sorter now: retry; if it stays, see whether sorters run (`tistream node "
                "list`)"
            )
        try:
            found[task.task_id] = http.get(f"{task.sorter_url}/v1/tasks/{task.task_id}/stores/{store_id}", StoreNeed)
        except FatalError as error:  # the sorter has just started, and does not hold the task yet
            raise Unavailable(f"task {task.task_id}: {error}") from error
    return found
