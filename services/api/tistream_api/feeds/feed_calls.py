"""Calls other services about changefeeds: the meta server, which stores them, and a worker, which checks a
configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response

from tistream.errors import InvalidRequest, Unavailable, UnknownName
from tistream.follow.tenants import Tenants
from tistream.model.ids import TenantKey
from tistream.secrets.references import names_in
from tistream.wire.bulk.changefeeds import (
    ChangefeedInfo,
    ChangefeedList,
    ChangefeedPlan,
    CheckChangefeed,
    CreateChangefeed,
)
from tistream.wire.bulk.feed_verify import FeedVerification, VerifyFeed
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.problem import PeerBusy
from tistream_api.feeds.feed_body import FEED_NAME
from tistream_api.request.meta_paths import at_meta
from tistream_api.request.raw_path import name_of


class FeedCalls:
    """The calls to other services that the routes of changefeeds make. Arguments that are names are percent-encoded
    parts of the request's path."""

    def __init__(self, tenants: Tenants, meta: MetaClient, http: HttpClient) -> None:
        self._tenants, self._meta, self._http = tenants, meta, http

    def forward(self, method: str, path: str, body: bytes | None = None) -> Response:
        """Send a request to the meta server. Returns a response with the status and the JSON body of its answer. An
        answer with an error status is not returned, but raised. Raises the errors of MetaClient."""
        answer = self._meta.request(method, path, body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    def feed(self, cluster_id: str, tenant_id: str, changefeed_id: str) -> ChangefeedInfo:
        """Fetch a changefeed from the meta server. Raises UnknownName if it does not exist."""
        answer = self._meta.request("GET", feed_path(cluster_id, tenant_id, changefeed_id))
        return ChangefeedInfo.model_validate_json(answer.content)

    def existing(self, cluster_id: str, tenant_id: str, changefeed_id: str) -> ChangefeedInfo | None:
        """Like `feed`, but returns None if the changefeed does not exist."""
        try:
            return self.feed(cluster_id, tenant_id, changefeed_id)
        except UnknownName:
            return None

    def feeds(self, tenant: TenantKey) -> list[ChangefeedInfo]:
        """The changefeeds of a tenant, ordered by id; empty if the tenant does not exist any more."""
        try:
            answer = self._meta.request("GET", feeds_path(tenant.cluster_id, tenant.tenant_id))
        except UnknownName:
            return []
        return ChangefeedList.model_validate_json(answer.content).changefeeds

    def plan(self, tenant: TenantKey, wanted: CreateChangefeed, *, look: bool = True) -> ChangefeedPlan:
        """Ask a worker for the plan of a feed: its tables and topics. With `look` the worker connects to the sink and
        checks it. Raises Unavailable if no worker runs or the sink does not answer, and InvalidRequest if the feed
        could not run."""
        check = CheckChangefeed(
            cluster_id=tenant.cluster_id,
            tenant_id=tenant.tenant_id,
            wanted=wanted,
            secrets=self._sealed(tenant, wanted.sink_uri, wanted.config) if look else {},
            look=look,
        )
        url = f"{self._worker()}/v1/changefeeds/checks"
        try:
            return self._http.send("POST", url, check, ChangefeedPlan)
        except PeerBusy as error:  # the sink does not answer: the caller need not know which worker has found that
            raise Unavailable(str(error).removeprefix(f"POST {url}: ")) from error

    def verify(self, tenant: TenantKey, ask: VerifyFeed) -> FeedVerification:
        """Ask a worker to compare the content of a feed's sink with the tenant's rows, and return the result. Raises
        Unavailable if no worker runs, and InvalidRequest if a secret of the feed does not exist or the worker refuses
        the request."""
        sealed = self._sealed(tenant, ask.sink_uri, ask.config)
        body = ask.model_copy(update={"secrets": sealed})
        return self._http.send("POST", f"{self._worker()}/v1/changefeeds/verifications", body, FeedVerification)

    def _worker(self) -> str:
        urls = self._tenants.services("changefeed")
        if not urls:
            raise Unavailable(
                "no changefeed worker runs, so feeds can be neither checked nor compared: start one (`tistream up "
                "--changefeeds 1`; docs/changefeeds.md)"
            )
        return urls[0]

    def _sealed(self, tenant: TenantKey, sink_uri: str, config: Mapping[str, Any]) -> dict[str, str]:
        """The encrypted secrets to which a feed refers, by name. Raises InvalidRequest if one does not exist."""
        names = names_in(sink_uri, config)
        if not names:
            return {}
        known = self._meta.sealed_secrets(tenant)
        if missing := sorted(names - known.keys()):
            raise InvalidRequest(
                f"sink_uri: tenant {tenant} has no secret {missing[0]}; `tistream secret put {missing[0]}` stores one",
                {"parameter": "sink_uri"},
            )
        return {name: known[name] for name in names}


def feeds_path(cluster_id: str, tenant_id: str) -> str:
    """The path of a tenant's changefeeds at the meta server."""
    return f"{at_meta(cluster_id, tenant_id)}/changefeeds"


def feed_path(cluster_id: str, tenant_id: str, changefeed_id: str) -> str:
    """The path of a changefeed at the meta server. Raises UnknownName if the id is malformed."""
    name = name_of(changefeed_id)
    if not FEED_NAME.fullmatch(name):
        raise UnknownName(
            f"there is no changefeed {name[:80]!r}: an id has the form {FEED_NAME.pattern}; ListChangefeeds has the ids"
        )
    return f"{feeds_path(cluster_id, tenant_id)}/{name}"
