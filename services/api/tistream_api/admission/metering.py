"""What answers have sent, to be metered per tenant, and the access log: a JSON line for each answered request."""

from __future__ import annotations

import logging
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tistream import cause
from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.errors import InvalidRequest, UnknownName
from tistream.model.ids import TenantKey
from tistream.service.usage import UsageMeter
from tistream.wire.usage import hour_of
from tistream_api.auth.callers import Caller
from tistream_api.request.raw_path import name_of

log = logging.getLogger("tistream_api.served")  # the access log: programs that read it know this name

_PART = "tistream.served"
_TENANT = re.compile(r"/v1/clusters/([^/]+)/tenants/([^/]+)(?:/|$)")


class Part:
    """What one answer has sent since the last line of the log. Rows are counted by one thread, bytes by another."""

    def __init__(self, meter: UsageMeter, tenant: TenantKey | None) -> None:
        self._meter, self.tenant = meter, tenant
        self._lock = new_lock()
        self._size = self._rows = 0

    def add_rows(self, rows: int) -> None:
        """Rows are about to be sent."""
        self._add(0, rows)

    def add_bytes(self, size: int) -> None:
        """Bytes of the body were handed to the connection."""
        self._add(size, 0)

    def _add(self, size: int, rows: int) -> None:
        with self._lock:
            self._size += size
            self._rows += rows
        if self.tenant is not None and (size or rows):
            self._meter.served(self.tenant, size, rows)

    def taken(self) -> tuple[int, int]:
        """Bytes and rows; from here on they begin at 0."""
        with self._lock:
            sent, self._size, self._rows = (self._size, self._rows), 0, 0
        return sent


def part_of(scope: Scope) -> Part:
    """Of the request that is being answered."""
    found: Part = scope[_PART]
    return found


class Served:
    """Middleware, inside RawPath. Answers other than 2xx are no service: they are logged, and not metered.

    An answer that goes on in another hour has a line for each, so that the lines of an hour add up to what is metered.
    It is outside of what names a request's cause, which it reads from the answer; what the gate notes of who asks, from
    the request's state.
    """

    def __init__(self, app: ASGIApp, meter: UsageMeter, clock: Clock, *, access_log: bool) -> None:
        self._app, self._meter, self._clock, self._access_log = app, meter, clock, access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        part = Part(self._meter, _tenant(scope["path"]))
        scope = {**scope, _PART: part, "state": {**scope.get("state", {})}}
        began_ms, hour_ms, status = self._clock.monotonic_ms(), hour_of(self._clock.now_ms()), 0
        cause_id = cause.accepted(Headers(scope=scope).get(cause.HEADER))  # and if there is an answer, as it says

        async def counted(message: Message) -> None:
            nonlocal status, hour_ms, cause_id
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
                cause_id = Headers(raw=message.get("headers", [])).get(cause.HEADER, cause_id)
            elif message["type"] == "http.response.body" and status < 300:
                now_ms = hour_of(self._clock.now_ms())
                if now_ms != hour_ms:
                    self._tell(scope, part, cause_id, status, began_ms, ended=False)
                    hour_ms = now_ms
                part.add_bytes(len(message.get("body", b"")))

        try:
            await self._app(scope, receive, counted)
        finally:
            self._tell(scope, part, cause_id, status, began_ms, ended=True)

    def _tell(self, scope: Scope, part: Part, cause_id: str | None, status: int, began_ms: int, *, ended: bool) -> None:
        size, rows = part.taken()
        if not self._access_log or not scope["path"].startswith("/v1/"):
            return
        caller: Caller | None = scope["state"].get("caller")
        fields = {
            "cause_id": cause_id,
            "caller": None if caller is None else caller.name,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "tenant": None if part.tenant is None else str(part.tenant),
            "bytes": size,
            "rows": rows,
            "ms": self._clock.monotonic_ms() - began_ms,
            "waited_ms": scope["state"].get("waited_ms", 0),  # of those, for nothing: reject_throttle.py
            "ended": ended,
        }
        log.info("answered" if ended else "being answered", extra=fields)


def _tenant(path: str) -> TenantKey | None:
    """Whose answer it is, if there is a tenant of that name: else the answer is a 404."""
    found = _TENANT.match(path)
    if found is None:
        return None
    try:
        return TenantKey.parse(name_of(found[1]), name_of(found[2]))
    except (InvalidRequest, UnknownName):
        return None
