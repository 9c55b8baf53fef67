"""The query parameters of SignedChanges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field

from tistream.filters.event_choice import EventChoice
from tistream_api.request.point_queries import When, between, given_in

_choice = lru_cache(maxsize=32)(EventChoice.parse)


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The parsed parameters of SignedChanges: the changes with low < commit_ts <= high. `choice`: the events that the
    reader wants; None: all."""

    low: When
    high: When
    choice: EventChoice | None


class SignedQuery(BaseModel):
    """The query parameters of SignedChanges, as text."""

    model_config = ConfigDict(frozen=True)

    start_ts: str | None = Field(default=None, description="exclusive; as of ChangeParts")
    end_ts: str | None = Field(default=None, description="inclusive; as of ChangeParts")
    operations: str | None = Field(
        default=None, description="as of PullTable: row groups without such events are left out; the reader filters"
    )
    where: str | None = Field(
        default=None, description="as of PullTable: row groups without such events are left out; the reader filters"
    )

    def parsed(self, raw: bytes) -> SignedRequest:
        """Parse the query string `raw`. Raises InvalidRequest, which names the parameter."""
        given = given_in(raw, SignedQuery)
        return SignedRequest(*between(given), _choice(None, given.get("operations"), None, given.get("where")))
