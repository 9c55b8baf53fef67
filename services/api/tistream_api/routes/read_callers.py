"""Describes the caller of a read: what the caller may see, whether it may still read, and whether it is still
connected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from fastapi import Request
from starlette.exceptions import HTTPException

from tistream.concurrency import new_event
from tistream.follow.tenant_view import TenantView
from tistream.wire.tokens import Grant
from tistream_api.admission.gate import Gate, caller_of, slot_of
from tistream_api.admission.metering import answer_meter_of
from tistream_api.auth.access import Resource, allows, allows_part
from tistream_api.encode.shown_names import MayRead
from tistream_api.pull.admitted import ReadCaller
from tistream_api.request.head_requests import is_head


def readable(grants: Sequence[Grant], view: TenantView) -> MayRead | None:
    """Make a function that returns whether a name of the tenant may be shown to the holder of the grants; None if all
    names may be shown."""
    tenant = (view.tenant.cluster_id, view.tenant.tenant_id)
    if allows(grants, "read", Resource(*tenant)):
        return None

    def may_read(database: str, table: str) -> bool:
        if not table:  # a database, which lists show if the caller may read something in it
            return allows_part(grants, "read", Resource(*tenant, database))
        return allows(grants, "read", Resource(*tenant, database, table))

    return may_read


async def watched(request: Request) -> AsyncIterator[None]:
    """Watch the connection of a request: set the event `request.state.gone` when the client disconnects. A pull checks
    the event even before its first byte."""
    gone = request.state.gone = new_event()

    async def until_gone() -> None:
        with suppress(HTTPException):  # an unread body that is too large
            while (await request.receive())["type"] != "http.disconnect":
                pass
            gone.set()

    watching = asyncio.create_task(until_gone())
    try:
        yield
    finally:
        watching.cancel()


def read_caller_of(request: Request, guard: Gate, view: TenantView) -> ReadCaller:
    """The ReadCaller of a request that passed the gate. A HEAD request sends no rows, so none are counted."""
    caller = caller_of(request)
    has_slot, gone = slot_of(request).end, request.state.gone.is_set
    may_read = readable(caller.grants, view)
    if is_head(request.scope):
        return ReadCaller(guard.still(caller), has_slot=has_slot, may_read=may_read, gone=gone)
    return ReadCaller(guard.still(caller), answer_meter_of(request.scope).add_rows, has_slot, may_read, gone)
