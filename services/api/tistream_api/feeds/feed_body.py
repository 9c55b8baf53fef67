"""The body of CreateChangefeed, and the ts of a new feed. Pure."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from tistream.errors import InvalidRequest
from tistream.wire.bulk.changefeeds import FEED_ID, URI_MAX, CreateChangefeed, NewChangefeed
from tistream_api.request.queries import QueryModel
from tistream_api.request.query_types import Flag

FEED_NAME = re.compile(FEED_ID)
_TS = {"type": ["string", "null"], "pattern": "^[0-9]+$"}
SCHEMA: dict[str, Any] = {
    "changefeed_id": {"type": "string", "pattern": FEED_ID, "example": "orders-to-kafka"},
    "sink_uri": {
        "type": "string",
        "maxLength": URI_MAX,
        "description": "without a password",
        "example": "kafka://broker:9092/orders?protocol=open-protocol&partition-num=3",
    },
    "start_ts": {**_TS, "description": "exclusive; default: what the tenant has resolved"},
    "end_ts": {**_TS, "description": "inclusive; default: the feed does not end"},
    "config": {"type": "object", "description": "TiCDC's configuration file, as the JSON form of its TOML"},
}


class DryRunQuery(QueryModel):
    """The query parameters of CreateChangefeed."""

    dry_run: Flag = Field(default=False, description="answer the plan, a ChangefeedPlan, and create nothing")


def new_feed(ask: CreateChangefeed, resolved_ts: int) -> NewChangefeed:
    """The feed to create. `resolved_ts`: of the tenant. Raises InvalidRequest for a start in the future, or an end that
    is not above the start."""
    start_ts = resolved_ts if ask.start_ts is None else int(ask.start_ts)
    if start_ts > resolved_ts:
        raise InvalidRequest(
            f"start_ts {start_ts} lies above the tenant's resolved_ts {resolved_ts}", {"parameter": "start_ts"}
        )
    if ask.end_ts is not None and int(ask.end_ts) <= start_ts:
        raise InvalidRequest(f"end_ts {ask.end_ts} is not above start_ts {start_ts}", {"parameter": "end_ts"})
    return NewChangefeed(
        changefeed_id=ask.changefeed_id,
        sink_uri=ask.sink_uri,
        start_ts=str(start_ts),
        start_given=ask.start_ts is not None,
        end_ts=ask.end_ts,
        config=ask.config,
    )
