"""Counts the bytes and rows that answers send, by tenant, and writes the access log: one JSON line for each answered
request."""

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
from tistream.service.observe.usage import UsageMeter
from tistream.wire.usage import hour_of
from tistream_api.auth.callers import Caller
from tistream_api.request.raw_path import name_of

log = logging.getLogger("tistream_api.served")  # the access log: programs that read it know this name

_METER = "tistream.served"
_TENANT = re.compile(r"/v1/clusters/([^/]+)/tenants/([^/]+)(?:/|$)")


class AnswerMeter:
    """Counts the bytes and rows that one answer has sent since its last line in the access log. Thread-safe, because
    rows and bytes are counted by different threads."""

    def __init__(self, meter: UsageMeter, tenant: TenantKey | None) -> None:
        self._meter, self.tenant = meter, tenant
        self._lock = new_lock()
        self._size = self._rows = 0

    def add_rows(self, rows: int) -> None:
        """Count rows that are about to be sent."""
        self._add(0, rows)

    def add_bytes(self, size: int) -> None:
        """Count bytes of the body that were handed to the connection, or that a reader may fetch by signed URLs."""
        self._add(size, 0)

    def _add(self, size: int, rows: int) -> None:
        with self._lock:
            self._size += size
            self._rows += rows
        if self.tenant is not None and (size or rows):
            self._meter.served(self.tenant, size, rows)

    def drain(self) -> tuple[int, int]:
        """Return (bytes, rows) counted since the last call, and begin again at 0."""
        with self._lock:
            sent, self._size, self._rows = (self._size, self._rows), 0, 0
        return sent


def answer_meter_of(scope: Scope) -> AnswerMeter:
    """The AnswerMeter of the request that is being answered."""
    found: AnswerMeter = scope[_METER]
    return found


class MeteringMiddleware:
    """Middleware that counts what answers send, and writes the access log. RawPath wraps it, so paths are still
    percent-encoded here. Only answers with a 2xx status are counted; all are logged. An answer that continues into
    another hour has a log line for each hour, so that the lines of an hour add up to what was counted.

    This middleware wraps the one that sets a request's cause id, so it reads the id from the answer's headers. It reads
    the caller from the request's state, where the gate has recorded it.
    """

    def __init__(self, app: ASGIApp, meter: UsageMeter, clock: Clock, *, access_log: bool) -> None:
        self._app, self._meter, self._clock, self._access_log = app, meter, clock, access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = AnswerMeter(self._meter, _tenant(scope["path"]))
        scope = {**scope, _METER: answer, "state": {**scope.get("state", {})}}
        began_ms, hour_ms, status = self._clock.monotonic_ms(), hour_of(self._clock.now_ms()), 0
        # Replaced by the answer's, if there is an answer
        cause_id = cause.accepted(Headers(scope=scope).get(cause.HEADER))

        async def counted(message: Message) -> None:
            nonlocal status, hour_ms, cause_id
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
                cause_id = Headers(raw=message.get("headers", [])).get(cause.HEADER, cause_id)
            elif message["type"] == "http.response.body" and status < 300:
                now_ms = hour_of(self._clock.now_ms())
                if now_ms != hour_ms:
                    self._tell(scope, answer, cause_id, status, began_ms, ended=False)
                    hour_ms = now_ms
                answer.add_bytes(len(message.get("body", b"")))

        try:
            await self._app(scope, receive, counted)
        finally:
            self._tell(scope, answer, cause_id, status, began_ms, ended=True)

    def _tell(
        self, scope: Scope, answer: AnswerMeter, cause_id: str | None, status: int, began_ms: int, *, ended: bool
    ) -> None:
        size, rows = answer.drain()
        if not self._access_log or not scope["path"].startswith("/v1/"):
            return
        caller: Caller | None = scope["state"].get("caller")
        fields = {
            "cause_id": cause_id,
            "caller": None if caller is None else caller.name,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "tenant": None if answer.tenant is None else str(answer.tenant),
            "bytes": size,
            "rows": rows,
            "ms": self._clock.monotonic_ms() - began_ms,
            # The share of `ms` by which a rejection was delayed: reject_throttle.py
            "waited_ms": scope["state"].get("waited_ms", 0),
            "ended": ended,
        }
        log.info("answered" if ended else "being answered", extra=fields)


def _tenant(path: str) -> TenantKey | None:
    """The tenant that a path names. None if the path names none, or a name that no tenant can have (the answer is a
    404)."""
    found = _TENANT.match(path)
    if found is None:
        return None
    try:
        return TenantKey.parse(name_of(found[1]), name_of(found[2]))
    except (InvalidRequest, UnknownName):
        return None
