"""HTTP routes that change a changefeed. They parse requests, call the parts of the server that answer them, and
translate the results."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from tistream.follow.tenants import Tenants
from tistream.wire.bulk.changefeeds import ChangefeedInfo
from tistream.wire.bulk.feed_changes import ResumeChangefeed, SkipEvent, UpdateChangefeed
from tistream_api.admission import gate
from tistream_api.feeds.feed_body import (
    RESUME,
    SKIP,
    UPDATE,
    RemoveQuery,
    changed_request,
    check_move,
    merged,
    skip_of,
    stored_change,
)
from tistream_api.feeds.feed_calls import FeedCalls, feed_path
from tistream_api.feeds.feed_routes import FEED
from tistream_api.request.bodies import Body, read
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi


def build_feed_change_router(tenants: Tenants, calls: FeedCalls) -> APIRouter:
    """Build the router of the calls that change a changefeed. Its routes must be behind the gate
    (admission/gate.py)."""
    router = APIRouter(tags=["changefeed"])

    @router.put(
        FEED,
        operation_id="UpdateChangefeed",
        response_model=ChangefeedInfo,
        responses=openapi.RESTORE_PROBLEMS,
        openapi_extra=UPDATE,
    )
    @gate.FEED_TENANT
    def update_changefeed(cluster_id: str, tenant_id: str, changefeed_id: str, body: Body) -> Response:
        """Change the sink URI, the configuration or the end of a changefeed that does not run; 409 if it runs. A member
        that is left out is unchanged. The change applies once the feed has been resumed and a worker has opened the
        sink: `applied` has the ts from which it applies."""
        ask = read(UpdateChangefeed, body)
        path = feed_path(cluster_id, tenant_id, changefeed_id)
        feed = calls.feed(cluster_id, tenant_id, changefeed_id)
        view = tenants.view(name_of(cluster_id), name_of(tenant_id))
        changed = merged(feed, ask)
        plan = calls.plan(view.tenant, changed_request(feed, changed))
        return calls.forward("PUT", path, stored_change(changed, plan).model_dump_json().encode())

    @router.delete(
        FEED, operation_id="RemoveChangefeed", response_model=ChangefeedInfo, responses=openapi.TENANT_PROBLEMS
    )
    @gate.FEED_TENANT
    def remove_changefeed(
        cluster_id: str, tenant_id: str, changefeed_id: str, query: Annotated[RemoveQuery, Query()]
    ) -> Response:
        """Remove a changefeed. What it has written stays in the sink. With keep_progress, a changefeed that is created
        again under this id, without start_ts, continues from its progress in the sink."""
        kept = "?keep_progress=true" if query.keep_progress else ""
        return calls.forward("DELETE", feed_path(cluster_id, tenant_id, changefeed_id) + kept)

    @router.post(
        FEED + "/pause",
        operation_id="PauseChangefeed",
        response_model=ChangefeedInfo,
        responses=openapi.CANCEL_PROBLEMS,
    )
    @gate.FEED_TENANT
    def pause_changefeed(cluster_id: str, tenant_id: str, changefeed_id: str) -> Response:
        """Pause a changefeed. Idempotent; 409 if it has finished."""
        return calls.forward("POST", f"{feed_path(cluster_id, tenant_id, changefeed_id)}/pause")

    @router.post(
        FEED + "/resume",
        operation_id="ResumeChangefeed",
        response_model=ChangefeedInfo,
        responses=openapi.RESTORE_PROBLEMS,
        openapi_extra=RESUME,
    )
    @gate.FEED_TENANT
    def resume_changefeed(cluster_id: str, tenant_id: str, changefeed_id: str, body: Body) -> Response:
        """Resume a changefeed that is paused or has failed. It continues from the progress in its sink, or from
        checkpoint_ts if that is given. A move forward leaves a gap, a move back sends events again, and
        ChangefeedEvents records both. Idempotent; 409 if it has finished, or if a running one would be moved; 410 if
        checkpoint_ts lies below retention."""
        path = f"{feed_path(cluster_id, tenant_id, changefeed_id)}/resume"
        ask = read(ResumeChangefeed, body or b"{}")
        if ask.checkpoint_ts is not None:
            view = tenants.view(name_of(cluster_id), name_of(tenant_id))
            view.wait_fresh()
            view.check_known()
            check_move(int(ask.checkpoint_ts), view.resolved_ts())
            view.check_served(int(ask.checkpoint_ts))
        return calls.forward("POST", path, ask.model_dump_json().encode())

    @router.post(
        FEED + "/skip",
        operation_id="SkipEvent",
        response_model=ChangefeedInfo,
        responses=openapi.CANCEL_PROBLEMS,
        openapi_extra=SKIP,
    )
    @gate.FEED_TENANT
    def skip_event(cluster_id: str, tenant_id: str, changefeed_id: str, body: Body) -> Response:
        """Let a changefeed leave out one event: a row event by its key, or a DDL by its job. The event goes to the
        topic `{topic}-dead-letter`, and is counted in `skipped_events`. A changefeed that has failed is resumed
        afterwards. Idempotent."""
        path = f"{feed_path(cluster_id, tenant_id, changefeed_id)}/skip"
        return calls.forward("POST", path, skip_of(read(SkipEvent, body)).model_dump_json().encode())

    return router
