"""The class of routes whose changes are recorded in the audit log, and the route that returns the log."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from tistream import acting
from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.wire.audit import LIMIT_DEFAULT, LIMIT_MAX, AuditPage
from tistream_meta.audit.audited_action import audited_as
from tistream_meta.database.audit_log import AuditLog

CHANGING = frozenset(("POST", "PUT", "PATCH", "DELETE"))
BETWEEN_SERVICES = "/upcall/"  # reports of the platform's processes: not requests of operators
# An announcement changes nothing that is stored: it only says that a file exists.
NOT_AUDITED = frozenset(("Notify",))


class NotAudited(Exception):
    """Raised at the start of the server if a route changes data, and the audit log would not record the change."""


class AuditedRoute(APIRoute):
    """A route whose changes are recorded under its operation_id. The actor is the one that the API server names,
    otherwise the service that sent the request, by its address."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, wrapped so that the audit log knows the operation and the actor while it runs."""
        handle, action = super().get_route_handler(), self.operation_id or self.name

        async def audited(request: Request) -> Response:
            with acting.acted_by(actor_of(request)), audited_as(action):
                return await handle(request)

        return audited


def actor_of(request: Request) -> acting.Actor:
    """The actor that the API server names in the request, otherwise the service that sent the request, by its
    address."""
    actor = acting.from_header(request.headers.get(acting.HEADER))
    if actor is not None:
        return actor
    return acting.Actor("a service", None if request.client is None else request.client.host[: acting.ADDRESS_MAX])


def changing(routes: Iterable[BaseRoute]) -> list[APIRoute]:
    """The routes through which operators change data, including those of included routers."""
    found: list[APIRoute] = []
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            found += changing(included.routes)
        elif (
            isinstance(route, APIRoute)
            and CHANGING & (route.methods or set())
            and not route.path.startswith(BETWEEN_SERVICES)
        ):
            found += [route] if route.operation_id not in NOT_AUDITED else []
    return found


def refuse_unaudited(routes: Iterable[BaseRoute]) -> None:
    """Check that every route that changes data is an AuditedRoute. Raises NotAudited."""
    for route in changing(routes):
        if not isinstance(route, AuditedRoute):
            raise NotAudited(f"route {route.path} changes something: its router needs route_class=AuditedRoute")


router = APIRouter()

After = Annotated[int | None, Query(ge=0)]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]


@router.get("/v1/audit", operation_id="AuditLog")
def audit_log(
    request: Request,
    after: After = None,
    limit: Limit = LIMIT_DEFAULT,
    cluster_id: str | None = None,
    tenant_id: str | None = None,
) -> AuditPage:
    """Entries of the audit log, oldest first: the first ones above `after`, or without it the newest ones. They are
    those of one tenant, if `cluster_id` and `tenant_id` are given, or of all."""
    if (cluster_id is None) != (tenant_id is None):
        raise InvalidRequest(
            "cluster_id and tenant_id are needed together: give the other one too, or neither",
            {"parameter": "tenant_id"},
        )
    tenant = None if cluster_id is None or tenant_id is None else TenantKey.parse(cluster_id, tenant_id)
    log: AuditLog = request.app.state.audit
    return log.page(after, limit, tenant)
