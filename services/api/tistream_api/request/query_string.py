"""Rejects query strings with unknown, repeated or malformed parameters, for every route behind the gate.

Typed models alone would accept such parameters. The answer is a 400 that names the parameter. The models in queries.py
check the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from tistream.errors import InvalidRequest
from tistream.service.http import problems

NAME_MAX = 80  # characters of an unknown parameter's name that an answer repeats


class WrongQuery(ValueError):
    """Raised by the validators of query models if a parameter breaks a rule that involves other parameters."""

    def __init__(self, text: str, parameter: str) -> None:
        super().__init__(text)
        self.parameter = parameter


async def strict_query(request: Request) -> None:
    """Refuse a query string with a parameter that the route does not have, or that is given twice. Every route has this
    as a FastAPI dependency, which runs after the gate. Raises InvalidRequest, which names the parameter."""
    check(request.scope["query_string"], names_of(request.scope["route"]))


def names_of(route: APIRoute) -> list[str]:
    """The names of a route's query parameters, from its model; empty if the route takes none."""
    models = [field.field_info.annotation for field in route.dependant.query_params]
    return [name for model in models for name in parameters(model)]


def parameters(model: Any) -> list[str]:
    """The names of a query model's parameters."""
    assert isinstance(model, type)
    assert issubclass(model, BaseModel)
    return [field.alias or name for name, field in model.model_fields.items()]


def check(query: bytes, known: Sequence[str]) -> None:
    """Check that each parameter's name is in `known` and occurs once, and that names and values are UTF-8. Raises
    InvalidRequest."""
    seen: set[str] = set()
    for part in filter(None, query.split(b"&")):
        raw_name, _, raw_value = part.partition(b"=")
        name, _ = _text(raw_name), _text(raw_value)
        if name not in known:
            allowed = f"this call takes {', '.join(known)}" if known else "this call takes none"
            shown = name[:NAME_MAX]
            raise InvalidRequest(f"unknown parameter {shown!r}; {allowed}", {"parameter": shown})
        if name in seen:
            raise InvalidRequest(f"{name} is given more than once", {"parameter": name})
        seen.add(name)


def _text(raw: bytes) -> str:
    """Decode a name or a value from UTF-8. Bytes that are not ASCII must be percent-encoded (RFC 3986 2.1), because the
    models read the query with another decoder, and both must read the same. Raises InvalidRequest."""
    try:
        return unquote_to_bytes(raw.decode("ascii").replace("+", " ")).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("the query is not UTF-8: percent-encode the UTF-8 bytes of names and values") from error


def refusal(errors: Iterable[Any]) -> InvalidRequest:
    """Convert the first error that a query model reports to an InvalidRequest, which names the parameter."""
    first = next(iter(errors))
    if isinstance(wrong := first.get("ctx", {}).get("error"), WrongQuery):
        return InvalidRequest(str(wrong), {"parameter": wrong.parameter})
    name = str(first["loc"][-1])
    if first["input"] == "":
        reason = "is empty"
    elif first["type"] == "literal_error":
        reason = f"is not one of {first['ctx']['expected']}".replace("'", "").replace(" or ", ", ")
    else:
        reason = str(first.get("ctx", {}).get("error", first["msg"]))
    return InvalidRequest(f"{name} {reason}", {"parameter": name})


def on_invalid(_request: Request, error: Exception) -> Response:
    """Answer a request whose query model is invalid. FastAPI calls it as an exception handler."""
    assert isinstance(error, RequestValidationError)
    return problems.for_error(refusal(error.errors()))
