"""Whether a request is answered here or forwarded to the owner."""

from __future__ import annotations

from fastapi import Request

from tistream.errors import Unavailable
from tistream.wire.clients.meta_client import MetaClient
from tistream_meta.owner.server import MetaServer

FORWARDED = "tistream-forwarded-by"  # header: the meta server that forwarded the request


def server_of(request: Request) -> MetaServer:
    """The meta server of this process."""
    server: MetaServer = request.app.state.server
    return server


def elsewhere(request: Request) -> MetaClient | None:
    """A client of the owner, to which the request is to be forwarded; None if this process is the owner.

    Raises Unavailable if no owner is known, or if another meta server forwarded the request here by mistake.
    """
    server = server_of(request)
    if server.is_owner():
        return None
    if FORWARDED in request.headers:
        raise Unavailable("this meta server is not the owner")
    return server.owner()
