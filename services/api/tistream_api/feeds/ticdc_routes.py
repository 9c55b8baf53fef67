"""Read-only HTTP routes with the paths and names of TiCDC's API. They parse requests, call the parts of the server that
answer them, and translate the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from tistream.errors import InvalidRequest, UnknownName
from tistream.follow.tenants import Tenants
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import ChangefeedInfo
from tistream_api.admission import gate
from tistream_api.admission.gate import caller_of
from tistream_api.auth.access import Resource, allows
from tistream_api.feeds import ticdc_shapes
from tistream_api.feeds.feed_body import FEED_NAME
from tistream_api.feeds.feed_calls import FeedCalls
from tistream_api.feeds.ticdc_shapes import TicdcFeedDetail, TicdcFeeds
from tistream_api.request.queries import QueryModel
from tistream_api.request.query_types import OptionalText
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi

TENANTS_MAX = 100  # that one list asks for


class NamespaceQuery(QueryModel):
    """The query parameters of TicdcChangefeed, which TicdcChangefeeds has too."""

    namespace: OptionalText = Field(default=None, description="a tenant's id; default: all that the token may see")


class ListQuery(NamespaceQuery):
    """The query parameters of TicdcChangefeeds."""

    state: ticdc_shapes.AskedState | None = Field(
        default=None, description="a state by TiCDC's name; default: all, as of `all`"
    )


def build_ticdc_router(tenants: Tenants, calls: FeedCalls) -> APIRouter:
    """Build the router of the calls of TiCDC's API. Its routes must be behind the gate (admission/gate.py)."""
    router = APIRouter(tags=["changefeed"])

    def seen(request: Request, namespace: str | None) -> Sequence[TenantKey]:
        """The tenants whose feeds the caller may see; with `namespace`, only those of this name. Raises InvalidRequest
        if there are too many."""
        grants = caller_of(request).grants
        found = [
            key
            for key in sorted(tenants.views(), key=str)
            if namespace in (None, key.tenant_id)
            and any(
                allows(grants, action, Resource(key.cluster_id, key.tenant_id)) for action in gate.SEE_FEEDS.actions
            )
        ]
        if len(found) > TENANTS_MAX:
            raise InvalidRequest(
                f"the token may see {len(found)} tenants, and a list has at most {TENANTS_MAX}: name one, as namespace",
                {"parameter": "namespace"},
            )
        return found

    def feeds(request: Request, namespace: str | None) -> Iterator[tuple[TenantKey, ChangefeedInfo]]:
        for tenant in seen(request, namespace):
            for feed in calls.feeds(tenant):
                yield tenant, feed

    @router.get("/api/v2/changefeeds", operation_id="TicdcChangefeeds", responses=openapi.TENANT_PROBLEMS)
    @gate.ANY_FEEDS
    def ticdc_changefeeds(request: Request, query: Annotated[ListQuery, Query()]) -> TicdcFeeds:
        """Changefeeds with the names of TiCDC's API, of every tenant that the token may see. `upstream_id` is the
        cluster, `namespace` the tenant."""
        found = feeds(request, query.namespace)
        items = [ticdc_shapes.entry(*one) for one in found if ticdc_shapes.is_asked_for(one[1], query.state)]
        return TicdcFeeds(total=len(items), items=items)

    @router.get(
        "/api/v2/changefeeds/{changefeed_id}", operation_id="TicdcChangefeed", responses=openapi.TENANT_PROBLEMS
    )
    @gate.ANY_FEEDS
    def ticdc_changefeed(
        request: Request, changefeed_id: str, query: Annotated[NamespaceQuery, Query()]
    ) -> TicdcFeedDetail:
        """One changefeed with the names of TiCDC's API. 400 if several tenants have a changefeed of this id: then name
        one of the tenants as `namespace`."""
        name = name_of(changefeed_id)
        if not FEED_NAME.fullmatch(name):
            raise UnknownName(f"there is no changefeed {name[:80]!r}: an id has the form {FEED_NAME.pattern}")
        found = [one for one in feeds(request, query.namespace) if one[1].changefeed_id == name]
        if not found:
            raise UnknownName(f"there is no changefeed {name!r}, or the token does not grant to read its tenant")
        if len(found) > 1:
            raise InvalidRequest(
                f"{len(found)} tenants have a changefeed {name!r}: name one of them, as namespace",
                {"parameter": "namespace"},
            )
        return ticdc_shapes.detail(*found[0])

    return router
