"""Counts what a process does for each tenant, by hour, and reports the counts to the meta servers.

A report contains the totals since the process started. So a report that is lost, or arrives twice, changes nothing. If
a process is killed, its unreported usage is lost. Usage that is derived from manifests (`DurableUsage`) is reported
again by the next process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.errors import TiStreamError, Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.usage import (
    ENTRIES_MAX,
    HOUR_MS,
    CountedUsage,
    Intake,
    StoredUsage,
    UsageReport,
    hour_of,
)

log = logging.getLogger(__name__)

HOURS_MAX = 72  # hours of totals that are kept while no meta server answers

Hour = tuple[TenantKey, int]
T = TypeVar("T")


class DurableUsage(Protocol):
    """Usage that a sorter derives from a tenant's manifests, so that it survives a restart."""

    def due(self, now_ms: int) -> tuple[Sequence[Intake], Sequence[StoredUsage]]:
        """The usage that must be reported at `now_ms`, because no meta server has acknowledged it. Returns (the bytes
        of change files by tenant and hour, the stored bytes by task and hour)."""

    def acknowledged(self, intake: Sequence[Intake], stored: Sequence[StoredUsage]) -> None:
        """Record that a meta server has received this usage, which `due` returned. It is not due again."""


class _Totals:
    """The counters of one tenant in one hour."""

    __slots__ = ("requests", "rows", "size")

    def __init__(self) -> None:
        self.size, self.rows = 0, 0
        self.requests: dict[str, int] = {}


class UsageMeter:
    """Counts the work of this process for each tenant, and reports it to the meta servers. Thread-safe.

    Run `report` in a loop. `requests` returns the requests to object storage so far, by tenant and kind. Requests count
    in the hour in which `report` reads them.
    """

    def __init__(
        self,
        node_id: str,
        instance: str,
        clock: Clock,
        requests: Callable[[], Mapping[TenantKey, Mapping[str, int]]],
        send: Callable[[UsageReport], object],
        durable: DurableUsage | None = None,
    ) -> None:
        self._node_id, self._instance, self._clock = node_id, instance, clock
        self._requests, self._send, self._durable = requests, send, durable
        self._lock = new_lock()
        self._totals: dict[Hour, _Totals] = {}
        self._dirty: set[Hour] = set()
        self._seen: dict[TenantKey, dict[str, int]] = {}  # the requests that have been counted already

    def served(self, tenant: TenantKey, size: int, rows: int = 0) -> None:
        """Count the bytes of an answer that were sent, and the rows in them."""
        with self._lock:
            totals = self._of(tenant, hour_of(self._clock.now_ms()))
            totals.size += size
            totals.rows += rows

    def report(self) -> None:
        """Report the counters that changed since the last report. Raises Unavailable; the next report contains them."""
        self._look()
        with self._lock:
            hours, self._dirty = sorted(self._dirty), set()
            counted = [self._counted(hour) for hour in hours]
        sent = 0
        try:
            for part in _parts(counted):
                self._send_report(counted=list(part))
                sent += len(part)
        finally:
            with self._lock:
                self._dirty.update(hours[sent:])
                self._forget()
        if self._durable is not None:
            intake, stored = self._durable.due(self._clock.now_ms())
            for some in _parts(intake):
                self._send_report(intake=list(some))
                self._durable.acknowledged(some, ())
            for more in _parts(stored):
                self._send_report(stored=list(more))
                self._durable.acknowledged((), more)

    def last_report(self) -> None:
        """Send the last report before the process exits. If no meta server answers, the unreported usage is lost."""
        try:
            self.report()
        except TiStreamError as error:
            log.warning("usage of the last seconds is not reported", extra={"error": str(error)})

    def _send_report(
        self,
        counted: Sequence[CountedUsage] = (),
        intake: Sequence[Intake] = (),
        stored: Sequence[StoredUsage] = (),
    ) -> None:
        report = UsageReport(
            node_id=self._node_id,
            instance=self._instance,
            counted=list(counted),
            intake=list(intake),
            stored=list(stored),
        )
        try:
            self._send(report)
        except UnknownName as error:  # a meta server of a version without metering
            raise Unavailable(f"usage cannot be reported: {error}") from error

    def _look(self) -> None:
        made = self._requests()
        with self._lock:
            hour_ms = hour_of(self._clock.now_ms())
            for tenant, kinds in made.items():
                seen = self._seen.setdefault(tenant, {})
                more = {kind: count - seen.get(kind, 0) for kind, count in kinds.items() if count > seen.get(kind, 0)}
                if not more:
                    continue
                totals = self._of(tenant, hour_ms).requests
                for kind, count in more.items():
                    totals[kind] = totals.get(kind, 0) + count
                seen.update(kinds)

    def _of(self, tenant: TenantKey, hour_ms: int) -> _Totals:
        """The totals of a tenant in an hour. Marks them as changed, because the caller will change them."""
        self._dirty.add((tenant, hour_ms))
        return self._totals.setdefault((tenant, hour_ms), _Totals())

    def _counted(self, hour: Hour) -> CountedUsage:
        (tenant, hour_ms), totals = hour, self._totals[hour]
        return CountedUsage(
            cluster_id=tenant.cluster_id,
            tenant_id=tenant.tenant_id,
            hour_ms=hour_ms,
            bytes_served=totals.size,
            rows_served=totals.rows,
            requests=dict(totals.requests),
        )

    def _forget(self) -> None:
        """Drop hours that are over and reported, and hours that could not be reported for HOURS_MAX hours. The previous
        hour is kept: otherwise its totals would start again at zero if the clock was set back."""
        now_ms = hour_of(self._clock.now_ms())
        self._dirty = {hour for hour in self._dirty if hour[1] >= now_ms - HOURS_MAX * HOUR_MS}
        for hour in [hour for hour in self._totals if hour[1] < now_ms - HOUR_MS and hour not in self._dirty]:
            del self._totals[hour]


def _parts(entries: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(entries), ENTRIES_MAX):
        yield entries[start : start + ENTRIES_MAX]
