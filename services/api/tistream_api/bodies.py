"""Bodies of requests, as bytes until the gate has let them in."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from tistream.errors import InvalidRequest

M = TypeVar("M", bound=BaseModel)


async def _body(request: Request) -> bytes:
    return await request.body()


Body = Annotated[bytes, Depends(_body)]


def read(model: type[M], body: bytes) -> M:
    """JSON as `model`. Raises InvalidRequest, naming each member that is wrong."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        mistakes = [
            {"in": "body", "name": ".".join(map(str, one["loc"])), "reason": one["msg"]}
            for one in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        detail = "; ".join(f"body {one['name']}: {one['reason']}" for one in mistakes)
        raise InvalidRequest(detail, {"parameters": mistakes}) from error
