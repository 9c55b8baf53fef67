"""Runs the territory of an agent: its position, its state machine, and the threads around it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tistream.clock import Clock
from tistream.concurrency import new_event, new_executor
from tistream.errors import CorruptObject, NotFoundYet, TiStreamError
from tistream.model import ts as tso
from tistream.model.span import shown_key
from tistream.model.tenant_kind import TenantKind
from tistream.storage.object_store import ObjectStore
from tistream_agent.core import chain, steps
from tistream_agent.core.cutter import Draft
from tistream_agent.core.machine import TerritoryAgent
from tistream_agent.core.planner import SCANS
from tistream_agent.driver import TerritoryDriver
from tistream_agent.inbox import Inbox
from tistream_agent.metrics import AgentMetrics
from tistream_agent.outbox import Outbox
from tistream_agent.position import last_position, snapshot_ts
from tistream_agent.settings import AgentSettings
from tistream_agent.status import AgentStatus, TerritoryStatus
from tistream_agent.upstream.gc_hold import GcHold
from tistream_agent.upstream.keyspaces import tenant_keys
from tistream_agent.upstream.pd import OtherCluster, PdClient
from tistream_agent.upstream.stores import Channels
from tistream_agent.upstream.streams import StoreStreams
from tistream_agent.warmup import warm_kernels

log = logging.getLogger(__name__)

FENCED, NO_SNAPSHOT, CHAIN = "fenced", "no-snapshot", "chain"
_RETRY_S = 1.0
_CLAIMS = 20  # a process that goes on pushing while this one claims is fenced by then, or fences this one


class Agent:
    """The agent of a tenant with one territory. `run` is the body of a thread.

    Args:
        new_nonce: a new hexadecimal text for each claim.
        announce: announces a file to the platform. Raises TiStreamError.
        ended: called with the code when the territory has stopped for good.
    """

    def __init__(
        self,
        settings: AgentSettings,
        objects: ObjectStore,
        clock: Clock,
        metrics: AgentMetrics,
        new_nonce: Callable[[], str],
        announce: Callable[[Draft], None],
        ended: Callable[[str], None],
    ) -> None:
        self._settings, self._objects, self._clock, self._metrics = settings, objects, clock, metrics
        self._new_nonce, self._announce, self._ended = new_nonce, announce, ended
        self._channels = Channels(settings.upstream_tls.files)
        self._pd = PdClient(
            settings.pd_addresses,
            self._channels,
            settings.pd_cluster_id,
            on_call=lambda rpc: metrics.pd_calls.labels(rpc).inc(),
        )
        self._stopping = new_event()
        self._seen: TerritoryStatus | None = None  # replaced as a whole, by the thread of `run`
        self._state, self._reason = "starting", "it reads its chain and asks PD"
        self._pd_cluster_id = 0

    def stop(self) -> None:
        """Ask `run` to end."""
        self._stopping.set()

    def not_ready(self) -> str | None:
        """Why the territory does not run; None if it does."""
        return None if self._state == "running" else f"{self._state}: {self._reason}"

    def run(self) -> None:
        """Run until `stop`, or until the territory stops for good. Failures to begin are tried again."""
        warm_kernels()  # before the claim: until then the agent that this one replaces goes on
        claims = 0
        while not self._stopping.is_set():
            try:
                stop, claimed = self._once()
            except OtherCluster as error:
                self._stopped(error.code, str(error))
                return
            except CorruptObject as error:
                self._stopped(CHAIN, f"{error}; backfill the tenant (docs/backfill.md) and use a new territory id")
                return
            except TiStreamError as error:
                self._wait_for(str(error))
                continue
            if stop is None:
                return
            claims += 1
            if stop.code == FENCED and not claimed and claims < _CLAIMS:
                continue  # the chain has grown since it was read
            self._stopped(stop.code, stop.reason)
            return

    def _once(self) -> tuple[steps.Stop | None, bool]:
        """Run one claim of the territory: (why it stopped, whether it had the chain)."""
        settings, tenant = self._settings, self._settings.tenant_key
        cluster_id = self._pd_cluster_id = self._pd.cluster_id
        owned = tenant_keys(self._pd, settings.kind, settings.keyspace)
        config = steps.AgentConfig(
            tenant,
            settings.territory,
            self._new_nonce(),
            kv_api=steps.KV_RAW if settings.kind is TenantKind.RAW else steps.KV_TIDB,
            keys=owned.keys,
            cut_ms=settings.cut_ms,
            idle_cut_ms=settings.idle_cut_ms,
            buffer_bytes=settings.buffer_bytes,
        )
        machine = TerritoryAgent(config, self._position(config))
        inbox = Inbox()
        streams = StoreStreams(self._pd, self._channels, inbox, cluster_id, self._metrics.received.inc)
        calls = new_executor("pd", SCANS + 2)
        files = new_executor("files", 1)
        driver = TerritoryDriver(
            machine,
            self._pd,
            streams,
            Outbox(self._objects, self._announce, self._stopping.wait),
            GcHold(self._pd, tenant, settings.territory, owned.held),
            inbox,
            calls,
            files,
            self._clock,
            self._metrics,
            self._wait,
            lambda: self._look(machine),
        )
        self._look(machine)
        self._state = "running"
        log.info("territory begins", extra={"tenant": str(tenant), "territory": settings.territory})
        try:
            return driver.run(), driver.claimed
        finally:
            calls.shutdown(wait=False, cancel_futures=True)
            files.shutdown(wait=False, cancel_futures=True)

    def _position(self, config: steps.AgentConfig) -> chain.Position:
        found = last_position(self._objects, config.tenant, config.store_id, config.span)
        if found is not None:
            return found
        try:
            base_ts = snapshot_ts(self._objects, config.tenant)
        except NotFoundYet as error:
            raise NotFoundYet(f"{error.key}: `tistream connect` reads it from TiKV") from error
        return chain.new_chain(config.span, self._pd.timestamps(1), base_ts)

    def _wait(self, seconds: float) -> bool:
        return self._stopping.wait(seconds) if seconds else self._stopping.is_set()

    def _wait_for(self, reason: str) -> None:
        if reason != self._reason:
            log.warning("the territory cannot begin yet", extra={"reason": reason})
        self._state, self._reason, self._seen = "starting", reason, None
        self._stopping.wait(_RETRY_S)

    def _stopped(self, code: str, reason: str) -> None:
        log.error("the territory has stopped", extra={"code": code, "reason": reason})
        self._state, self._reason = code, reason
        self._ended(code)

    def status(self) -> AgentStatus:
        """For `GET /status`."""
        tenant = self._settings.tenant_key
        return AgentStatus(
            node_id=self._settings.node,
            cluster_id=tenant.cluster_id,
            tenant_id=tenant.tenant_id,
            pd_cluster_id=str(self._pd_cluster_id),
            territories=[self._territory()],
        )

    def _look(self, machine: TerritoryAgent) -> None:
        """Note the state of the machine. Only the thread that steps it may call this."""
        lowest = machine.lowest()
        durable_ts = machine.hold_ts + 1  # the hold lies just below what the files promise
        self._seen = TerritoryStatus(
            territory=str(self._settings.territory),
            state="running",
            reason=lowest.state,
            resolved_ts=str(durable_ts),
            span=(shown_key(lowest.piece.span.start), shown_key(lowest.piece.span.end)),
            subscriptions=len(machine.territory),
            buffer_bytes=machine.buffer_bytes,
            held_ts=str(machine.hold_ts),
        )

    def _territory(self) -> TerritoryStatus:
        seen = self._seen
        if seen is None:
            return TerritoryStatus(territory=str(self._settings.territory), state=self._state, reason=self._reason)
        lag_ms = max(0, self._clock.now_ms() - tso.physical_ms(int(seen.resolved_ts)))
        if self._state == "running":
            return seen.model_copy(update={"lag_ms": lag_ms})
        return seen.model_copy(update={"lag_ms": lag_ms, "state": self._state, "reason": self._reason})

    def measure(self) -> None:
        """Set the gauges that follow the state machine."""
        status = self._territory()
        self._metrics.buffer.set(status.buffer_bytes)
        self._metrics.fenced.set(self._state == FENCED)
        if self._seen is not None:
            self._metrics.resolved_lag.set(status.lag_ms / 1000)
            held_ms = self._clock.now_ms() - tso.physical_ms(int(status.held_ts))
            self._metrics.hold_lag.set(max(0, held_ms) / 1000)
