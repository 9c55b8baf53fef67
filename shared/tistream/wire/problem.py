"""Converts RFC 9457 problems to the errors of tistream.errors. If the class that a peer raised can be built from the
problem, it is raised here too; otherwise PeerBusy or PeerFailed is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tistream.errors import (
    AlreadyDiffers,
    ClaimEnded,
    FatalError,
    Gone,
    InvalidRequest,
    LimitReached,
    QuotaReached,
    SourceRefused,
    Superseded,
    TargetNotAllowed,
    TiStreamError,
    Unavailable,
    Undecodable,
    UnknownName,
)

MEDIA_TYPE = "application/problem+json"
_TYPE_PREFIX = "tistream:"
_STANDARD = frozenset({"type", "title", "status", "detail", "instance", "cause_id"})

# Classes whose constructor has a detail only. Other errors have facts that a problem does not repeat. They arrive as
# the nearest ancestor in this list, which requires the same reaction of the caller.
_BY_CODE: dict[str, type[InvalidRequest]] = {
    error.code: error
    for error in (
        InvalidRequest,
        UnknownName,
        AlreadyDiffers,
        LimitReached,
        QuotaReached,
        Superseded,
        ClaimEnded,
        TargetNotAllowed,
        Gone,
        SourceRefused,
        Undecodable,
    )
}
_RETRYABLE_STATUS = frozenset({408, 425, 429, 502, 503, 504})


class PeerFailed(FatalError):
    """Raised if a peer answered with an error that this process must not retry. `peer_code` (None: unknown) and
    `status` are the peer's."""

    code = "peer-failed"
    http_status = 502

    def __init__(self, detail: str, *, status: int, peer_code: str | None) -> None:
        super().__init__(detail)
        self.status = status
        self.peer_code = peer_code


class PeerBusy(Unavailable):
    """Raised if a peer answered that the caller must try again later, or if a proxy got no answer from the peer (408,
    425, 429, 502, 503 or 504). `retry_after_s`: the wait that the answer requests; None if it requests none, or
    states a date."""

    def __init__(self, detail: str, *, retry_after_s: float | None) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


def to_error(where: str, status: int, body: Mapping[str, Any], retry_after: str | None = None) -> TiStreamError:
    """Convert an answer with `status` >= 400 to an error. `where` names the request in the error's text. `body` is the
    answer's JSON, or empty. `retry_after`: the answer's Retry-After header; None: it has none."""
    kind = body.get("type")
    code = kind.removeprefix(_TYPE_PREFIX) if isinstance(kind, str) and kind.startswith(_TYPE_PREFIX) else None
    detail = str(body.get("detail") or body.get("title") or f"status {status}")
    known = _BY_CODE.get(code or "")
    if known is not None:
        return known(detail, {name: value for name, value in body.items() if name not in _STANDARD})
    if status in _RETRYABLE_STATUS:
        return PeerBusy(f"{where}: {detail}", retry_after_s=_seconds(retry_after))
    return PeerFailed(f"{where}: {detail}", status=status, peer_code=code)


def _seconds(retry_after: str | None) -> float | None:
    """Parse a Retry-After header that has a number of seconds (RFC 9110 10.2.3). Returns None if it has a date; the
    caller then uses its own back-off."""
    return float(retry_after) if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else None
