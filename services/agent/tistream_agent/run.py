"""Runs one territory, the span of keys that one agent reads: claims it, finds where its chain of change files
continues, and starts the state machine and the threads around it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tistream.clock import Clock
from tistream.concurrency import new_event, new_executor
from tistream.errors import CorruptObject, NotFoundYet, TiStreamError, Unavailable
from tistream.model.tenant_kind import TenantKind
from tistream.storage.object_store import ObjectStore
from tistream_agent import claim_pause
from tistream_agent.core import chain, steps
from tistream_agent.core.cutter import Draft
from tistream_agent.core.keys import KeyMap, encoded_bound, raw_bound
from tistream_agent.core.machine import TerritoryAgent
from tistream_agent.core.planner import SCANS
from tistream_agent.core.received.counts import Counts
from tistream_agent.core.received.range_logs import bounds_among
from tistream_agent.driver import TerritoryDriver
from tistream_agent.inbox import Inbox
from tistream_agent.metrics import AgentMetrics
from tistream_agent.order import Order
from tistream_agent.outbox import Outbox
from tistream_agent.position import ChainSealed, last_position, newest_file, newest_nonce, recent_claims, snapshot_ts
from tistream_agent.reservation import Reservation
from tistream_agent.reserved_ids import ReservedIds
from tistream_agent.settings import AgentSettings
from tistream_agent.status import RecordedState, TerritoryStatus, territory_status
from tistream_agent.upstream.gc_hold import GcHold
from tistream_agent.upstream.keyspaces import check_span, tenant_keys
from tistream_agent.upstream.own_hold import OwnHold
from tistream_agent.upstream.pd import PdClient
from tistream_agent.upstream.pd_leader import OtherCluster
from tistream_agent.upstream.stores import Channels
from tistream_agent.upstream.streams import StoreStreams
from tistream_agent.warmup import warm_kernels

log = logging.getLogger(__name__)

FENCED, CHAIN = "fenced", "chain"
FINISH_AFTER_S = 60.0
Finish = Callable[[Order, PdClient, Sequence[chain.Child]], None]
_RETRY_S = 1.0
_CLAIMS = 20  # a process that goes on pushing while this one claims is fenced by then, or fences this one


class TerritoryRun:
    """Runs one territory until it is stopped. `run` is the body of a thread.

    Args:
        new_nonce: draws a new hexadecimal text, for each claim.
        announce: announces a file to the platform. Raises TiStreamError.
        finish: finishes the division of a territory whose last file names others; None: that is left to the command.
    """

    def __init__(
        self,
        order: Order,
        settings: AgentSettings,
        objects: ObjectStore,
        clock: Clock,
        metrics: AgentMetrics,
        new_nonce: Callable[[], str],
        announce: Callable[[Draft], None],
        finish: Finish | None = None,
    ) -> None:
        self.order = order
        self._finish, self._problem = finish, ""  # why the division that ended the chain is not finished
        self.buffer_bytes = settings.buffer_bytes  # may be set from any thread
        self._settings, self._objects, self._clock, self._metrics = settings, objects, clock, metrics
        self._new_nonce, self._announce = new_nonce, announce
        self._channels = Channels(settings.upstream_tls.files)
        self._pd = PdClient(
            order.pd,
            self._channels,
            order.pd_cluster_id,
            on_call=lambda rpc: metrics.pd_calls.labels(rpc).inc(),
        )
        self._stopping = new_event()
        self._seen: RecordedState | None = None  # replaced as a whole, by the thread of `run`
        self._state, self._reason = "starting", "it reads its chain and asks PD"
        self._pd_cluster_id = 0
        self._counts = Counts()
        self.ended: str | None = None  # the code of the stop

    def stop(self) -> None:
        """Request that `run` ends; does not wait for it."""
        self._stopping.set()

    def not_ready(self) -> str | None:
        """The reason why the territory does not run; None if it runs."""
        return None if self._state == "running" else f"{self._state}: {self._reason}"

    def run(self) -> str | None:
        """Run the territory; if it cannot begin, try again. Returns None after `stop`, or the code of the Stop if the
        territory has stopped for good."""
        warm_kernels()  # before the claim: until then the agent that this one replaces goes on
        try:
            return self._run()
        finally:
            self._pd.close()

    def _run(self) -> str | None:
        claims, pause_s = 0, 0.0
        while not self._stopping.is_set():
            begun_ms = self._clock.monotonic_ms()
            try:
                if not self._problem and self._waits_for_its_claim():
                    return None
                stop, claimed = self._once()
            except (OtherCluster, ChainSealed) as error:
                if isinstance(error, ChainSealed) and self._cannot_finish(error):
                    continue
                return None if self._stopping.is_set() else self._stopped(error.code, str(error))
            except CorruptObject as error:
                return self._stopped(
                    CHAIN, f"{error}; `tistream connect` with a new --territory goes on (docs/agent.md)"
                )
            except TiStreamError as error:
                self._wait_for(str(error))
                continue
            except Exception as error:
                # What is in its files is durable, so that it may begin again as after a kill. If the thread ended here,
                # the agent would hold a territory that it does not read.
                log.exception("the territory begins again after an unexpected error")
                pause_s = claim_pause.after_error_s(pause_s, (self._clock.monotonic_ms() - begun_ms) / 1000)
                self._wait_for(f"unexpected {type(error).__name__}: {error}; it begins again from its files", pause_s)
                continue
            if stop is None:
                return None
            claims += 1
            if stop.code == FENCED and not claimed and claims < _CLAIMS:
                continue  # the chain has grown since it was read
            return self._stopped(stop.code, stop.reason)
        return None

    def _cannot_finish(self, error: ChainSealed) -> bool:
        """Finish the division that has ended the chain, if the territory is still this agent's after FINISH_AFTER_S:
        the command that divides takes seconds, and then removes the territory. Returns whether that has failed, so that
        the chain must be looked at again."""
        if not error.children or self._finish is None:
            return False
        self._state, self._seen = error.code, None
        if self._problem:
            self._reason = f"the division is not finished, and tried again each minute: {self._problem}"
        else:
            self._reason = f"{error}; after a minute this agent finishes the division"
        if self._stopping.wait(FINISH_AFTER_S):
            return False
        try:
            self._finish(self.order, self._pd, error.children)
        except Exception as problem:  # the steps that are missing are in the chains: the next attempt finds them
            self._problem = str(problem) or type(problem).__name__
            unexpected = not isinstance(problem, TiStreamError)
            log.warning("a division cannot be finished", extra={"reason": self._problem}, exc_info=unexpected)
            return True
        return False

    def _waits_for_its_claim(self) -> bool:
        """Pause before a claim, if several agents take the territory from each other in turn. Returns whether the
        process must end."""
        recent = recent_claims(self._objects, self.order.tenant, self.order.store_id, self._clock.now_ms())
        pause = claim_pause.pause_s(recent.claims)
        waited, grown_s, newest = 0.0, 0.0, recent.newest
        while waited < pause and waited - grown_s < claim_pause.SILENT_S:
            self._state, self._seen = FENCED, None
            self._reason = (
                f"fenced by {recent.nonce}: agents took this territory from each other {recent.claims} times in "
                f"{claim_pause.RECENT_MS // 60_000} minutes, so this one waits {pause:.0f} s before it claims: stop one"
            )
            self._metrics.fenced.set(1)
            if waited == 0:
                log.warning("the claim waits", extra={"reason": self._reason})
            if self._stopping.wait(_RETRY_S):
                return True
            waited += _RETRY_S
            found = newest_file(self._objects, self.order.tenant, self.order.store_id, newest)
            if found != newest:
                grown_s, newest = waited, found
        if waited:
            self._state, self._reason = "starting", "it reads its chain and asks PD"
        return False

    def _once(self) -> tuple[steps.Stop | None, bool]:
        """Claim the territory once, and run it until it stops. Returns the Stop (None if the process must end), and
        whether the claim was successful."""
        order, settings = self.order, self._settings
        cluster_id = self._pd_cluster_id = self._pd.cluster_id
        owned = tenant_keys(self._pd, order.kind, order.keyspace)
        check_span(owned.keys, order.span)
        config = steps.AgentConfig(
            order.tenant,
            order.store_id,
            self._new_nonce(),
            epoch=order.epoch,
            span=order.span,
            kv_api=steps.KV_RAW if order.kind is TenantKind.RAW else steps.KV_TIDB,
            keys=owned.keys,
            cut_ms=settings.cut_ms,
            idle_cut_ms=settings.idle_cut_ms,
            buffer_bytes=self.buffer_bytes,
            raw_hold_ms=settings.raw_hold_ms,
            range_bounds=self._range_bounds(owned.keys),
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
            self._own_hold(config.nonce, owned.held),
            inbox,
            calls,
            files,
            self._clock,
            self._metrics,
            self._wait,
            lambda: self._look(machine),
        )
        self._counts = Counts()
        self._look(machine)
        self._state = "running"
        log.info("territory begins", extra={"tenant": str(order.tenant), "territory": order.store_id})
        try:
            return driver.run(), driver.claimed
        finally:
            calls.shutdown(wait=False, cancel_futures=True)
            files.shutdown(wait=False, cancel_futures=True)

    def _own_hold(self, nonce: str, keyspace: int) -> OwnHold:
        hold = GcHold(self._pd, self.order.tenant, self.order.store_id, keyspace)
        newest = partial(newest_nonce, self._objects, self.order.tenant, self.order.store_id)
        return OwnHold(hold, nonce, newest, self._clock)

    def _range_bounds(self, keys: KeyMap) -> tuple[bytes, ...] | None:
        """The first keys, as in TiKV, of all range logs but the first, chosen anew for each claim; None if each
        subscription has a log of its own."""
        wanted, span = self._settings.range_logs, keys.on_wire(self.order.span)
        if not wanted or span is None:
            return None
        regions = self._pd.regions(encoded_bound(span.start), encoded_bound(span.end))
        starts, gap = [raw_bound(region.encoded_start) for region in regions], keys.gap_on_wire
        # No range has keys of the gap alone, which no region would ever resolve.
        return bounds_among([one for one in starts if gap is None or not gap.start < one <= gap.end], wanted)

    def _position(self, config: steps.AgentConfig) -> chain.Position:
        found = last_position(self._objects, config.tenant, config.store_id, config.span)
        if found is not None:
            return found
        try:
            base_ts = snapshot_ts(self._objects, config.tenant)
        except NotFoundYet as error:
            raise NotFoundYet(f"{error.key}: `tistream connect` reads it from TiKV") from error
        why = ReservedIds(self._objects, config.tenant).reserve(Reservation(config.store_id))
        if why is not None:
            raise Unavailable(f"{why}: give the territory another id")
        return chain.new_chain(config.span, base_ts)

    def _wait(self, seconds: float) -> bool:
        return self._stopping.wait(seconds) if seconds else self._stopping.is_set()

    def _wait_for(self, reason: str, pause_s: float = _RETRY_S) -> None:
        if reason != self._reason:
            log.warning("the territory cannot begin yet", extra={"reason": reason})
        self._state, self._reason, self._seen = "starting", reason, None
        self._stopping.wait(pause_s)

    def _stopped(self, code: str, reason: str) -> str:
        reason = f"fenced by another agent: {reason}" if code == FENCED else reason
        log.error("the territory has stopped", extra={"code": code, "reason": reason})
        self._state, self._reason, self.ended = code, reason, code
        return code

    def _look(self, machine: TerritoryAgent) -> None:
        """Record the state of the machine for `status`, add to the metrics, and give the machine its present memory
        limit. Only the thread that calls `machine.step` may call this."""
        if machine.config.buffer_bytes != self.buffer_bytes:
            machine.config = replace(machine.config, buffer_bytes=self.buffer_bytes)
        counts = machine.subscriptions.counts.copy()
        self._metrics.count(counts, self._counts)
        self._counts = counts
        now_ms, lowest, before = self._clock.now_ms(), machine.lowest(), self._seen
        same = before is not None and (before.span, before.waits_for) == (lowest.piece.span, lowest.state)
        self._seen = RecordedState(
            durable_ts=machine.hold_ts + 1,  # the hold lies just below what the files promise
            span=lowest.piece.span,
            waits_for=lowest.state,
            since_ms=before.since_ms if same and before is not None else now_ms,
            subscriptions=len(machine.territory),
            buffer_bytes=machine.buffer_bytes,
            region_id=lowest.region_id,
            by_state=machine.pieces_by_state(),
        )

    def status(self) -> TerritoryStatus:
        """The status of the territory for `GET /status`."""
        return territory_status(
            self.order, self._pd_cluster_id, self._state, self._reason, self._seen, self._clock.now_ms()
        )
