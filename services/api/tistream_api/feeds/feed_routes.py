"""HTTP routes of changefeeds. They parse, call and translate.

The meta server lists the feeds, workers run them. What a feed may write to, and whether its sink answers, only a worker
knows, so one of them is asked before a feed is created.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from tistream.errors import InvalidRequest, Unavailable, UnknownName
from tistream.follow.tenants import Tenants
from tistream.model.ids import TenantKey
from tistream.model.tenant_kind import TenantKind
from tistream.secrets.references import names_in
from tistream.wire.bulk.changefeeds import (
    ChangefeedInfo,
    ChangefeedList,
    ChangefeedPlan,
    CheckChangefeed,
    CreateChangefeed,
)
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream_api.admission import gate
from tistream_api.feeds.feed_body import FEED_NAME, SCHEMA, DryRunQuery, new_feed
from tistream_api.pull.start import check_kind
from tistream_api.request.bodies import Body, read
from tistream_api.request.meta_paths import at_meta
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.pull_routes import TENANT

FEEDS = TENANT + "/changefeeds"
FEED = FEEDS + "/{changefeed_id}"


def build_feed_router(tenants: Tenants, meta: MetaClient, http: HttpClient) -> APIRouter:
    """The routes, to be included behind the gate."""
    router = APIRouter(tags=["changefeed"])

    def answered(method: str, path: str, body: bytes | None = None) -> Response:
        answer = meta.request(method, path, body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.post(
        FEEDS,
        operation_id="CreateChangefeed",
        response_model=ChangefeedInfo,
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
        """Create a changefeed. Returns 200 if the same exists already, 409 if another of this id does, 410 if start_ts
        lies below retention, and 422 if no setting of the workers allows the sink."""
        ask = read(CreateChangefeed, body)
        view = tenants.view(name_of(cluster_id), name_of(tenant_id))
        check_kind(view, TenantKind.TIDB)
        view.wait_fresh()
        view.check_known()
        wanted = new_feed(ask, view.resolved_ts())
        view.check_retained(int(wanted.start_ts))
        urls = tenants.services("changefeed")
        if not urls:
            raise Unavailable("no changefeed worker runs, which would run the feed")
        of = view.tenant
        sealed = _sealed(meta, of, ask)
        check = CheckChangefeed(cluster_id=of.cluster_id, tenant_id=of.tenant_id, wanted=ask, secrets=sealed)
        plan = http.send("POST", f"{urls[0]}/v1/changefeeds/checks", check, ChangefeedPlan)
        if query.dry_run:
            return Response(plan.model_dump_json(), 200, media_type="application/json")
        return answered("POST", _feeds(cluster_id, tenant_id), wanted.model_dump_json().encode())

    @router.get(FEEDS, operation_id="ListChangefeeds", response_model=ChangefeedList, responses=openapi.TENANT_PROBLEMS)
    @gate.SEE_FEEDS
    def list_changefeeds(cluster_id: str, tenant_id: str) -> Response:
        """The changefeeds of a tenant, by id."""
        return answered("GET", _feeds(cluster_id, tenant_id))

    @router.get(FEED, operation_id="GetChangefeed", response_model=ChangefeedInfo, responses=openapi.TENANT_PROBLEMS)
    @gate.SEE_FEEDS
    def get_changefeed(cluster_id: str, tenant_id: str, changefeed_id: str) -> Response:
        """One changefeed: how far it is, and what holds it."""
        return answered("GET", _feed(cluster_id, tenant_id, changefeed_id))

    @router.delete(
        FEED, operation_id="RemoveChangefeed", response_model=ChangefeedInfo, responses=openapi.TENANT_PROBLEMS
    )
    @gate.FEED_TENANT
    def remove_changefeed(cluster_id: str, tenant_id: str, changefeed_id: str) -> Response:
        """Remove a changefeed. What it has written stays in the sink."""
        return answered("DELETE", _feed(cluster_id, tenant_id, changefeed_id))

    @router.post(
        FEED + "/pause",
        operation_id="PauseChangefeed",
        response_model=ChangefeedInfo,
        responses=openapi.CANCEL_PROBLEMS,
    )
    @gate.FEED_TENANT
    def pause_changefeed(cluster_id: str, tenant_id: str, changefeed_id: str) -> Response:
        """Pause a changefeed. Idempotent; 409 if it has finished."""
        return answered("POST", f"{_feed(cluster_id, tenant_id, changefeed_id)}/pause")

    @router.post(
        FEED + "/resume",
        operation_id="ResumeChangefeed",
        response_model=ChangefeedInfo,
        responses=openapi.CANCEL_PROBLEMS,
    )
    @gate.FEED_TENANT
    def resume_changefeed(cluster_id: str, tenant_id: str, changefeed_id: str) -> Response:
        """Resume a changefeed that is paused or has failed: it goes on where its sink says. Idempotent; 409 if it has
        finished."""
        return answered("POST", f"{_feed(cluster_id, tenant_id, changefeed_id)}/resume")

    return router


def _sealed(meta: MetaClient, tenant: TenantKey, ask: CreateChangefeed) -> dict[str, str]:
    """The sealed secrets that a feed refers to, by name. Raises InvalidRequest if one does not exist."""
    names = names_in(ask.sink_uri, ask.config)
    if not names:
        return {}
    known = meta.sealed_secrets(tenant)
    if missing := sorted(names - known.keys()):
        raise InvalidRequest(
            f"sink_uri: tenant {tenant} has no secret {missing[0]}; `tistream secret put {missing[0]}` stores one",
            {"parameter": "sink_uri"},
        )
    return {name: known[name] for name in names}


def _feeds(cluster_id: str, tenant_id: str) -> str:
    return f"{at_meta(cluster_id, tenant_id)}/changefeeds"


def _feed(cluster_id: str, tenant_id: str, changefeed_id: str) -> str:
    name = name_of(changefeed_id)
    if not FEED_NAME.fullmatch(name):
        raise UnknownName(f"no changefeed has an id that is not of the form {FEED_NAME.pattern}")
    return f"{_feeds(cluster_id, tenant_id)}/{name}"
