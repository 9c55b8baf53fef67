"""Composition of the agent: `/status`, probes and metrics beside its territory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import APIRouter, FastAPI, Request

from tistream.clock import Clock
from tistream.service.http.app import new_app
from tistream.service.http.peers import Peers
from tistream.service.ids import random_id
from tistream.service.observe.metrics import LoopMetrics, new_registry
from tistream.service.observe.store_metrics import measured
from tistream.service.settings import SettingsError
from tistream.service.worker import Loop
from tistream.storage.object_store import ObjectStore
from tistream.wire.meta import Accepted, Notification
from tistream_agent.core.cutter import Draft
from tistream_agent.metrics import AgentMetrics
from tistream_agent.run import Agent
from tistream_agent.settings import AgentSettings
from tistream_agent.status import AgentStatus

log = logging.getLogger(__name__)

MEASURE_MS = 1_000

router = APIRouter()


@router.get("/status", operation_id="AgentStatus")
def get_status(request: Request) -> AgentStatus:
    """How far each territory has come, and what it waits for."""
    agent: Agent = request.app.state.agent
    return agent.status()


def build_app(
    settings: AgentSettings,
    objects: ObjectStore,
    clock: Clock,
    ended: Callable[[str], None],
    new_nonce: Callable[[], str] = random_id,
) -> FastAPI:
    """Build the app. The territory runs while it serves. `ended` is called with a code when it has stopped for good."""
    peers = Peers(settings, clock)
    registry = new_registry()
    metrics = AgentMetrics(registry)
    http = peers.new_http(headers=_token(settings))

    def announce(draft: Draft) -> None:
        if settings.api_url:
            body = Notification(
                cluster_id=draft.tenant.cluster_id,
                tenant_id=draft.tenant.tenant_id,
                store_id=str(draft.store_id),
                ts=str(draft.ts),
            )
            http.send("POST", f"{settings.api_url.rstrip('/')}/v1/notifications", body, Accepted)

    agent = Agent(settings, measured(objects, registry), clock, metrics, new_nonce, announce, ended)

    def run() -> int:
        agent.run()
        return 3_600_000  # it has stopped for good; /status says why

    @contextmanager
    def running() -> Iterator[None]:
        loop_metrics = LoopMetrics(registry)
        territory = Loop("territory", run, interval_ms=1_000, metrics=loop_metrics)
        measure = Loop("measure", agent.measure, interval_ms=MEASURE_MS, metrics=loop_metrics)
        territory.start()
        measure.start()
        try:
            yield
        finally:
            agent.stop()
            measure.stop(timeout_s=0.2)
            territory.stop(timeout_s=3.0)
            http.close()

    app = new_app("tistream-agent", ready=agent.not_ready, registry=registry, running=running, clock=clock, peers=peers)
    app.state.agent = agent
    app.include_router(router)
    return app


def _token(settings: AgentSettings) -> dict[str, str]:
    if settings.api_token_file is None:
        return {}
    try:
        return {"authorization": f"Bearer {settings.api_token_file.read_text('utf-8').strip()}"}
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"API_TOKEN_FILE {settings.api_token_file} cannot be read: {error}") from error
