"""The request bodies that create and change a changefeed, and their conversion to the bodies that are sent to the meta
server and to the workers. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import Field

from tistream.errors import AlreadyDiffers, InvalidRequest
from tistream.model.ids import TenantKey
from tistream.model.ts import LOGICAL_BITS, physical_ms
from tistream.wire.bulk.changefeeds import (
    FEED_ID,
    URI_MAX,
    ChangefeedInfo,
    ChangefeedPlan,
    CreateChangefeed,
    CreatedChangefeed,
    NewChangefeed,
    Skip,
)
from tistream.wire.bulk.feed_changes import ChangedFeed, FeedLag, SkipEvent, UpdateChangefeed
from tistream.wire.bulk.feed_verify import KEY_MAX, TOPIC, VerifyChangefeed, VerifyFeed
from tistream_api.feeds.config_text import TEXT_MAX
from tistream_api.request.queries import QueryModel
from tistream_api.request.query_types import Flag
from tistream_api.routes import openapi

FEED_NAME = re.compile(FEED_ID)
_TS = {"type": ["string", "null"], "pattern": "^[0-9]+$"}
SCHEMA: dict[str, Any] = {
    "changefeed_id": {"type": "string", "pattern": FEED_ID, "example": "orders-to-kafka"},
    "sink_uri": {
        "type": "string",
        "maxLength": URI_MAX,
        "description": "a password in it is stored as a secret of the tenant",
        "example": "kafka://broker:9092/orders?protocol=open-protocol&partition-num=3",
    },
    "start_ts": {**_TS, "description": "exclusive; default: what the tenant has resolved"},
    "end_ts": {**_TS, "description": "inclusive; default: the feed does not end"},
    "config": {"type": "object", "description": "TiCDC's configuration file, as the JSON form of its TOML"},
    "config_toml": {
        "type": ["string", "null"],
        "description": "the text of that file, instead of config",
        "maxLength": TEXT_MAX,
    },
}


UPDATE: dict[str, Any] = openapi.json_doc(
    {
        "sink_uri": {**SCHEMA["sink_uri"], "type": ["string", "null"]},
        "end_ts": {**SCHEMA["end_ts"], "description": "inclusive, above the checkpoint; null: the feed does not end"},
        "config": {**SCHEMA["config"], "type": ["object", "null"]},
    },
    optional=True,
)
RESUME: dict[str, Any] = openapi.json_doc(
    {"checkpoint_ts": {**_TS, "description": "go on behind it; default: where the sink says"}}, optional=True
)


_OPTIONAL_TEXT = {"type": ["string", "null"]}
SKIP: dict[str, Any] = openapi.json_doc(
    {
        "commit_ts": {"type": "string", "pattern": "^[0-9]{1,19}$"},
        "table": {"type": "string", "description": "database.table", "example": "shop.orders"},
        "key": {**_OPTIONAL_TEXT, "description": "the raw key in hex, as the error of the changefeed names it"},
        "ddl_job": {**_OPTIONAL_TEXT, "pattern": "^[0-9]{1,18}$", "description": "or the job id of a DDL"},
        "reason": {"type": "string", "minLength": 1, "maxLength": 500},
    },
    required=["commit_ts", "table", "reason"],
)


_WITH_RANGE = ("kafka", "s3:", "file:", "iceberg:")  # sinks that keep each event, not the newest state
VERIFY_MS = 60_000  # of the range that is compared by default
VERIFY: dict[str, Any] = openapi.json_doc(
    {
        "from_ts": {**_TS, "description": "exclusive; default: a minute before to_ts"},
        "to_ts": {**_TS, "description": "inclusive; default: the checkpoint"},
        "table": {**_OPTIONAL_TEXT, "description": "database.table; default: all"},
        "key_from": {
            **_OPTIONAL_TEXT,
            "maxLength": KEY_MAX,
            "description": "of topics: the lowest value of the key's first column, of one table; default: all",
        },
        "key_to": {**_OPTIONAL_TEXT, "maxLength": KEY_MAX, "description": "the highest one"},
        "repair_topic": {
            **_OPTIONAL_TEXT,
            "pattern": TOPIC,
            "description": "write the events that are missing into this topic",
        },
    },
    optional=True,
)


class DryRunQuery(QueryModel):
    """The query parameters of CreateChangefeed."""

    dry_run: Flag = Field(default=False, description="answer the plan, a ChangefeedPlan, and create nothing")


class RemoveQuery(QueryModel):
    """The query parameters of RemoveChangefeed."""

    keep_progress: Flag = Field(default=False, description="the next changefeed of this id continues in the sink")


def start_of(ask: CreateChangefeed, resolved_ts: int) -> int:
    """The start_ts of a feed that will be created: the requested one, or the tenant's resolved_ts. Raises
    InvalidRequest if the requested start lies above resolved_ts, or if the end is not above the start."""
    start_ts = resolved_ts if ask.start_ts is None else int(ask.start_ts)
    if start_ts > resolved_ts:
        raise InvalidRequest(
            f"start_ts {start_ts} lies above the tenant's resolved_ts {resolved_ts}: leave it out to begin there",
            {"parameter": "start_ts"},
        )
    if ask.end_ts is not None and int(ask.end_ts) <= start_ts:
        raise InvalidRequest(
            f"end_ts {ask.end_ts} is not above start_ts {start_ts}: nothing would be sent", {"parameter": "end_ts"}
        )
    return start_ts


def start_again(ask: CreateChangefeed, there: ChangefeedInfo) -> int:
    """The start_ts of a feed whose creation is requested again while it exists (`there`). It is compared, and begins
    nothing: so it may lie below retention by now, and the tenant may have passed the feed's end."""
    return int(there.start_ts if ask.start_ts is None else ask.start_ts)


def new_feed(ask: CreateChangefeed, start_ts: int, plan: ChangefeedPlan) -> NewChangefeed:
    """Build the feed that is stored, from the request and the worker's plan. It has references to encrypted secrets in
    place of the passwords in the request."""
    return NewChangefeed(
        changefeed_id=ask.changefeed_id,
        sink_uri=plan.sink_uri,
        start_ts=str(start_ts),
        start_given=ask.start_ts is not None,
        end_ts=ask.end_ts,
        config=plan.config,
        secrets=plan.secrets,
    )


def created(made: bytes, plan: ChangefeedPlan) -> str:
    """The answer to CreateChangefeed: that of the meta server, `made`, with the warnings and the left-out tables of the
    plan."""
    answer = {**json.loads(made), "warnings": plan.warnings, "left_out": plan.left_out}
    return CreatedChangefeed.model_validate(answer).model_dump_json()


def creation_request(feed: ChangefeedInfo) -> CreateChangefeed:
    """The present settings of a feed as a creation request, without start_ts. A worker makes the plan of an existing
    feed from it; it is never used to create one."""
    return CreateChangefeed(
        changefeed_id=feed.changefeed_id, sink_uri=feed.sink_uri, end_ts=feed.end_ts, config=feed.config
    )


def merged(feed: ChangefeedInfo, ask: UpdateChangefeed) -> ChangedFeed:
    """Apply an update to a feed, and return the changed values. Members that the request leaves out are unchanged.
    Raises InvalidRequest for an empty request, and AlreadyDiffers if the feed runs: its sink need not answer then."""
    if not ask.model_fields_set:
        raise InvalidRequest("the body has none of sink_uri, end_ts and config: name what is to be changed")
    if feed.state in ("running", "retrying"):
        raise AlreadyDiffers(f"changefeed {feed.changefeed_id} runs: pause it, update it, and resume it")
    return ChangedFeed(
        revision=feed.revision,
        sink_uri=feed.sink_uri if ask.sink_uri is None else ask.sink_uri,
        end_ts=ask.end_ts if "end_ts" in ask.model_fields_set else feed.end_ts,
        config=feed.config if ask.config is None else ask.config,
    )


def changed_request(feed: ChangefeedInfo, changed: ChangedFeed) -> CreateChangefeed:
    """The creation request that equals the feed after the change; a worker checks it before the change is stored."""
    return CreateChangefeed(
        changefeed_id=feed.changefeed_id, sink_uri=changed.sink_uri, end_ts=changed.end_ts, config=changed.config
    )


def stored_change(changed: ChangedFeed, plan: ChangefeedPlan) -> ChangedFeed:
    """Build the change that is stored, from the requested change and the worker's plan. It has references to encrypted
    secrets in place of passwords."""
    return changed.model_copy(update={"sink_uri": plan.sink_uri, "config": plan.config, "secrets": plan.secrets})


def skip_of(ask: SkipEvent) -> Skip:
    """Convert a request to leave out an event. Raises InvalidRequest unless it has exactly one of `key` and `ddl_job`,
    and a `table` of the form database.table."""
    if (ask.key is None) == (ask.ddl_job is None):
        raise InvalidRequest(
            "a skip names one event: give key, the raw key of a row event in hex, or ddl_job, the job id of a DDL",
            {"parameter": "key"},
        )
    if "." not in ask.table[1:-1]:
        raise InvalidRequest(
            f"table {ask.table[:80]!r} is not of the form database.table, such as shop.orders", {"parameter": "table"}
        )
    return Skip(
        commit_ts=int(ask.commit_ts),
        table=ask.table,
        key=ask.key,
        ddl_job=None if ask.ddl_job is None else int(ask.ddl_job),
        reason=ask.reason,
    )


def range_of(tenant: TenantKey, feed: ChangefeedInfo, ask: VerifyChangefeed) -> VerifyFeed:
    """Convert a request to compare a feed's sink with the tenant's rows to the order for a worker.

    Topics and files are compared for commit_ts in (from_ts, to_ts], by default for the last VERIFY_MS up to the feed's
    checkpoint. Raises InvalidRequest if this range is empty, lies above the checkpoint, so that the sink does not have
    it yet, or lies below the ts from which on the feed has its present configuration. The tables of a database are
    compared as they are; a request with a range is then refused (see `_whole`). Also raises InvalidRequest for a
    malformed table name, and for a range of keys without a table.
    """
    if not feed.sink_uri.lower().startswith(_WITH_RANGE):
        return _whole(tenant, feed, ask)
    checkpoint_ts = int(feed.checkpoint_ts)
    lowest_ts = int(feed.start_ts) if feed.applied is None else max(feed.applied.from_ts, feed.applied.after_ts)
    to_ts = checkpoint_ts if ask.to_ts is None else int(ask.to_ts)
    if to_ts > checkpoint_ts:
        raise InvalidRequest(
            f"to_ts {to_ts} lies above the checkpoint {checkpoint_ts}, and what is above it is not in the sink yet: "
            "use a lower one, or wait",
            {"parameter": "to_ts"},
        )
    from_ts = max(lowest_ts, to_ts - (VERIFY_MS << LOGICAL_BITS)) if ask.from_ts is None else int(ask.from_ts)
    if from_ts < lowest_ts:
        raise InvalidRequest(
            f"from_ts {from_ts} lies below {lowest_ts}, from which on the feed has its present configuration: use "
            "that or more",
            {"parameter": "from_ts"},
        )
    if from_ts >= to_ts:
        raise InvalidRequest(
            f"from_ts {from_ts} is not below to_ts {to_ts}: the range is empty", {"parameter": "from_ts"}
        )
    return _verify_feed(tenant, feed, ask, from_ts, to_ts)


def _whole(tenant: TenantKey, feed: ChangefeedInfo, ask: VerifyChangefeed) -> VerifyFeed:
    """The order to compare the tables of a database, into which the feed writes, as they are now. Raises InvalidRequest
    if the request has from_ts or to_ts, or if the newest revision of the feed's settings is not in force yet."""
    for name, value in (("from_ts", ask.from_ts), ("to_ts", ask.to_ts)):
        if value is not None:
            raise InvalidRequest(
                f"{name} is for topics and files: the tables of a database are compared as they are",
                {"parameter": name},
            )
    done = 0 if feed.applied is None else feed.applied.revision
    if feed.revision > done:
        raise InvalidRequest(
            f"revision {feed.revision} of the feed is not in force yet, and tables are compared under it: resume the "
            "feed, or wait"
        )
    return _verify_feed(tenant, feed, ask, int(feed.start_ts), int(feed.checkpoint_ts))


def _verify_feed(
    tenant: TenantKey, feed: ChangefeedInfo, ask: VerifyChangefeed, from_ts: int, to_ts: int
) -> VerifyFeed:
    if ask.table is not None and "." not in ask.table[1:-1]:
        raise InvalidRequest(
            f"table {ask.table[:80]!r} is not of the form database.table, such as shop.orders", {"parameter": "table"}
        )
    if ask.table is None and (ask.key_from, ask.key_to) != (None, None):
        raise InvalidRequest("key_from and key_to are keys of one table: name it as table", {"parameter": "table"})
    return VerifyFeed(
        cluster_id=tenant.cluster_id,
        tenant_id=tenant.tenant_id,
        changefeed_id=feed.changefeed_id,
        sink_uri=feed.sink_uri,
        config=feed.config,
        skips=feed.skips,
        from_ts=from_ts,
        to_ts=to_ts,
        start_ts=int(feed.start_ts),
        table=ask.table,
        key_from=ask.key_from,
        key_to=ask.key_to,
        repair_topic=ask.repair_topic,
    )


def check_move(checkpoint_ts: int, resolved_ts: int) -> None:
    """Check the ts to which the caller moves a checkpoint. Raises InvalidRequest if it lies above the tenant's
    resolved_ts."""
    if checkpoint_ts > resolved_ts:
        raise InvalidRequest(
            f"checkpoint_ts {checkpoint_ts} lies above the tenant's resolved_ts {resolved_ts}: use at most that, or "
            "wait until the tenant has passed it",
            {"parameter": "checkpoint_ts"},
        )


def lag_of(feed: ChangefeedInfo, resolved_ts: int) -> FeedLag:
    """How many seconds a feed is behind the tenant's resolved_ts, or behind its own end_ts if that is lower."""
    high = resolved_ts if feed.end_ts is None else min(resolved_ts, int(feed.end_ts))
    read = None if feed.resolved_ts is None else max(0, physical_ms(high) - physical_ms(int(feed.resolved_ts))) / 1000
    return FeedLag(
        changefeed_id=feed.changefeed_id,
        state=feed.state,
        checkpoint_ts=feed.checkpoint_ts,
        resolved_ts=str(resolved_ts),
        lag_seconds=max(0, physical_ms(high) - physical_ms(int(feed.checkpoint_ts))) / 1000,
        read_seconds=read,
        held_by=feed.held_by,
    )
