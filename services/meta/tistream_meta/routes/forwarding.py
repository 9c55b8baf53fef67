"""Whether a request is answered here, or by the meta server that is the owner."""

from __future__ import annotations

from fastapi import Request

from tistream.errors import Unavailable
from tistream.wire.meta_client import MetaClient
from tistream_meta.owner.server import MetaServer

FORWARDED = "tistream-forwarded-by"  # header: the meta server that sent the request on


def server_of(request: Request) -> MetaServer:
    """The one in this process."""
    server: MetaServer = request.app.state.server
    return server


def elsewhere(request: Request) -> MetaClient | None:
    """The owner, where that is another: it is asked in place of this one. None: it is this one.

    Raises Unavailable: nobody is the owner, or the one who sent this on took this one for it.
    """
    server = server_of(request)
    if server.is_owner():
        return None
    if FORWARDED in request.headers:
        raise Unavailable("this meta server is not the owner")
    return server.owner()
