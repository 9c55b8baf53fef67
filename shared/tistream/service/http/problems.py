"""Builds RFC 9457 problems, the error answers of all services."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from tistream import cause
from tistream.errors import InvalidRequest, TiStreamError, TooManyRequests, Unauthenticated

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = "1"

# http.HTTPStatus changes its phrases between Python versions; a problem's type must not change.
_CODES = {400: InvalidRequest.code, 404: "not-found", 405: "method-not-allowed", 413: "content-too-large"}


def problem_response(
    status: int,
    code: str,
    detail: str,
    extra: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Build an answer with a problem of type `tistream:<code>`. An answer with status 429 or 503 has a Retry-After
    header. The problem's `cause_id` is also in the log lines of the request."""
    title = code.replace("-", " ").capitalize()
    body = {"type": f"tistream:{code}", "title": title, "status": status, "detail": _text(detail), **(extra or {})}
    if (cause_id := cause.current()) is not None:
        body["cause_id"] = cause_id
    head = dict(headers or {})
    if status in (429, 503):
        head.setdefault("Retry-After", RETRY_AFTER_SECONDS)
    return Response(json.dumps(body, default=str).encode(), status, head, MEDIA_TYPE)


def _text(detail: str) -> str:
    """Escape lone surrogates. Names from a request may contain them, and UTF-8 cannot encode them."""
    return detail.encode("utf-8", "backslashreplace").decode()


def for_error(error: TiStreamError) -> Response:
    """Convert an error of TiStream to a problem answer."""
    extra = error.extra if isinstance(error, InvalidRequest) else None
    headers = {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return problem_response(error.http_status, error.code, str(error), extra, headers)


def install(app: FastAPI) -> None:
    """Register the handlers that answer our errors, invalid parameters, and unknown paths and methods as problems."""
    app.add_exception_handler(TiStreamError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)


def _on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TiStreamError)
    return for_error(error)


def _on_validation(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [
        _no_json(item) if item["type"] == "json_invalid" else _parameter(item["loc"], item["msg"])
        for item in error.errors()
    ]
    detail = "; ".join(f"{item['in']} {item['name']}".rstrip() + f": {item['reason']}" for item in found)
    return problem_response(400, InvalidRequest.code, detail, {"parameters": found})


def _no_json(item: dict[str, Any]) -> dict[str, str]:
    """The text for a JSON syntax error. Pydantic reports the position as if it were a field's name, and the reason in
    the context `ctx`."""
    place, at = item["loc"][0], item["loc"][-1]
    return {"in": str(place), "name": "", "reason": f"is not valid JSON: {item['ctx']['error']} at character {at}"}


def _parameter(loc: Sequence[Any], reason: str) -> dict[str, str]:
    place, *path = [str(part) for part in loc] or ["request"]
    return {"in": place, "name": _text(".".join(path)), "reason": _text(reason)}


def _on_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, f"http-{error.status_code}")
    return problem_response(error.status_code, code, str(error.detail), headers=error.headers)
