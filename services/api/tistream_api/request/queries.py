"""The query parameters of each call, as models: FastAPI reads them, and describes them in the OpenAPI document.

Their validators raise ValueError, which query_string.py turns into a 400 that names the parameter (design.md 5).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Annotated, ClassVar, Self, get_args
from urllib.parse import urlencode

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from tistream.filters.event_choice import EventChoice
from tistream.model.ids import TenantKey
from tistream.model.ts import MAX_TS
from tistream.wire.audit import LIMIT_DEFAULT as AUDIT_LIMIT
from tistream.wire.audit import LIMIT_MAX as AUDIT_LIMIT_MAX
from tistream.wire.changes import TS_PATTERN
from tistream_api.request.params import (
    ALL,
    ENDLESS_FORMATS,
    FORMATS,
    LAG_MINUTES_MAX,
    LIMIT_DEFAULT,
    LIMIT_MAX,
    ROWS,
    WAIT_MS_MAX,
    EventKinds,
    FormatName,
    PullParams,
)
from tistream_api.request.query_string import WrongQuery
from tistream_api.request.query_types import (
    SHOWN_MAX,
    Decimal,
    Flag,
    HexKey,
    OptionalText,
    OptionalTs,
    OptionalTsOrText,
)

WALL_MS_MAX = 10**15  # the year 33658
DDL_LIMIT_DEFAULT = 100
DDL_LIMIT_MAX = 1_000
MAX_SEQ = (1 << 63) - 1

_choice = lru_cache(maxsize=32)(EventChoice.parse)

Events = Annotated[EventKinds | None, WithJsonSchema({"type": "string", "enum": list(get_args(EventKinds))})]
WallMs = Annotated[int | None, Decimal(0, WALL_MS_MAX, "^[0-9]{1,16}$")]


class QueryModel(BaseModel):
    """Base of the query models. Values are strings from the query, and are converted only as the type of the field
    says."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def check_position(start_ts: int | str | None, cursor: str | None, end_ts: int | str | None) -> None:
    """Check that a pull has exactly one of `start_ts` and `cursor`, and that start_ts is not above end_ts. Raises
    WrongQuery."""
    if (start_ts is None) == (cursor is None):
        raise WrongQuery("give either start_ts or cursor, and not both", "start_ts")
    if isinstance(start_ts, int) and isinstance(end_ts, int) and end_ts < start_ts:
        raise WrongQuery(f"end_ts {end_ts} lies below start_ts {start_ts}: the range is empty", "end_ts")


def check_endless(given: Collection[str], *, follow: bool, form: str) -> None:
    """Check that the query of an endless stream (`follow`) has none of the parameters that only pages have, and a
    format (`form`) that can be endless. `given` are the names of its parameters. Raises WrongQuery."""
    if not follow:
        return
    for name in ("limit", "end_ts"):
        if name in given:
            raise WrongQuery(
                f"{name} is not allowed with follow=true, which is an endless stream: leave one of them out", name
            )
    if form not in ENDLESS_FORMATS:
        raise WrongQuery(
            f"format {form} is made of whole files, and follow=true is an endless stream: use "
            f"{' or '.join(ENDLESS_FORMATS)}",
            "format",
        )


class AnyPullQuery(QueryModel):
    """The query parameters of every pull. Exactly one of `start_ts` and `cursor` is given."""

    one_table: ClassVar[bool] = False

    start_ts: OptionalTsOrText = Field(
        default=None,
        description="exclusive; either this or cursor. May lie ahead of resolved_ts, up to the present: the answer "
        "then ends with `resolved` at start_ts itself",
    )
    cursor: OptionalText = Field(default=None, description="where an answer ended; either this or start_ts")
    end_ts: OptionalTsOrText = Field(
        default=None, description="inclusive, at least start_ts; give it with each request"
    )
    limit: Annotated[int, Decimal(1, LIMIT_MAX)] = Field(
        default=LIMIT_DEFAULT, description="row and ddl events in the answer"
    )
    wait_ms: Annotated[int, Decimal(0, WAIT_MS_MAX)] = Field(
        default=0, description="long poll: wait that long for an event"
    )
    follow: Flag = Field(default=False, description="endless stream; not with limit, end_ts or parquet")
    format: FormatName = Field(
        default=FORMATS[0],
        description="of the answer: lines of JSON, Arrow IPC streams (see events), or a tar archive of Parquet files",
    )
    events: Events = Field(
        default=None,
        description="which events the answer has; default: all. format=arrow has no default: rows is one IPC stream "
        "with one schema (of PullTable alone; a page ends before the schema changes), ddl is one IPC stream, all is "
        "several IPC streams one after the other",
    )

    squash: Flag = Field(
        default=False,
        description="net changes between start_ts and end_ts: each key once. Not with follow and wait_ms; a cursor "
        "goes with squash=true until a `resolved`, and then without it",
    )

    snapshot: OptionalText = Field(
        default=None,
        description="rows as of this time first (now, a TSO, an RFC 3339 time); the cursor after them continues with "
        "every change above. 409 for a table whose rows are not known then: run a backfill",
    )

    operations: OptionalText = Field(
        default=None, description="only these row events: insert, update, delete, with commas between"
    )
    columns: OptionalText = Field(
        default=None, description="only these columns of `row` and `old_row`: rules as `id,total` or `*,!secret`"
    )
    where: OptionalText = Field(
        default=None, description="only row events whose row or old row fulfils this SQL expression over its columns"
    )

    @property
    def rules(self) -> str | None:
        """The parameter `tables`; None for a pull of one table."""
        return None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.squash or self.snapshot is not None:
            return self  # point_queries.squash_ask has the rules, and reads times
        self._check_numbers()
        check_position(self.start_ts, self.cursor, self.end_ts)
        check_endless(self.model_fields_set, follow=self.follow, form=self.format)
        if self.format == "arrow":
            self._check_one_stream()
        return self

    def _check_numbers(self) -> None:
        for name in ("start_ts", "end_ts"):
            if isinstance(text := getattr(self, name), str):
                reason = f"{name} {text[:SHOWN_MAX]!r} is not a decimal number from 0 to {MAX_TS}"
                raise WrongQuery(reason, name)

    def _check_one_stream(self) -> None:
        """Check that a query with format=arrow has `events`, and has events=rows only for one table. Many Arrow readers
        stop after the first IPC stream and would miss the rest, so a client gets several streams only if it asks for
        events=all. Raises WrongQuery."""
        if self.events is None:
            raise WrongQuery(
                "events is required with format=arrow: events=rows (one table's rows, one IPC stream of one schema), "
                "events=ddl (DDL events, one IPC stream) or events=all (several IPC streams, one after the other)",
                "events",
            )
        if self.events == ROWS and not self.one_table:
            raise WrongQuery(
                "events=rows with format=arrow is one stream with one schema, and several tables have several: pull "
                "one table, or ask for events=all or format=parquet",
                "events",
            )

    def parsed(self, coding: str | None = None) -> PullParams:
        """Convert the query to the parameters of a pull. `coding`: the Content-Encoding of the answer. The filter is
        parsed here, in a thread of the request, because the models are made in the event loop, which must not wait for
        a long `where`. Raises InvalidRequest, which names the parameter."""
        events = ALL if self.events is None else self.events
        assert not isinstance(self.start_ts, str)
        assert not isinstance(self.end_ts, str)
        return PullParams(
            self.start_ts,
            self.cursor,
            self.end_ts,
            self.limit,
            self.wait_ms,
            self.follow,
            self.format,
            events,
            coding,
            _choice(self.rules, self.operations, self.columns, self.where),
        )


class PullQuery(AnyPullQuery):
    """The query parameters of PullDB and PullTenant."""

    tables: OptionalText = Field(
        default=None, description="only tables that these rules of TiCDC include: `shop.*,!shop.secret`"
    )

    @property
    def rules(self) -> str | None:
        """The parameter `tables`; None if it is not given."""
        return self.tables


class TablePullQuery(AnyPullQuery):
    """The query parameters of PullTable."""

    one_table: ClassVar[bool] = True


class AtQuery(QueryModel):
    """The query parameters of ListDBs, ListTables and TableSchema."""

    ts: OptionalTs = Field(default=None, description="as of this time; default: the newest")


class CoverageQuery(QueryModel):
    """The query parameters of Coverage: the key range `[start_key, end_key)`; an empty end is unbounded."""

    start_key: HexKey = Field(default=b"", description="hexadecimal, inclusive; empty: from the first key")
    end_key: HexKey = Field(default=b"", description="hexadecimal, exclusive; empty: to the last key")

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.end_key and self.end_key <= self.start_key:
            raise WrongQuery("end_key does not lie above start_key: the range is empty", "end_key")
        return self


class LagQuery(QueryModel):
    """The query parameters of TenantLag."""

    minutes: Annotated[int, Decimal(1, LAG_MINUTES_MAX)] = Field(default=LAG_MINUTES_MAX, description="how far back")


class DdlQuery(QueryModel):
    """The query parameters of DdlHistory."""

    before_ts: Annotated[int | None, Decimal(1, MAX_TS, TS_PATTERN)] = Field(
        default=None, description="exclusive; default: the newest"
    )
    limit: Annotated[int, Decimal(1, DDL_LIMIT_MAX)] = Field(
        default=DDL_LIMIT_DEFAULT, description="events in the answer"
    )


class ForwardedQuery(QueryModel):
    """Base of the models of queries that are forwarded to the meta server."""

    def text(self) -> str:
        """The query string for the meta server. It has every parameter whose value, given or default, is not null."""
        return urlencode(self.model_dump(by_alias=True, exclude_none=True))


class UsageQuery(ForwardedQuery):
    """The query parameters of TenantUsage."""

    from_ms: WallMs = Field(
        default=None,
        alias="from",
        description="milliseconds since the Unix epoch, inclusive; default: a day before `to`",
    )
    to_ms: WallMs = Field(
        default=None,
        alias="to",
        description="milliseconds since the Unix epoch, exclusive; default: the end of the present hour",
    )


class AuditQuery(ForwardedQuery):
    """The query parameters of AuditLog."""

    after: Annotated[int | None, Decimal(0, MAX_SEQ)] = Field(
        default=None, description="the entries above this seq; default: the newest ones"
    )
    limit: Annotated[int, Decimal(1, AUDIT_LIMIT_MAX)] = Field(default=AUDIT_LIMIT, description="how many")
    cluster_id: OptionalText = Field(default=None, description="with tenant_id: what is about that tenant alone")
    tenant_id: OptionalText = Field(default=None, description="with cluster_id")

    @model_validator(mode="after")
    def _one_tenant(self) -> Self:
        if (self.cluster_id is None) != (self.tenant_id is None):
            raise WrongQuery(
                "cluster_id and tenant_id are needed together: give the other one too, or neither", "tenant_id"
            )
        if self.cluster_id is not None and self.tenant_id is not None:
            TenantKey.parse(self.cluster_id, self.tenant_id)  # its InvalidRequest names the invalid one
        return self


# As parameters of routes
Pull = Annotated[PullQuery, Query()]
TablePull = Annotated[TablePullQuery, Query()]
At = Annotated[AtQuery, Query()]
CoverageRange = Annotated[CoverageQuery, Query()]
LagMinutes = Annotated[LagQuery, Query()]
DdlBefore = Annotated[DdlQuery, Query()]
UsageHours = Annotated[UsageQuery, Query()]
AuditPart = Annotated[AuditQuery, Query()]
