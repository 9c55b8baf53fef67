"""The HTTP route that creates a changefeed. It parses the request, calls the parts of the server that answer it, and
translates the result.

The meta server stores the feeds, and workers run them. Only a worker knows which hosts a feed may write to and whether
its sink answers. So the route asks a worker for a plan before it creates a feed.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from tistream.follow.tenants import Tenants
from tistream.model.tenant_kind import TenantKind
from tistream.wire.bulk.changefeeds import CreatedChangefeed
from tistream_api.admission import gate
from tistream_api.feeds.config_text import CreateBody
from tistream_api.feeds.feed_body import SCHEMA, DryRunQuery, created, new_feed, start_again, start_of
from tistream_api.feeds.feed_calls import FeedCalls, feeds_path
from tistream_api.pull.start import check_kind
from tistream_api.request.bodies import Body, read
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.pull_routes import TENANT

FEEDS = TENANT + "/changefeeds"
FEED = FEEDS + "/{changefeed_id}"


def build_feed_router(tenants: Tenants, calls: FeedCalls) -> APIRouter:
    """Build the router of the call that creates a changefeed. Its routes must be behind the gate
    (admission/gate.py)."""
    router = APIRouter(tags=["changefeed"])

    @router.post(
        FEEDS,
        operation_id="CreateChangefeed",
        response_model=CreatedChangefeed,
        status_code=201,
        responses=openapi.RESTORE_PROBLEMS,
        openapi_extra=openapi.json_doc(SCHEMA, required=["changefeed_id", "sink_uri"]),
    )
    @gate.FEED_TENANT
    def create_changefeed(
        cluster_id: str,
        tenant_id: str,
        body: Body,
        query: Annotated[DryRunQuery, Query()],
    ) -> Response:
        """Create a changefeed. Returns 200 if an equal changefeed exists already, 409 if another one has this id, 410
        if start_ts lies below retention, and 422 if no setting of the workers allows the sink."""
        ask = read(CreateBody, body).wanted()
        view = tenants.view(name_of(cluster_id), name_of(tenant_id))
        check_kind(view, TenantKind.TIDB)
        view.wait_fresh()
        view.check_known()
        there = calls.existing(cluster_id, tenant_id, ask.changefeed_id)
        start_ts = start_of(ask, view.resolved_ts()) if there is None else start_again(ask, there)
        if there is None:
            view.check_served(start_ts)
        plan = calls.plan(view.tenant, ask)
        if query.dry_run:
            return Response(plan.model_dump_json(exclude={"secrets"}), 200, media_type="application/json")
        wanted = new_feed(ask, start_ts, plan)
        made = calls.forward("POST", feeds_path(cluster_id, tenant_id), wanted.model_dump_json().encode())
        return Response(created(bytes(made.body), plan), made.status_code, media_type="application/json")

    return router
