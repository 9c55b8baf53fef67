"""The gate before every route: who calls, whether that may be, and whether it is too much. What is there is not looked
at: an answer of the gate is the same for what exists and what does not.

Each route declares its access in the OpenAPI document, as `x-tistream-access`; one that does not is refused when the
app is built.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from tistream.acting import ADDRESS_MAX, Actor, acted_by
from tistream.errors import Forbidden
from tistream.wire.meta import Notification
from tistream.wire.tokens import Action, home
from tistream_api.admission.request_queue import Turn, Turns
from tistream_api.admission.tenant_limits import TenantLimits
from tistream_api.auth.access import Resource, may, may_some
from tistream_api.auth.browser_guard import refusal
from tistream_api.auth.callers import EVERYBODY, Caller, Callers
from tistream_api.request.bodies import read
from tistream_api.request.raw_path import name_of

DECLARED = "x-tistream-access"
SECURITY: list[dict[str, list[str]]] = [{"bearer": []}]
SCHEME = {"bearer": {"type": "http", "scheme": "bearer", "description": "a token of `tistream token`, or a JWT"}}
# What names no tenant, and is asked by who has no token: probes, who wants to know the contract, the console's files.
OPEN = frozenset(
    ("/healthz", "/readyz", "/openapi.json", "/metrics", "/", "/docs", "/console", "/console/{name:path}")
)  # of /metrics: metrics_gate.py
ANNOUNCEMENT_BYTES_MAX = 1 << 10  # none that is right is half as long
_ACTIONS = get_args(Action)
_LEVELS = {"platform": 0, "cluster": 1, "tenant": 2, "database": 3, "table": 4}
_PARAMETERS = ("cluster_id", "tenant_id", "db", "table")


class NotDeclared(Exception):
    """A route says nothing of who may call it, or nothing that is understood."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may call a route: who may do one of the actions with what its path names down to `scope`. `partly`: or with
    something in it; what of the answer that is, the route decides. `in_body`: the names are in the body, not the path.
    """

    actions: tuple[Action, ...]
    scope: str
    partly: bool = False
    in_body: bool = False

    def declared(self, extra: dict[str, Any] | None = None) -> dict[str, Any]:
        """openapi_extra of the route, with whatever else there is."""
        told: dict[str, Any] = {"action": "|".join(self.actions), "scope": self.scope}
        told |= {"partly": True} if self.partly else {}
        told |= {"in": "body"} if self.in_body else {}
        return {**(extra or {}), "security": SECURITY, DECLARED: told}

    @classmethod
    def of(cls, route: object) -> Access:
        """As a route has declared it. Raises NotDeclared."""
        told = (getattr(route, "openapi_extra", None) or {}).get(DECLARED)
        if not isinstance(told, dict) or told.get("scope") not in _LEVELS:
            raise NotDeclared(f"route {getattr(route, 'path', route)} does not declare {DECLARED}")
        actions = tuple(told["action"].split("|"))
        if not actions or set(actions) - set(_ACTIONS):
            raise NotDeclared(f"route {getattr(route, 'path', route)}: {actions} are no actions")
        return cls(actions, told["scope"], bool(told.get("partly")), told.get("in") == "body")


READ_TABLE = Access(("read",), "table")
READ_DATABASE = Access(("read",), "database")
READ_TENANT = Access(("read",), "tenant")
LIST_DATABASES = Access(("read",), "tenant", partly=True)
LIST_TABLES = Access(("read",), "database", partly=True)
LIST_TENANTS = Access(("read", "operate"), "cluster", partly=True)
PUSH = Access(("push",), "tenant", in_body=True)
OPERATE_TENANT = Access(("operate",), "tenant")
OPERATE_CLUSTER = Access(("operate",), "cluster")
OPERATE_PLATFORM = Access(("operate",), "platform")
OVERVIEW = Access(("read", "operate"), "platform", partly=True)
OPERATE_OWN = Access(("operate",), "platform", partly=True)


class Gate:
    """`check` is a dependency of every route. Without `callers` (auth is off) everybody may do everything but pages of
    other sites, in a browser on this machine, which calls itself `machine`."""

    def __init__(self, callers: Callers | None, limits: TenantLimits, turns: Turns, machine: str) -> None:
        self._callers, self._limits, self._turns, self._machine = callers, limits, turns, machine

    async def check(self, request: Request) -> AsyncIterator[None]:
        """Let it pass when it is its turn, and note who it is. Raises Unauthenticated, Forbidden, TooManyRequests."""
        access = Access.of(request.scope["route"])
        caller = self._caller(request)
        request.state.caller = caller
        names = await self._named(request, access)
        resource = Resource(*names)
        decide = may_some if access.partly else may
        if not any(decide(caller.grants, action, resource) for action in access.actions):
            wanted = " or ".join(access.actions)
            raise Forbidden(f"the token does not grant {wanted} of this {access.scope}")
        who = self._counted(caller, resource, access)
        (self._limits.notification if access.in_body else self._limits.request)(who)
        # A meta server that hangs holds announcements, of which there are many; pulls and lists do without it.
        turn = request.state.turn = await self._turns.begin((*who, "push") if access.in_body else who)
        actor = Actor(caller.name, None if request.client is None else request.client.host[:ADDRESS_MAX])
        try:
            with acted_by(actor):
                yield
        finally:
            turn.end()

    def still(self, caller: Caller) -> Callable[[], bool]:
        """Whether somebody who was let in would be let in now."""
        callers = self._callers
        return (lambda: True) if callers is None else (lambda: callers.still(caller))

    def _counted(self, caller: Caller, resource: Resource, access: Access) -> tuple[str, str]:
        """Whose limit it counts for: that of the tenant which it names, or else which the token is of, who can make any
        number of them; and of who asks as the operator of a cluster, who must get through to a tenant that uses all
        that it may (no tenant is called "")."""
        operates = self._callers is not None and may(caller.grants, "operate", Resource(resource.cluster))
        if resource.tenant is None or (operates and not access.in_body):
            return home(caller.grants) or ("", caller.name)
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
            if len(body) > ANNOUNCEMENT_BYTES_MAX:  # it is read here, before anything says that it may be asked
                raise HTTPException(413, f"the body is larger than {ANNOUNCEMENT_BYTES_MAX} bytes")
            told = read(Notification, body)
            return told.cluster_id, told.tenant_id
        path = request.path_params
        return [name_of(path[name]) for name in _PARAMETERS[: _LEVELS[access.scope]]]


def caller_of(request: Request) -> Caller:
    """Who was let in."""
    caller: Caller = request.state.caller
    return caller


def turn_of(request: Request) -> Turn:
    """The one that a request has that was let in."""
    turn: Turn = request.state.turn
    return turn


def refuse_undeclared(routes: Iterable[BaseRoute], guarded: Iterable[BaseRoute]) -> None:
    """`guarded` are the routes that have the gate before them. Raises NotDeclared for one that does not say who may
    call it, and for any other that is not open to everybody."""
    behind = {id(route) for route in every_route(guarded)}
    for route in every_route(routes):
        if id(route) in behind:
            Access.of(route)
        elif getattr(route, "path", None) not in OPEN:
            raise NotDeclared(f"route {getattr(route, 'path', route)} is not behind the gate")


def every_route(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """Those of included routers too."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is None:
            yield route
        else:
            yield from every_route(included.routes)
