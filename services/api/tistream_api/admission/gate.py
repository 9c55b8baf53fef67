"""The checks before every route: they authenticate the caller, compare its grants with what the route requires, and
apply rate limits. They do not look at what exists: the answer is the same for an object that exists and one that does
not.

Each route declares its access with a decorator (`@READ_TABLE`), and the OpenAPI document shows it as
`x-tistream-access`. A route that does not is refused when the app is built.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from tistream.acting import ADDRESS_MAX, Actor, acted_by
from tistream.errors import Forbidden
from tistream.wire.meta import Notification
from tistream.wire.tokens import Action, tenant_of_grants
from tistream_api.admission.request_queue import RequestQueue, RequestSlot
from tistream_api.admission.tenant_limits import TenantLimits
from tistream_api.auth.access import Resource, allows, allows_part
from tistream_api.auth.browser_guard import refusal
from tistream_api.auth.callers import EVERYBODY, Caller, Callers
from tistream_api.request.bodies import read
from tistream_api.request.raw_path import name_of

DECLARED = "x-tistream-access"
SECURITY: list[dict[str, list[str]]] = [{"bearer": []}]
SCHEME = {"bearer": {"type": "http", "scheme": "bearer", "description": "a token of `tistream token`, or a JWT"}}
# Paths that name no tenant and need no token: probes, the API's contract, the console's files.
OPEN = frozenset(
    ("/healthz", "/readyz", "/openapi.json", "/metrics", "/", "/docs", "/console", "/console/{name:path}")
)  # the gate of /metrics is metrics_gate.py
ANNOUNCEMENT_BYTES_MAX = 1 << 10  # A valid announcement is less than half as long
Scope = Literal["platform", "cluster", "tenant", "database", "table"]
_LEVELS: dict[Scope, int] = {"platform": 0, "cluster": 1, "tenant": 2, "database": 3, "table": 4}
_ATTRIBUTE = "tistream_access"
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
_PARAMETERS = ("cluster_id", "tenant_id", "db", "table")


class UndeclaredAccess(Exception):
    """Raised when the app is built, if a route does not declare which callers may use it."""


@dataclass(frozen=True, slots=True)
class Access:
    """The grant that a route requires: one of `actions` on the resource that its path names. `scope` is the kind of
    that resource; names below it in the path are not compared. With `partly` a grant on something inside the resource
    is enough, and the route filters its answer. With `in_body` the names are in the body, not in the path."""

    actions: tuple[Action, ...]
    scope: Scope
    partly: bool = False
    in_body: bool = False

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        """Declare that the endpoint's route requires this access. Used as a decorator, below the route's own."""
        setattr(endpoint, _ATTRIBUTE, self)
        return endpoint

    def shown(self) -> dict[str, Any]:
        """The members that describe this access in the OpenAPI document, for the operation of the route."""
        said: dict[str, Any] = {"action": "|".join(self.actions), "scope": self.scope}
        said |= {"partly": True} if self.partly else {}
        said |= {"in": "body"} if self.in_body else {}
        return {"security": SECURITY, DECLARED: said}

    @classmethod
    def of(cls, route: object) -> Access:
        """The access that a route has declared. Raises UndeclaredAccess if it has declared none."""
        access = getattr(getattr(route, "endpoint", None), _ATTRIBUTE, None)
        if not isinstance(access, Access):
            raise UndeclaredAccess(f"route {getattr(route, 'path', route)} does not declare its access")
        return access


READ_TABLE = Access(("read",), "table")
READ_DATABASE = Access(("read",), "database")
READ_TENANT = Access(("read",), "tenant")
LIST_DATABASES = Access(("read",), "tenant", partly=True)
LIST_TABLES = Access(("read",), "database", partly=True)
LIST_TENANTS = Access(("read", "operate"), "cluster", partly=True)
FEED_TENANT = Access(("feed",), "tenant")
SEE_FEEDS = Access(("read", "feed"), "tenant")
ANY_FEEDS = Access(("read", "feed"), "platform", partly=True)
PUSH = Access(("push",), "tenant", in_body=True)
OPERATE_TENANT = Access(("operate",), "tenant")
OPERATE_CLUSTER = Access(("operate",), "cluster")
OPERATE_PLATFORM = Access(("operate",), "platform")
OVERVIEW = Access(("read", "operate"), "platform", partly=True)
OPERATE_OWN = Access(("operate",), "platform", partly=True)


class Gate:
    """Authenticates and authorizes requests: every route depends on `check`, except those in OPEN. If `callers` is
    None, authentication is off, and a request is authorized for everything unless browser_guard rejects it. That
    guard rejects requests of other sites' pages, and any request whose Host header does not name this machine.
    `machine` is this machine's host name."""

    def __init__(self, callers: Callers | None, limits: TenantLimits, queue: RequestQueue, machine: str) -> None:
        self._callers, self._limits, self._queue, self._machine = callers, limits, queue, machine

    async def check(self, request: Request) -> AsyncIterator[None]:
        """Authenticate and authorize the request, record its caller in its state, apply the rate limit, and wait until
        it may use a thread, which it has until it is answered. FastAPI runs this as a dependency of every route. Raises
        Unauthenticated, Forbidden, TooManyRequests, Unavailable; UnknownName for a malformed name in the path; and for
        an announcement InvalidRequest, or HTTPException (413) if its body is too large."""
        access = Access.of(request.scope["route"])
        caller = self._caller(request)
        request.state.caller = caller
        names = await self._named(request, access)
        resource = Resource(*names)
        decide = allows_part if access.partly else allows
        if not any(decide(caller.grants, action, resource) for action in access.actions):
            wanted = " or ".join(access.actions)
            raise Forbidden(
                f"the token does not grant {wanted} of this {access.scope}: use a token that does (`tistream token "
                "create`)"
            )
        key = self._counted(caller, resource, access)
        (self._limits.notification if access.in_body else self._limits.request)(key)
        # Announcements are many, and a meta server that hangs would hold them all; pulls and lists do not need it. So
        # announcements have a queue of their own.
        slot = request.state.slot = await self._queue.begin((*key, "push") if access.in_body else key)
        actor = Actor(caller.name, None if request.client is None else request.client.host[:ADDRESS_MAX])
        try:
            with acted_by(actor):
                yield
        finally:
            slot.end()

    def still(self, caller: Caller) -> Callable[[], bool]:
        """Make a function that returns whether the caller's token is still valid."""
        callers = self._callers
        return (lambda: True) if callers is None else (lambda: callers.still(caller))

    def _counted(self, caller: Caller, resource: Resource, access: Access) -> tuple[str, str]:
        """The key of the rate limit for a request: the tenant that the request names, or else the tenant of the token,
        because a tenant can create any number of tokens.

        A request of a cluster's operator counts for the operator's home tenant or for the operator itself, because an
        operator must be able to reach a tenant that has used up its limits. The operator's own key has the tenant id
        "", which no tenant has.
        """
        operates = self._callers is not None and allows(caller.grants, "operate", Resource(resource.cluster))
        if resource.tenant is None or (operates and not access.in_body):
            return tenant_of_grants(caller.grants) or ("", caller.name)
        return resource.cluster or "", resource.tenant

    def _caller(self, request: Request) -> Caller:
        if self._callers is not None:
            return self._callers.of(request.headers.get("authorization"))
        refused = refusal(request.headers, self._machine)
        if refused is not None:
            raise Forbidden(refused)
        return EVERYBODY

    @staticmethod
    async def _named(request: Request, access: Access) -> Iterable[str]:
        if access.in_body:
            body = await request.body()
            # The body is read before the caller is authorized, so its size is limited
            if len(body) > ANNOUNCEMENT_BYTES_MAX:
                raise HTTPException(
                    413,
                    f"the body is larger than {ANNOUNCEMENT_BYTES_MAX} bytes, the most that an announcement may "
                    "have: announce one file in each request",
                )
            notification = read(Notification, body)
            return notification.cluster_id, notification.tenant_id
        path = request.path_params
        return [name_of(path[name]) for name in _PARAMETERS[: _LEVELS[access.scope]]]


def caller_of(request: Request) -> Caller:
    """The caller of a request that passed the gate."""
    caller: Caller = request.state.caller
    return caller


def slot_of(request: Request) -> RequestSlot:
    """The permission to use a shared thread that the gate has given to a request."""
    slot: RequestSlot = request.state.slot
    return slot


def refuse_undeclared(routes: Iterable[BaseRoute], guarded: Iterable[BaseRoute]) -> None:
    """Check that every route declares who may use it. Raises UndeclaredAccess if one of `guarded`, the routes behind
    the gate, does not declare its access, or if any other route is missing in OPEN, the list of routes that need no
    token.
    """
    behind = {id(route) for route in every_route(guarded)}
    for route in every_route(routes):
        if id(route) in behind:
            Access.of(route)
        elif getattr(route, "path", None) not in OPEN:
            raise UndeclaredAccess(f"route {getattr(route, 'path', route)} is not behind the gate")


def every_route(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """All routes, including those of included routers."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is None:
            yield route
        else:
            yield from every_route(included.routes)
