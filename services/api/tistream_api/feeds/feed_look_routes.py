"""HTTP routes that read a changefeed, and compare what its sink has. They parse requests, call the parts of the server
that answer them, and translate the results."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from tistream.follow.tenants import Tenants
from tistream.wire.bulk.changefeeds import ChangefeedInfo, ChangefeedList, FeedTables
from tistream.wire.bulk.feed_changes import FeedEvents, FeedLag
from tistream.wire.bulk.feed_verify import FeedVerification, VerifyChangefeed
from tistream_api.admission import gate
from tistream_api.feeds.feed_body import VERIFY, creation_request, lag_of, range_of
from tistream_api.feeds.feed_calls import FeedCalls, feed_path, feeds_path
from tistream_api.feeds.feed_routes import FEED, FEEDS
from tistream_api.request.bodies import Body, read
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi


def build_feed_look_router(tenants: Tenants, calls: FeedCalls) -> APIRouter:
    """Build the router of the calls that read a changefeed. Its routes must be behind the gate (admission/gate.py)."""
    router = APIRouter(tags=["changefeed"])

    @router.get(FEEDS, operation_id="ListChangefeeds", response_model=ChangefeedList, responses=openapi.TENANT_PROBLEMS)
    @gate.SEE_FEEDS
    def list_changefeeds(cluster_id: str, tenant_id: str) -> Response:
        """The changefeeds of a tenant, by id."""
        return calls.forward("GET", feeds_path(cluster_id, tenant_id))

    @router.get(FEED, operation_id="GetChangefeed", response_model=ChangefeedInfo, responses=openapi.TENANT_PROBLEMS)
    @gate.SEE_FEEDS
    def get_changefeed(cluster_id: str, tenant_id: str, changefeed_id: str) -> Response:
        """One changefeed, with its progress and what it waits for."""
        return calls.forward("GET", feed_path(cluster_id, tenant_id, changefeed_id))

    @router.get(
        FEED + "/events", operation_id="ChangefeedEvents", response_model=FeedEvents, responses=openapi.TENANT_PROBLEMS
    )
    @gate.SEE_FEEDS
    def changefeed_events(cluster_id: str, tenant_id: str, changefeed_id: str) -> Response:
        """The history of a changefeed, newest first: changes with their callers, failures, and the ts from which a
        change applies."""
        return calls.forward("GET", f"{feed_path(cluster_id, tenant_id, changefeed_id)}/events")

    @router.get(
        FEED + "/tables", operation_id="ChangefeedTables", response_model=FeedTables, responses=openapi.TENANT_PROBLEMS
    )
    @gate.SEE_FEEDS
    def changefeed_tables(cluster_id: str, tenant_id: str, changefeed_id: str) -> FeedTables:
        """The tables that exist now and that a changefeed sends, with their topics, partition rules and columns. Tables
        that its rules include and that it leaves out are named with the reason; so are those that have stopped, whether
        they exist or not."""
        feed = calls.feed(cluster_id, tenant_id, changefeed_id)
        view = tenants.view(name_of(cluster_id), name_of(tenant_id))
        plan = calls.plan(view.tenant, creation_request(feed), look=False)
        return FeedTables(
            tables=plan.tables,
            count=plan.table_count,
            warnings=plan.warnings,
            left_out=plan.left_out,
            stopped=feed.stopped,
        )

    @router.get(FEED + "/lag", operation_id="ChangefeedLag", response_model=FeedLag, responses=openapi.TENANT_PROBLEMS)
    @gate.SEE_FEEDS
    def changefeed_lag(cluster_id: str, tenant_id: str, changefeed_id: str) -> FeedLag:
        """How many seconds a changefeed is behind the tenant's resolved_ts, and what it waits for."""
        feed = calls.feed(cluster_id, tenant_id, changefeed_id)
        view = tenants.view(name_of(cluster_id), name_of(tenant_id))
        view.wait_fresh()
        view.check_known()
        return lag_of(feed, view.resolved_ts())

    @router.post(
        FEED + "/verify",
        operation_id="VerifyChangefeed",
        response_model=FeedVerification,
        responses=openapi.RESTORE_PROBLEMS,
        openapi_extra=VERIFY,
    )
    @gate.FEED_TENANT
    def verify_changefeed(cluster_id: str, tenant_id: str, changefeed_id: str, body: Body) -> FeedVerification:
        """Compare the messages or files of a changefeed in a range of commit_ts with the tenant's rows. The answer says
        whether they are equal, or which events are missing, unexpected or repeated, and in which windows (ranges of
        commit_ts that the feed wrote at once) the events are not those that were written. With `repair_topic` the
        missing ones are written there, in order. 409 if the range has too many events, 503 if the topics or files are
        not read in time: compare a shorter range. For a feed into a database, the tables are compared as they are, and
        its windows with the tenant's rows; 503 if the tables take too long: compare one."""
        ask = read(VerifyChangefeed, body or b"{}")
        feed = calls.feed(cluster_id, tenant_id, changefeed_id)
        view = tenants.view(name_of(cluster_id), name_of(tenant_id))
        return calls.verify(view.tenant, range_of(view.tenant, feed, ask))

    return router
