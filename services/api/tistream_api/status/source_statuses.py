"""Asks the ingest processes for the status of a tenant's sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tistream.errors import TiStreamError
from tistream.follow.tenants import Tenants
from tistream.model.ids import TenantKey
from tistream.wire.bulk.sources import SourceStatus, SourceStatuses
from tistream.wire.clients.client import HttpClient
from tistream.wire.sorter import Hold


@dataclass(frozen=True, slots=True)
class SourceReports:
    """Collects the statuses of sources from all ingest processes. Thread-safe. If a process does not answer, its
    sources are left out of the results."""

    http: HttpClient
    tenants: Tenants

    def of(self, key: TenantKey) -> Sequence[SourceStatus]:
        """The statuses of a tenant's sources. While a source moves between two processes, the status may be that of
        either."""
        query = {"cluster_id": key.cluster_id, "tenant_id": key.tenant_id}
        found: dict[str, SourceStatus] = {}
        for url in self.tenants.services("ingest"):
            try:
                answer = self.http.get(f"{url}/v1/sources", SourceStatuses, query)
            except TiStreamError:
                continue
            found.update((one.info.source_id, one) for one in answer.sources)
        return [found[name] for name in sorted(found)]

    def holds(self, key: TenantKey) -> list[Hold]:
        """The holds of the tenant's sources: why they make no progress, or are late although they work."""
        return [one.hold for one in self.of(key) if one.hold is not None]
