"""Reads request bodies. A body stays raw bytes until the gate has authorized the request, and is parsed afterwards."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from tistream.errors import InvalidRequest

M = TypeVar("M", bound=BaseModel)
# Each invalid member is listed, which costs time that no rate limit counts; the longest valid body has 330
MEMBERS_MAX = 1_000
MISTAKES_MAX, NAME_MAX = 20, 80  # limits of the listed mistakes: their number, and the length of a name


async def _body(request: Request) -> bytes:
    return await request.body()


Body = Annotated[bytes, Depends(_body)]


def read(model: type[M], body: bytes) -> M:
    """Parse JSON as `model`. Raises InvalidRequest, which names the first members that are wrong."""
    if body.count(b":") > MEMBERS_MAX:
        raise InvalidRequest(
            f"the body has more than {MEMBERS_MAX} members, the most that are read: send less in one request"
        )
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        mistakes = [
            {"in": "body", "name": ".".join(map(str, one["loc"]))[:NAME_MAX], "reason": one["msg"]}
            for one in error.errors(include_url=False, include_context=False, include_input=False)[:MISTAKES_MAX]
        ]
        reasons = [f"body {one['name']}".rstrip() + f": {one['reason']}" for one in mistakes]
        if (more := error.error_count() - len(reasons)) > 0:
            reasons.append(f"{more} more")
        detail = "; ".join(reasons)
        raise InvalidRequest(detail, {"parameters": mistakes}) from error
