"""Changefeeds with the names of TiCDC's API, for tools that know it (docs/changefeeds.md, "Changing a feed"). Pure.

`upstream_id` is the cluster's id if that is a number, else 0. `namespace` is the tenant's id.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms
from tistream.wire.bulk.changefeeds import ChangefeedInfo, State
from tistream.wire.sorter import Wire

_STATES: dict[State, str] = {
    "running": "normal",
    "retrying": "warning",
    "paused": "stopped",
    "failed": "failed",
    "finished": "finished",
    "removing": "removed",
}

# What TiCDC's tools may ask for: each of its states, some of which no feed of ours has, and `all`.
AskedState = Literal[
    "all", "normal", "pending", "warning", "failed", "stopped", "removed", "finished", "uninitialized", "unInitialized"
]


class TicdcError(Wire):
    """The reason why a feed does not advance. `addr` is the node name of the worker that reported the error."""

    time: str
    addr: str
    code: str
    message: str


class TicdcFeed(Wire):
    """An entry of `GET /api/v2/changefeeds`."""

    upstream_id: int
    namespace: str
    id: str
    state: str
    checkpoint_tso: int
    checkpoint_time: str
    error: TicdcError | None


class TicdcFeeds(Wire):
    """The answer of `GET /api/v2/changefeeds`."""

    total: int
    items: list[TicdcFeed]


class TicdcFeedDetail(Wire):
    """The answer of `GET /api/v2/changefeeds/{id}`. `target_ts` is 0 if the feed has no end. `config` is the feed's
    configuration with the keys of TiCDC's TOML file."""

    upstream_id: int
    namespace: str
    id: str
    sink_uri: str
    create_time: str
    start_ts: int
    target_ts: int
    config: dict[str, Any]
    state: str
    error: TicdcError | None
    resolved_ts: int
    checkpoint_ts: int
    checkpoint_time: str


def is_asked_for(feed: ChangefeedInfo, state: AskedState | None) -> bool:
    """Whether a list of feeds in this state, with a name of TiCDC, has the feed. None and `all`: a list of every
    feed."""
    return state in (None, "all", _STATES[feed.state])


def entry(tenant: TenantKey, feed: ChangefeedInfo) -> TicdcFeed:
    """Convert a feed to an entry of `GET /api/v2/changefeeds`."""
    return TicdcFeed(
        upstream_id=_upstream(tenant),
        namespace=tenant.tenant_id,
        id=feed.changefeed_id,
        state=_STATES[feed.state],
        checkpoint_tso=int(feed.checkpoint_ts),
        checkpoint_time=_time(int(feed.checkpoint_ts)),
        error=_error(feed),
    )


def detail(tenant: TenantKey, feed: ChangefeedInfo) -> TicdcFeedDetail:
    """Convert a feed to the answer of `GET /api/v2/changefeeds/{id}`."""
    checkpoint_ts = int(feed.checkpoint_ts)
    return TicdcFeedDetail(
        upstream_id=_upstream(tenant),
        namespace=tenant.tenant_id,
        id=feed.changefeed_id,
        sink_uri=feed.sink_uri,
        create_time=_wall(int(feed.created_ms)),
        start_ts=int(feed.start_ts),
        target_ts=0 if feed.end_ts is None else int(feed.end_ts),
        config=feed.config,
        state=_STATES[feed.state],
        error=_error(feed),
        resolved_ts=checkpoint_ts if feed.resolved_ts is None else max(checkpoint_ts, int(feed.resolved_ts)),
        checkpoint_ts=checkpoint_ts,
        checkpoint_time=_time(checkpoint_ts),
    )


def _upstream(tenant: TenantKey) -> int:
    return int(tenant.cluster_id) if tenant.cluster_id.isdecimal() else 0


def _error(feed: ChangefeedInfo) -> TicdcError | None:
    if feed.error is None:
        return None
    stage = feed.held_by[0].stage if feed.held_by else "sink"
    return TicdcError(
        time="" if feed.since_ms is None else _wall(int(feed.since_ms)),
        addr=feed.node_id or "",
        code=f"TiStream:{stage}",
        message=feed.error,
    )


def _time(ts: int) -> str:
    return _wall(physical_ms(ts))


def _wall(ms: int) -> str:
    """Format a time as TiCDC does, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"
