"""The parsed parameters of a pull. queries.py reads them from a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tistream.filters.event_choice import EventChoice

LIMIT_DEFAULT = 10_000
LIMIT_MAX = 1_000_000
WAIT_MS_MAX = 60_000
LAG_MINUTES_MAX = 60

FormatName = Literal["ndjson", "arrow", "parquet"]
EventKinds = Literal["all", "rows", "ddl"]
FORMATS: tuple[FormatName, ...] = get_args(FormatName)
ENDLESS_FORMATS = ("ndjson", "arrow")
ALL, ROWS, DDL = get_args(EventKinds)


@dataclass(frozen=True, slots=True)
class PullParams:
    """The parameters of PullTable, PullDB, PullTenant and PullRaw. Exactly one of `start_ts` (exclusive) and `cursor`
    is set. `end_ts` is inclusive; None: no end. `limit`: the most events of a page. `wait_ms`: how long a page waits
    for an event. `follow`: an endless stream."""

    start_ts: int | None
    cursor: str | None
    end_ts: int | None
    limit: int
    wait_ms: int
    follow: bool
    format: str = FORMATS[0]
    events: str = ALL
    coding: str | None = None  # the Content-Encoding of the answer, from the header Accept-Encoding; no query parameter
    choice: EventChoice | None = None  # the filter
