"""Clients that ask and then read nothing, or leave: what a pull holds is one budget, and it ends with its client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from fastapi import Depends, FastAPI, Request

from support import golden, plain_http
from support.api_world import Platform, platform
from support.http_world import CLOCK, Server, never_superseded
from support.platform import free_port
from support.pull import Consumer
from support.waiting import PATIENCE_S, eventually
from tistream_api.admission.memory_budget import SHARE_BYTES
from tistream_api.app import build_app
from tistream_api.request.params import FORMATS
from tistream_api.routes.pull_routes import watched
from tistream_api.settings import ApiSettings

FLOODED, OTHER = golden.load("large"), golden.load_as("large", "8", "other")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform(tmp_path_factory.mktemp("unread"), ranges=1) as one:
        for loaded in (FLOODED, OTHER):
            consumer = one.create(loaded)
            one.put(*loaded.deliveries)
            consumer.wait_for(loaded.end_ts)
        yield one


def served(up: Platform, **settings: int) -> Server:
    port = free_port()
    made = ApiSettings(port=port, node_id=f"api-{port}", meta_url=up.world.meta.url, **settings)  # type: ignore[arg-type]
    return Server(build_app(made, up.world.objects, CLOCK, end=never_superseded), port, send_buffer=4_096)


def metric(server: Server, name: str) -> float:
    text = plain_http.get(f"{server.url}/metrics").text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def asked(server: Server, query: str) -> socket.socket:
    """A connection whose client reads nothing."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    one.connect(("127.0.0.1", server.port))
    tenant = FLOODED.tenant
    path = f"/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/changes?{query}"
    one.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    return one


@pytest.mark.parametrize("form", FORMATS)
def test_a_flood_that_nobody_reads_holds_half_of_the_budget_and_others_go_on(up: Platform, form: str) -> None:
    server = served(up, pull_memory_bytes=4 * SHARE_BYTES)
    try:
        eventually(lambda: plain_http.get(f"{server.url}/readyz").status_code == 200)
        held = []
        with ExitStack() as stack:
            query = f"start_ts={FLOODED.snapshot_ts}&limit=1000000&format={form}&events=all"
            for _ in range(24):
                stack.enter_context(asked(server, query))
            eventually(lambda: metric(server, "tistream_api_pull_memory_bytes") == 2 * SHARE_BYTES)
            consumer = Consumer(server.url, OTHER.tenant)
            for _ in range(3):
                held.append(metric(server, "tistream_api_pull_memory_bytes"))
                page = consumer.pull(until_ts=OTHER.end_ts, start_ts=OTHER.snapshot_ts, limit=100_000)
                assert len(page) > 1_000
        assert max(held) <= 4 * SHARE_BYTES
        eventually(
            lambda: metric(server, "tistream_api_pull_memory_bytes{") + metric(server, "tistream_api_pulls{") == 0
        )
        eventually(lambda: metric(server, "tistream_api_pull_memory_bytes ") == 0)
    finally:
        server.stop()


def test_that_a_client_has_left_is_known_before_the_first_byte() -> None:
    """A route that would never answer is told."""
    app, asked_for, told = FastAPI(), threading.Event(), threading.Event()

    @app.get("/pull", dependencies=[Depends(watched)])
    def pull(request: Request) -> None:
        asked_for.set()
        assert request.state.gone.wait(2 * PATIENCE_S)
        told.set()

    server = Server(app)
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as one:
            one.sendall(b"GET /pull HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert asked_for.wait(PATIENCE_S)
            assert not told.is_set()
        assert told.wait(PATIENCE_S)
    finally:
        app.state.stopping = threading.Event()
        server.stop()
