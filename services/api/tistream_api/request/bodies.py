"""Bodies of requests, as bytes until the gate has let them in."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from tistream.errors import InvalidRequest

M = TypeVar("M", bound=BaseModel)
MEMBERS_MAX = 1_000  # each that is wrong is listed, by work that no limit counts: the longest body has 330
MISTAKES_MAX, NAME_MAX = 20, 80  # of those listed


async def _body(request: Request) -> bytes:
    return await request.body()


Body = Annotated[bytes, Depends(_body)]


def read(model: type[M], body: bytes) -> M:
    """JSON as `model`. Raises InvalidRequest, naming the first members that are wrong."""
    if body.count(b":") > MEMBERS_MAX:
        raise InvalidRequest(f"the body has more than {MEMBERS_MAX} members")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        mistakes = [
            {"in": "body", "name": ".".join(map(str, one["loc"]))[:NAME_MAX], "reason": one["msg"]}
            for one in error.errors(include_url=False, include_context=False, include_input=False)[:MISTAKES_MAX]
        ]
        told = [f"body {one['name']}".rstrip() + f": {one['reason']}" for one in mistakes]
        if (more := error.error_count() - len(told)) > 0:
            told.append(f"{more} more")
        detail = "; ".join(told)
        raise InvalidRequest(detail, {"parameters": mistakes}) from error
