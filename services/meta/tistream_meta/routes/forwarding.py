"""Forwards requests to the owner if this meta server is not the owner."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from tistream import acting
from tistream.errors import Unavailable
from tistream.wire.clients.meta_client import MetaClient
from tistream_meta.owner.owner_calls import OwnerCalls
from tistream_meta.owner.server import MetaServer
from tistream_meta.routes.audit_routes import AuditedRoute, actor_of

FORWARDED = "tistream-forwarded-by"  # header: the meta server that forwarded the request


def server_of(request: Request) -> MetaServer:
    """The meta server of this process."""
    server: MetaServer = request.app.state.server
    return server


def owned_of(request: Request) -> OwnerCalls:
    """The OwnerCalls of this process. Raises Unavailable if this process is not the owner."""
    return server_of(request).owned()


def owner_client(request: Request) -> MetaClient | None:
    """A client of the owner, to which this request must be forwarded; None if this process is the owner. Raises
    Unavailable if no owner is known, or if another meta server forwarded the request here by mistake."""
    server = server_of(request)
    if server.is_owner():
        return None
    if FORWARDED in request.headers:
        raise Unavailable("this meta server is not the owner: retry")
    return server.owner()


class OwnersRoute(AuditedRoute):
    """A route that only the owner answers. A meta server that is not the owner forwards the request unchanged, with its
    actor, and returns the owner's answer. The owner validates the request and records it in the audit log."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of AuditedRoute if this process is the owner. Otherwise a handler that forwards the request."""
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            owner = owner_client(request)
            if owner is None:
                with server_of(request).writing():
                    return await handle(request)
            body = await request.body()
            with acting.acted_by(actor_of(request)):
                return await run_in_threadpool(_forwarded, owner, request, body)

        return answered


def _forwarded(owner: MetaClient, request: Request, body: bytes) -> Response:
    """Forward a request to the owner, and return its answer. Raises the error that the owner returned, or
    Unavailable."""
    query = request.scope["query_string"]
    path = (request.scope["raw_path"] + (b"?" + query if query else b"")).decode("ascii")
    answer = owner.request(request.method, path, body or None)
    return Response(answer.content, answer.status_code, media_type="application/json")
