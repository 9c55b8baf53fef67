"""Sends one request until it has a complete answer: decides which failures are retried, when, and for how long."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, TypeVar
from urllib.parse import unquote

from tistream_client.core.errors import (
    ApiError,
    NoAnswer,
    TiStreamError,
    TooManyRequests,
    Unavailable,
    UnknownName,
    api_error,
)
from tistream_client.core.steps import Answer, Asking, Fetch, Lost, Wait

T = TypeVar("T")
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_TENANT = re.compile(r"(/v1/clusters/[^/?]+/tenants)/([^/?]+)")
_NAMES = 5


class CutOff(Exception):
    """Raised if an answer is not complete, because its end is missing."""


@dataclass(slots=True)
class Contact:
    """Whether the server has ever answered. Shared by all reads of a client."""

    made: bool = False


@dataclass(frozen=True, slots=True)
class Patience:
    """Retries requests. A request fails once its waits exceed `retry_for` seconds in total; None: never. `url` names
    the server in errors. `random` returns a number from 0 to 1, which spreads the retries of many clients over time."""

    url: str
    retry_for: float | None
    random: Callable[[], float]
    contact: Contact = field(default_factory=Contact)

    def endless(self) -> Patience:
        """A copy whose retries never end. If the server was never reached, `ask` still fails at once."""
        return replace(self, retry_for=None)

    def ask(self, request: Fetch, read: Callable[[Answer], T]) -> Asking[T]:
        """Send the request until the server answers 200 and `read` returns a result; `read` raises CutOff for an
        incomplete answer. Lost and incomplete answers, 429, and the statuses of Unavailable (408, 425, 502, 503, 504)
        are retried. Raises ApiError for any other error answer, NoAnswer at once if the server was never reached, and
        the last failure when the retries end."""
        waited, pause = 0.0, _FIRST_PAUSE_S
        while True:
            reply = yield request
            assert reply is not None
            failure: TiStreamError
            if isinstance(reply, Lost):
                failure = NoAnswer(f"no answer from {self.url}: {reply.reason}. Is the URL right, and the server up?")
                if not (self.contact.made or reply.connected):
                    raise failure
            else:
                try:
                    return self._answered(request, reply, read)
                except CutOff:
                    failure = NoAnswer(f"answers of {self.url} for {request.path} end before their last line")
                except (TooManyRequests, Unavailable) as error:
                    failure = error
                except UnknownName as error:
                    path = tenants_path(error)
                    listed = None if path is None else (yield Fetch(path, {}))
                    raise with_near_tenant(error, listed) if isinstance(listed, Answer) else error from None
            self.contact.made = True
            seconds = self._pause(failure, pause)
            if self.retry_for is not None and waited + seconds > self.retry_for:
                raise failure
            yield Wait(seconds)
            waited, pause = waited + seconds, min(2 * pause, _LONGEST_PAUSE_S)

    def _answered(self, request: Fetch, answer: Answer, read: Callable[[Answer], T]) -> T:
        self.contact.made = True
        if answer.status != 200 or is_page(answer.headers.get("content-type")):
            raise failed(request.path, answer)
        return read(answer)

    def _pause(self, failure: TiStreamError, pause: float) -> float:
        wanted = failure.retry_after_s if isinstance(failure, ApiError) else None
        spread = 0.5 + self.random() / 2
        return pause * spread if wanted is None else wanted + _FIRST_PAUSE_S * spread


def failed(path: str, answer: Answer) -> ApiError:
    """The exception for an answer that is an error, or a page for people in place of an answer of the API."""
    try:
        problem = json.loads(answer.body)
    except ValueError:
        problem = {"detail": answer.body[:200].decode("utf-8", "replace").strip()}
    return api_error(
        path, answer.status, problem if isinstance(problem, dict) else {}, answer.headers.get("retry-after")
    )


def document_of(answer: Answer) -> dict[str, Any]:
    """The JSON object of an answer; empty if it is something else, such as the page of a proxy."""
    try:
        found = json.loads(answer.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def is_page(answer_type: str | None) -> bool:
    """Whether an answer with this content-type is a page for people, which no call of the API returns."""
    return (answer_type or "").startswith("text/")


def json_of(answer: Answer) -> dict[str, object]:
    """The JSON object of an answer. Raises CutOff if the answer is not a JSON object."""
    try:
        found = json.loads(answer.body)
    except ValueError as error:
        raise CutOff from error
    if not isinstance(found, dict):
        raise CutOff
    return found


def tenants_path(error: ApiError) -> str | None:
    """The path of the call that lists the tenants of the cluster, if the error is an unknown tenant; otherwise
    None."""
    found = _TENANT.match(error.where)
    return found[1] if found and isinstance(error, UnknownName) and "no tenant" in error.detail else None


def with_near_tenant(error: ApiError, listed: Answer) -> ApiError:
    """Add the names of similar tenants to the error of an unknown tenant. `listed` is the answer of the list of
    tenants; if that was refused, the error is returned unchanged."""
    found = _TENANT.match(error.where)
    if found is None or listed.status != 200:
        return error
    names = _tenant_names(listed)
    near = get_close_matches(unquote(found[2]), names, 1)
    if near:
        more = f"; did you mean {near[0]}?"
    else:
        more = f"; the cluster has {', '.join(names[:_NAMES])}{', …' if len(names) > _NAMES else ''}" if names else ""
    return UnknownName(error.where, error.status, {**error.problem, "detail": f"{error.detail}{more}"})


def _tenant_names(listed: Answer) -> list[str]:
    tenants = document_of(listed).get("tenants")
    found = tenants if isinstance(tenants, list) else []
    return [str(one["tenant_id"]) for one in found if isinstance(one, dict) and "tenant_id" in one]
