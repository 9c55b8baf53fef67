"""Calls between services in the process of a test, with limits that no machine is too slow for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import tistream_api.app
import tistream_api.auth.callers
import tistream_api.auth.key_set
import tistream_api.tenant.readiness
import tistream_meta.database.engine
import tistream_meta.tenants.token_board
from support.waiting import PATIENCE_S
from tistream.follow import tenant_view
from tistream.service.http import peer_clients
from tistream.wire.clients import client, meta_client, sorter_client, token_client


@contextmanager
def patient() -> Iterator[None]:
    """Within, what is made and called has these limits."""
    with pytest.MonkeyPatch.context() as patch:
        for makes in (client.HttpClient.__init__, peer_clients.PeerClients.new_http):
            patch.setitem(makes.__kwdefaults__, "deadline_s", PATIENCE_S)
        patch.setattr(token_client, "DEADLINE_S", PATIENCE_S)
        patch.setattr(client, "_CONNECT_S", PATIENCE_S)
        patch.setattr(client, "_POOL_S", PATIENCE_S)
        patch.setattr(meta_client, "BEAT_DEADLINE_S", PATIENCE_S)
        patch.setattr(meta_client, "USAGE_DEADLINE_S", PATIENCE_S)
        patch.setattr(sorter_client, "TASKS_DEADLINE_S", PATIENCE_S)
        patch.setattr(tistream_api.app, "STATUS_DEADLINE_S", PATIENCE_S)
        patch.setattr(tistream_api.auth.key_set, "DEADLINE_S", PATIENCE_S)
        patch.setattr(
            tistream_api.auth.callers, "HEARD_WAITS", int(PATIENCE_S / tistream_api.auth.callers.HEARD_WAIT_S)
        )
        # A request is answered with what is new, and not with what is known when its time is over
        patch.setattr(tenant_view, "FRESH_WAIT_MS", int(PATIENCE_S * 1000))
        patch.setattr(tenant_view, "FIRST_WAIT_MS", int(PATIENCE_S * 1000))
        patch.setattr(tistream_api.tenant.readiness, "DEADLINE_S", PATIENCE_S)
        patch.setattr(tistream_meta.database.engine, "BUSY_TIMEOUT_MS", int(PATIENCE_S * 1000))
        patch.setattr(tistream_meta.tenants.token_board, "STALE_MS", int(PATIENCE_S * 1000))
        yield
