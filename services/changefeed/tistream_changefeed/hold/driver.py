"""Begins and ends shards in this process as the meta server orders. A background loop calls `beat`."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, get_args

from tistream.clock import Clock
from tistream.errors import RetryableError, TiStreamError
from tistream.wire.bulk.changefeeds import FeedReport, FeedWork, HeldBy, Phase, WorkerBeat
from tistream.wire.clients.meta_client import MetaClient
from tistream_changefeed.core import back_off
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.hold.holder_threads import HolderThreads
from tistream_changefeed.hold.quota import TenantQuotas
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.shard_metrics import ReportAndTally, ShardTally

log = logging.getLogger(__name__)

Key = tuple[str, str, str, int, int, int, int]


class _Refused(NamedTuple):
    """A shard that could not be begun. `revision`: that of the order. `attempts`: how many attempts in a row have met
    an error that may pass. `retry_at_ms`: when it is begun again, monotonic; None: not before its key changes."""

    report: FeedReport
    revision: int
    attempts: int = 0
    retry_at_ms: int | None = None


@dataclass(slots=True)
class Driver:
    """Begins and ends the shards of this process as the meta server orders. `new_holder` builds the Holder of a shard;
    it raises a RetryableError if a file or a store that it needs cannot be read now, and another TiStreamError for a
    configuration that this version does not support. It may take seconds, in which no beat renews the leases of the
    shards; so there are pauses between its attempts at one shard, which `rng` varies."""

    meta: MetaClient
    node_id: str
    instance: str
    new_holder: Callable[[FeedWork], Holder]
    metrics: ChangefeedMetrics
    threads: HolderThreads
    quotas: TenantQuotas
    clock: Clock
    rng: Random
    _holders: dict[Key, Holder] = field(default_factory=dict)
    _refused: dict[Key, _Refused] = field(default_factory=dict)
    _beaten: bool = False

    def not_ready(self) -> str | None:
        """The reason why no feed can run yet; None if feeds can run."""
        return None if self._beaten else "the meta server has not answered a beat yet"

    def beat(self) -> None:
        """Send one heartbeat with reports to the meta server, and begin and end shards as the answer says. If no meta
        server answers, the shards continue, and this raises Unavailable."""
        reports = [
            *(holder.report() for holder in self._holders.values()),
            *(one.report for one in self._refused.values()),
        ]
        beat = WorkerBeat(node_id=self.node_id, instance=self.instance, reports=reports, busy=self.quotas.busy())
        answer = self.meta.beat_feeds(beat)
        self.quotas.sharers = answer.quota_sharers
        wanted = {_key(work): work for work in answer.shards}
        for key in [key for key in self._holders if key not in wanted]:
            self._end(key)
        self._refused = {key: refused for key, refused in self._refused.items() if key in wanted}
        for key, work in wanted.items():
            if key not in self._holders and self._due(key, work):
                self._begin(key, work)
        self._beaten = True
        self._count(reports)

    @property
    def idle(self) -> bool:
        """Whether this process holds no shard, as of the last heartbeat; False before the first one."""
        return self._beaten and not (self._holders or self._refused)

    def reports(self) -> Iterator[ReportAndTally]:
        """The report and the counters of each shard, for metrics. Any thread may call it."""
        for holder in list(self._holders.values()):
            yield holder.report(), holder.tally
        for refused in list(self._refused.values()):
            yield refused.report, ShardTally()

    def stop(self) -> None:
        """Ask every holder to end, because the process ends. Returns at once. An idle holder gets no thread to close
        its sink, because it has no open transaction."""
        for holder in list(self._holders.values()):
            holder.stop()

    def _due(self, key: Key, work: FeedWork) -> bool:
        """Whether a shard that is not held may be begun now: its pause is over, or its order is another one."""
        refused = self._refused.get(key)
        if refused is None:
            return True
        if refused.retry_at_ms is None:
            return False
        return refused.revision != work.revision or self.clock.monotonic_ms() >= refused.retry_at_ms

    def _begin(self, key: Key, work: FeedWork) -> None:
        fields = {"feed": work.shard.changefeed_id, "tenant": f"{work.shard.cluster_id}/{work.shard.tenant_id}"}
        try:
            holder = self.new_holder(work)
            self.threads.begin(holder)
        except RetryableError as error:  # nothing is wrong with the feed: a person need not resume it
            self._postpone(key, work, str(error), {**fields, "error": str(error)})
            return
        except TiStreamError as error:
            log.error("a feed's configuration was refused", extra={**fields, "error": str(error)})
            self._refused[key] = _Refused(_refusal(work, "failed", str(error)), work.revision)
            return
        except Exception as error:  # or no shard that follows would begin
            # Neither the report nor the log has the text of the error, because it may have a secret.
            reason = f"{type(error).__name__}: the log of worker {self.node_id} says more"
            places = "".join(traceback.format_tb(error.__traceback__))
            more = {"error": type(error).__name__, "traceback": places}
            self._postpone(key, work, reason, {**fields, **more})
            return
        self._refused.pop(key, None)
        self._holders[key] = holder
        log.info("shard held", extra={**fields, "shard": work.shard.shard, "epoch": work.epoch})

    def _postpone(self, key: Key, work: FeedWork, reason: str, logged: Mapping[str, str]) -> None:
        """Report a shard that could not be begun as one that is retried. The first heartbeat after a pause begins it
        again; each pause is twice as long as the last one of the same order. `reason`: why; it is logged, with the
        members of `logged`, only if it is not that of the last attempt."""
        before = self._refused.get(key)
        if before is None or before.report.error != reason:
            log.error("a shard could not be begun, and is tried again after a pause", extra=dict(logged))
        attempts = 1 if before is None or before.revision != work.revision else before.attempts + 1
        # the pause follows the attempt, which may have taken seconds
        retry_at_ms = self.clock.monotonic_ms() + back_off.pause_ms(attempts, self.rng)
        self._refused[key] = _Refused(_refusal(work, "retrying", reason), work.revision, attempts, retry_at_ms)

    def _end(self, key: Key) -> None:
        holder = self._holders.pop(key)
        self.threads.end(holder)
        log.info("shard no longer held", extra={"shard": holder.shard.order.name})

    def _count(self, reports: list[FeedReport]) -> None:
        self.metrics.shards.set(len(self._holders))
        phases = [report.phase for report in reports]
        for phase in get_args(Phase):
            self.metrics.phases.labels(phase).set(phases.count(phase))


def _key(work: FeedWork) -> Key:
    of = work.shard
    secrets = hash(tuple(sorted(work.secrets.items())))  # a holder is replaced when a secret is put again
    return of.cluster_id, of.tenant_id, of.changefeed_id, of.shard, of.generation, work.epoch, secrets


def _refusal(work: FeedWork, phase: Phase, reason: str) -> FeedReport:
    """The report of a shard that could not be begun. `phase`: `retrying` if a later beat begins it again. `reason`:
    why."""
    held = HeldBy(stage="encode", object=work.shard.changefeed_id, reason=reason)
    return FeedReport(
        shard=work.shard,
        epoch=work.epoch,
        phase=phase,
        checkpoint_ts=None,
        resolved_ts=0,
        held_by=[held],
        error=reason,
    )
