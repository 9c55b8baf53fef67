"""Query strings as the API reads them: the check of names, FastAPI's decoder, a query model, and its problem."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams

from tistream_api.request.query_string import check, parameters, refusal

M = TypeVar("M", bound=BaseModel)


def parse(model: type[M], query: bytes) -> M:
    """The parameters of a query string. Raises InvalidRequest, as a route would."""
    check(query, parameters(model))
    try:
        return model.model_validate(dict(QueryParams(query)))
    except ValidationError as error:
        raise refusal(error.errors()) from error
