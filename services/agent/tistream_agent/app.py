"""Builds the agent: its territories (spans of keys that it reads), and the HTTP routes for `/status`, probes and
metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import APIRouter, FastAPI, Request

from tistream.clock import Clock
from tistream.service.http.app import new_app
from tistream.service.http.peer_clients import PeerClients
from tistream.service.ids import random_id
from tistream.service.lifetime import end_in_order
from tistream.service.observe.metrics import LoopMetrics, new_registry
from tistream.service.observe.store_metrics import measured
from tistream.service.settings import SettingsError
from tistream.service.worker import Loop
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import Accepted, Notification
from tistream_agent.core.cutter import Draft
from tistream_agent.holding.node import NodeLoop
from tistream_agent.holding.territories import Territories
from tistream_agent.holding.unfinished import DivisionFinisher
from tistream_agent.metrics import AgentMetrics
from tistream_agent.order import Order
from tistream_agent.run import TerritoryRun
from tistream_agent.settings import AgentSettings
from tistream_agent.status import AgentStatus

MEASURE_MS = 1_000

router = APIRouter()


@router.get("/status", operation_id="AgentStatus")
def get_status(request: Request) -> AgentStatus:
    """The progress of each territory that this agent holds, and what the territory waits for."""
    status: Callable[[], AgentStatus] = request.app.state.status
    return status()


def build_app(
    settings: AgentSettings,
    objects: ObjectStore,
    clock: Clock,
    ended: Callable[[str], None],
    new_nonce: Callable[[], str] = random_id,
    end: Callable[[], None] = end_in_order,
) -> FastAPI:
    """Build the ASGI app.

    The agent's territories run while the app serves. `ended` is called with a code when the territory that the settings
    name has stopped for good. `end` is called to end the process.
    """
    peers = PeerClients(settings, clock)
    registry = new_registry()
    metrics = AgentMetrics(registry)
    counted = measured(objects, registry)
    http = peers.new_http(headers=_token(settings))
    meta = MetaClient(http, settings.meta_url)
    announce = _announcing(settings, http, meta)

    given = settings.given_by_meta
    finish = DivisionFinisher(counted, meta, new_nonce).finish if given else None

    def new_run(order: Order) -> TerritoryRun:
        return TerritoryRun(order, settings, counted, clock, metrics, new_nonce, announce, finish)

    territories = Territories(new_run, (lambda _: None) if given else ended, settings.buffer_bytes)
    node: NodeLoop | None = None
    if given:
        instance = new_nonce()
        member = Membership(meta, settings.node, "agent", settings.url, instance=instance, end=end)
        serves = "" if settings.pd_cluster_id is None else str(settings.pd_cluster_id)
        node = NodeLoop(meta, member, settings.node, instance, serves, territories)

    def status() -> AgentStatus:
        problem = "" if node is None else node.problem
        return AgentStatus(node_id=settings.node, problem=problem, territories=territories.statuses())

    @contextmanager
    def running() -> Iterator[None]:
        loop_metrics = LoopMetrics(registry)
        loops = [
            Loop("measure", lambda: metrics.measure(territories.statuses(), clock.now_ms()), interval_ms=MEASURE_MS)
        ]
        if node is None:
            territories.follow([settings.order])
        else:
            loops.append(Loop("node", node.beat, interval_ms=1_000, backoff_max_ms=1_000, metrics=loop_metrics))
        for loop in loops:
            loop.start()
        try:
            yield
        finally:
            for loop in loops:
                loop.stop(timeout_s=0.5)
            territories.stop(timeout_s=3.0)
            http.close()

    ready = territories.not_ready if node is None else node.not_ready
    app = new_app("tistream-agent", ready=ready, registry=registry, running=running, clock=clock, peers=peers)
    app.state.status = status
    app.include_router(router)
    return app


def _announcing(settings: AgentSettings, http: HttpClient, meta: MetaClient) -> Callable[[Draft], None]:
    """Choose how the file of a draft is announced: to the API, if the settings name one; otherwise, if this agent is a
    node of the platform, to the meta servers; otherwise not at all. Returns the function that does so."""

    def announce(draft: Draft) -> None:
        body = Notification(
            cluster_id=draft.tenant.cluster_id,
            tenant_id=draft.tenant.tenant_id,
            store_id=str(draft.store_id),
            ts=str(draft.ts),
        )
        if settings.api_url:
            http.send("POST", f"{settings.api_url.rstrip('/')}/v1/notifications", body, Accepted)
        elif settings.given_by_meta:
            meta.notify(body)

    return announce


def _token(settings: AgentSettings) -> dict[str, str]:
    if settings.api_token_file is None:
        return {}
    try:
        return {"authorization": f"Bearer {settings.api_token_file.read_text('utf-8').strip()}"}
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            f"API_TOKEN_FILE {settings.api_token_file} cannot be read: {error}; name a readable file with a token of "
            "the API"
        ) from error
