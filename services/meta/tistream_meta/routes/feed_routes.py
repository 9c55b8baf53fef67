"""HTTP routes of changefeeds. They parse requests, call FeedBook and translate answers."""

from __future__ import annotations

import json

from fastapi import APIRouter, Request, Response

from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms
from tistream.secrets.references import names_in
from tistream.wire.bulk.changefeeds import (
    ChangefeedInfo,
    ChangefeedList,
    FeedAssignments,
    FeedReport,
    FeedShard,
    FeedWork,
    NewChangefeed,
    Skip,
    WorkerBeat,
)
from tistream.wire.bulk.feed_changes import ChangedFeed, FeedEvents, ResumeChangefeed
from tistream_meta.decide import feed_policy
from tistream_meta.decide.feed_policy import Feed, HeldShard
from tistream_meta.decide.liveness import NodeState
from tistream_meta.feeds import feed_shards
from tistream_meta.feeds.feed_book import FeedBook
from tistream_meta.feeds.secret_book import SecretBook
from tistream_meta.feeds.worker_board import WorkerBoard
from tistream_meta.routes.forwarding import OwnersRoute, owned_of

router = APIRouter(route_class=OwnersRoute)
FEEDS = "/v1/clusters/{cluster_id}/tenants/{tenant_id}/changefeeds"


@router.post(FEEDS, status_code=201, operation_id="CreateChangefeed")
def create_changefeed(
    request: Request, response: Response, cluster_id: str, tenant_id: str, body: NewChangefeed
) -> ChangefeedInfo:
    """Create a changefeed. 200 if the same changefeed exists already, 409 if a different one has this id."""
    found, new = _book(request).add(TenantKey.parse(cluster_id, tenant_id), body)
    response.status_code = 201 if new else 200
    return info_of(*found)


@router.get(FEEDS, operation_id="ListChangefeeds")
def list_changefeeds(request: Request, cluster_id: str, tenant_id: str) -> ChangefeedList:
    """The changefeeds of a tenant, by id."""
    found = _book(request).of_tenant(TenantKey.parse(cluster_id, tenant_id))
    return ChangefeedList(changefeeds=[info_of(*one) for one in found])


@router.get(FEEDS + "/{changefeed_id}", operation_id="GetChangefeed")
def get_changefeed(request: Request, cluster_id: str, tenant_id: str, changefeed_id: str) -> ChangefeedInfo:
    """One changefeed, with its progress."""
    return info_of(*_book(request).one(TenantKey.parse(cluster_id, tenant_id), changefeed_id))


@router.delete(FEEDS + "/{changefeed_id}", operation_id="RemoveChangefeed")
def remove_changefeed(
    request: Request, cluster_id: str, tenant_id: str, changefeed_id: str, *, keep_progress: bool = False
) -> ChangefeedInfo:
    """Remove a changefeed. What it has written stays in the sink. With keep_progress, the next feed of this id that is
    created without start_ts continues from there."""
    key = TenantKey.parse(cluster_id, tenant_id)
    return info_of(*_book(request).remove(key, changefeed_id, keep_progress=keep_progress))


@router.put(FEEDS + "/{changefeed_id}", operation_id="UpdateChangefeed")
def update_changefeed(
    request: Request, cluster_id: str, tenant_id: str, changefeed_id: str, body: ChangedFeed
) -> ChangefeedInfo:
    """Change a changefeed that does not run. Idempotent; 409 if it runs, or if it was changed in the meantime."""
    return info_of(*_book(request).update(TenantKey.parse(cluster_id, tenant_id), changefeed_id, body))


@router.post(FEEDS + "/{changefeed_id}/pause", operation_id="PauseChangefeed")
def pause_changefeed(request: Request, cluster_id: str, tenant_id: str, changefeed_id: str) -> ChangefeedInfo:
    """Pause a changefeed. Idempotent; 409 if it has finished."""
    return info_of(*_book(request).pause(TenantKey.parse(cluster_id, tenant_id), changefeed_id))


@router.post(FEEDS + "/{changefeed_id}/resume", operation_id="ResumeChangefeed")
def resume_changefeed(
    request: Request, cluster_id: str, tenant_id: str, changefeed_id: str, body: ResumeChangefeed | None = None
) -> ChangefeedInfo:
    """Resume a changefeed that is paused or has failed; with a checkpoint_ts it continues there. Idempotent; 409 if it
    has finished, or if it runs and checkpoint_ts is given."""
    ts = None if body is None or body.checkpoint_ts is None else int(body.checkpoint_ts)
    return info_of(*_book(request).resume(TenantKey.parse(cluster_id, tenant_id), changefeed_id, ts))


@router.post(FEEDS + "/{changefeed_id}/skip", operation_id="SkipEvent")
def skip_event(request: Request, cluster_id: str, tenant_id: str, changefeed_id: str, body: Skip) -> ChangefeedInfo:
    """Store that a changefeed must leave out this event. Idempotent."""
    return info_of(*_book(request).skip(TenantKey.parse(cluster_id, tenant_id), changefeed_id, body))


@router.get(FEEDS + "/{changefeed_id}/events", operation_id="ChangefeedEvents")
def changefeed_events(request: Request, cluster_id: str, tenant_id: str, changefeed_id: str) -> FeedEvents:
    """The events in the history of a changefeed, newest first."""
    return FeedEvents(events=list(_book(request).events(TenantKey.parse(cluster_id, tenant_id), changefeed_id)))


@router.post("/upcall/v1/changefeeds/beats", operation_id="WorkerBeat")
def worker_beat(request: Request, body: WorkerBeat) -> FeedAssignments:
    """Store a worker's reports, and answer with the shards that the worker must hold."""
    workers = {
        node.node_id
        for node, state, *_ in owned_of(request).nodes()
        if node.role == "changefeed" and state is NodeState.ALIVE
    }
    held = _book(request).beat(body, workers)
    board: WorkerBoard = request.app.state.workers
    for feed, shards in board.resizes(body, [feed for feed, _ in held]):
        _book(request).resize(feed.tenant, feed.feed_id, shards)
    return FeedAssignments(
        shards=[_work(*one, _sealed(request, one[0])) for one in held],
        quota_sharers=dict(board.sharers(body)),
    )


def _sealed(request: Request, feed: Feed) -> dict[str, str]:
    """The encrypted secrets to which a feed refers, by name."""
    names = names_in(feed.sink_uri, json.loads(feed.config))
    if not names:
        return {}
    book: SecretBook = request.app.state.secrets
    return {name: sealed for name, sealed in book.sealed(feed.tenant).items() if name in names}


def _work(feed: Feed, shard: HeldShard, secrets: dict[str, str]) -> FeedWork:
    return FeedWork(
        shard=FeedShard(
            cluster_id=feed.tenant.cluster_id,
            tenant_id=feed.tenant.tenant_id,
            changefeed_id=feed.feed_id,
            shard=shard.shard,
            generation=feed.generation,
        ),
        epoch=shard.epoch,
        sink_uri=feed.sink_uri,
        config=json.loads(feed.config),
        start_ts=feed.start_ts if feed.begin_ts is None else feed.begin_ts,
        end_ts=feed_shards.end_ts(feed),
        secrets=secrets,
        revision=feed.revision,
        moved=feed.moved,
        skips=list(feed.skips),
        shards=feed_shards.shard_count(feed),
        known_ts=feed_shards.known_ts(feed, shard),
        cutting=feed.recut is not None,
    )


def info_of(feed: Feed, shard: HeldShard) -> ChangefeedInfo:
    """A changefeed as users see it. `shard`: its shard, or several as one."""
    report = None if shard.report is None else FeedReport.model_validate_json(shard.report)
    info = ChangefeedInfo(
        changefeed_id=feed.feed_id,
        state=feed_policy.shown_state(feed.state, None if report is None else report.phase),
        sink_uri=feed.sink_uri,
        config=json.loads(feed.config),
        start_ts=str(feed.start_ts),
        end_ts=None if feed.end_ts is None else str(feed.end_ts),
        created_ms=str(feed.generation),
        checkpoint_ts=str(shard.checkpoint_ts),
        error=feed.error,
        node_id=shard.node_id,
        epoch=shard.epoch,
        revision=feed.revision,
        applied=feed.applied,
        skips=list(feed.skips),
        skipped_events=sum(feed.skipped.values()),
    )
    if report is None:
        return info
    rows, size = feed_shards.with_ended(feed, report.rows, report.bytes)
    has_read = report.resolved_ts > 0  # a feed that cannot begin has read nothing
    lag_ms = max(0, physical_ms(report.resolved_ts) - physical_ms(shard.checkpoint_ts))
    return info.model_copy(
        update={
            "resolved_ts": str(report.resolved_ts) if has_read else None,
            "lag_seconds": lag_ms / 1000 if has_read else None,
            "held_by": report.held_by,
            "error": report.error or feed.error,
            "since_ms": None if report.since_ms is None else str(report.since_ms),
            "rows": rows,
            "bytes": size,
            "retries": report.retries,
            "stopped": report.stopped,
        }
    )


def _book(request: Request) -> FeedBook:
    found: FeedBook = request.app.state.feeds
    return found
