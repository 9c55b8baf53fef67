"""Collects the routers of all calls of changefeeds."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter

from tistream.follow.tenants import Tenants
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream_api.feeds.feed_calls import FeedCalls
from tistream_api.feeds.feed_change_routes import build_feed_change_router
from tistream_api.feeds.feed_look_routes import build_feed_look_router
from tistream_api.feeds.feed_routes import build_feed_router
from tistream_api.feeds.ticdc_routes import build_ticdc_router


def build_feed_routers(tenants: Tenants, meta: MetaClient, http: HttpClient) -> Sequence[APIRouter]:
    """Build all routers of changefeeds. Their routes must be behind the gate (admission/gate.py)."""
    calls = FeedCalls(tenants, meta, http)
    return [
        build_feed_router(tenants, calls),
        build_feed_change_router(tenants, calls),
        build_feed_look_router(tenants, calls),
        build_ticdc_router(tenants, calls),
    ]
