"""The query parameters of SignedChanges."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from tistream_api.request.point_queries import When, between, given_in


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The parsed parameters of SignedChanges: the changes with low < commit_ts <= high."""

    low: When
    high: When


class SignedQuery(BaseModel):
    """The query parameters of SignedChanges, as text."""

    model_config = ConfigDict(frozen=True)

    start_ts: str | None = Field(default=None, description="exclusive; as of ChangeParts")
    end_ts: str | None = Field(default=None, description="inclusive; as of ChangeParts")

    def parsed(self, raw: bytes) -> SignedRequest:
        """Parse the query string `raw`. Raises InvalidRequest, which names the parameter."""
        return SignedRequest(*between(given_in(raw, SignedQuery)))
