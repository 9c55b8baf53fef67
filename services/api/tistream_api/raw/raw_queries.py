"""The query parameters of PullRaw and RawValue, as models."""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import Query
from pydantic import Field, model_validator

from tistream.model.ids import TenantKey
from tistream.model.raw_row import KEYSPACE_MAX
from tistream.model.span import KeySpan
from tistream.read.raw_scope import RawScope
from tistream_api.request.params import ALL, FORMATS, LIMIT_DEFAULT, LIMIT_MAX, WAIT_MS_MAX, FormatName, PullParams
from tistream_api.request.queries import QueryModel, check_endless, check_position
from tistream_api.request.query_string import WrongQuery
from tistream_api.request.query_types import Decimal, Flag, HexKey, OptionalText, OptionalTs

OptionalKeyspace = Annotated[int | None, Decimal(0, KEYSPACE_MAX)]


class RawPullQuery(QueryModel):
    """The query parameters of PullRaw. Exactly one of `start_ts` and `cursor` is given."""

    start_ts: OptionalTs = Field(
        default=None, description="exclusive; either this or cursor. May lie ahead of resolved_ts, up to the present"
    )
    cursor: OptionalText = Field(default=None, description="where an answer ended; either this or start_ts")
    end_ts: OptionalTs = Field(default=None, description="inclusive, at least start_ts; give it with each request")
    keyspace: OptionalKeyspace = Field(default=None, description="id of the keyspace; default: every keyspace")
    start_key: HexKey = Field(default=b"", description="the user's key in hexadecimal, inclusive; with keyspace")
    end_key: HexKey = Field(default=b"", description="the user's key in hexadecimal, exclusive; with keyspace")
    limit: Annotated[int, Decimal(1, LIMIT_MAX)] = Field(default=LIMIT_DEFAULT, description="events in the answer")
    wait_ms: Annotated[int, Decimal(0, WAIT_MS_MAX)] = Field(
        default=0, description="long poll: wait that long for an event"
    )
    follow: Flag = Field(default=False, description="endless stream; not with limit, end_ts or parquet")
    format: FormatName = Field(
        default=FORMATS[0],
        description="of the answer: lines of JSON, one Arrow IPC stream, or a tar archive",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_position(self.start_ts, self.cursor, self.end_ts)
        check_endless(self.model_fields_set, follow=self.follow, form=self.format)
        if (self.start_key or self.end_key) and self.keyspace is None:
            raise WrongQuery("start_key and end_key are keys of one keyspace: give keyspace too", "keyspace")
        if self.end_key and self.end_key <= self.start_key:
            raise WrongQuery("end_key does not lie above start_key: the range is empty", "end_key")
        return self

    def scope(self, tenant: TenantKey) -> RawScope:
        """The scope of the pull: the keyspaces and keys that it reads."""
        users = KeySpan(self.start_key, self.end_key)
        return RawScope(tenant, keyspace=self.keyspace, users=users)

    def parsed(self, coding: str | None = None) -> PullParams:
        """Convert the query to the parameters of a pull. `coding`: the Content-Encoding of the answer."""
        return PullParams(
            self.start_ts, self.cursor, self.end_ts, self.limit, self.wait_ms, self.follow, self.format, ALL, coding
        )


class RawValueQuery(QueryModel):
    """The query parameters of RawValue."""

    key: HexKey = Field(description="the user's key in hexadecimal")
    keyspace: Annotated[int, Decimal(0, KEYSPACE_MAX)] = Field(default=0, description="id of the keyspace")
    ts: OptionalTs = Field(default=None, description="as of this time; default: the newest")


# As parameters of routes
RawPull = Annotated[RawPullQuery, Query()]
RawValueOf = Annotated[RawValueQuery, Query()]
