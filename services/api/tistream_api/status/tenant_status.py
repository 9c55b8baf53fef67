"""Answers the calls for status, placement and coverage: asks every service about one tenant. lateness.py interprets the
answers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tistream.clock import Clock
from tistream.errors import FatalError, TiStreamError, Unavailable
from tistream.follow.tenant_view import TenantView
from tistream.follow.tenants import Tenants
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.storage import layout
from tistream.wire.api import TenantPlacement, TenantProgress
from tistream.wire.bulk.territories import TerritoryInfo
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.schema_client import SchemaClient
from tistream.wire.clients.territory_client import territories_of
from tistream.wire.dispatcher import StoreList, StoreStatus
from tistream.wire.meta import TenantRoute
from tistream.wire.sorter import Coverage, Hold, SliceStatus
from tistream_api.request.meta_paths import at_meta
from tistream_api.status import store_statuses
from tistream_api.status.lateness import LATE_SECONDS, TenantReports, held_by
from tistream_api.status.placement_answer import placement
from tistream_api.status.source_statuses import SourceReports

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TenantStatus:
    """Asks all services about one tenant, and builds the answers of the status calls. Thread-safe."""

    http: HttpClient
    tenants: Tenants
    clock: Clock
    meta: MetaClient

    @property
    def sources(self) -> SourceReports:
        """The object that asks the ingest processes for the statuses of sources, of any tenant."""
        return SourceReports(self.http, self.tenants)

    def status(self, view: TenantView) -> TenantProgress:
        """The answer of the status call."""
        view.wait_fresh()
        picture = self._picture(view)
        return TenantProgress(
            resolved_ts=str(picture.resolved_ts),
            flushed_ts=str(view.flushed_ts()),
            # 0 would be a lag since 1970.
            lag_seconds=round(picture.lag_seconds, 3) if picture.resolved_ts > 0 else None,
            held_by=held_by(picture),
        )

    def placement(self, view: TenantView) -> TenantPlacement:
        """The answer of the placement call."""
        view.wait_fresh()
        return placement(self._picture(view), view.route)

    def coverage(self, view: TenantView, start: bytes, end: bytes) -> Coverage:
        """Ask the sorters which keys of `[start, end)` are complete up to which ts, and return their slices in key
        order. An empty `end` is unbounded. Raises Unavailable if a sorter does not answer."""
        view.wait_fresh()
        view.earliest_ts()
        wanted = KeySpan(start, end)
        slices: list[SliceStatus] = []
        for task in sorted(view.route.tasks, key=lambda task: bytes.fromhex(task.start_key)):
            clipped = wanted.clip(KeySpan(bytes.fromhex(task.start_key), bytes.fromhex(task.end_key)))
            if clipped is None:
                continue
            if task.sorter_url is None:
                raise Unavailable(
                    f"task {task.task_id} has no sorter now: retry; if it stays, see whether sorters run (`tistream "
                    "node list`)"
                )
            url = f"{task.sorter_url}/v1/tasks/{task.task_id}/coverage"
            query = {"start_key": clipped.start.hex(), "end_key": clipped.end.hex()}
            try:
                slices.extend(self.http.get(url, Coverage, query).slices)
            except FatalError as error:  # the sorter has just started, and does not hold the task yet
                raise Unavailable(f"task {task.task_id}: {error}") from error
        return Coverage(slices=slices)

    def _picture(self, view: TenantView) -> TenantReports:
        unreachable: list[Hold] = []
        holds: list[Hold] = []
        stores = self._stores(view, holds, unreachable)
        holds.extend(self._schema_holds(view))
        holds.extend(self.sources.holds(view.tenant))
        picture = self._of(view, self.clock.now_ms(), stores, holds, unreachable)
        if picture.lag_seconds <= LATE_SECONDS:
            return picture
        return replace(picture, territories=self._territories(view.tenant))

    def _territories(self, tenant: TenantKey) -> list[TerritoryInfo]:
        """The territories whose agents push the tenant's files; empty if no meta server answers, because the reports of
        the other services then contain a reason, too."""
        try:
            return territories_of(self.meta, at_meta(tenant.cluster_id, tenant.tenant_id)).territories
        except TiStreamError as error:
            log.info("territories are not known", extra={"tenant": str(tenant), "reason": str(error)})
            return []

    def glance(self, view: TenantView, stores: Sequence[StoreStatus], unreachable: Sequence[Hold]) -> TenantReports:
        """Return what this process knows already about a tenant, as of the tenant's last refresh; it makes no requests.
        `stores`, and the dispatchers that did not answer (`unreachable`), are those of the last sample of lags."""
        at_ms = self.clock.now_ms() - self.tenants.refresh_pause_ms(view)
        return self._of(view, at_ms, stores, [], unreachable)

    def _of(
        self,
        view: TenantView,
        at_ms: int,
        stores: Sequence[StoreStatus],
        holds: Sequence[Hold],
        unreachable: Sequence[Hold],
    ) -> TenantReports:
        missing = [
            Hold(stage="schema" if peer == "schema" else "node", reason=f"{peer}: {why}")
            for peer, why in view.problems.items()
        ]
        barriers = [Hold(stage="schema", object=barrier.key.hex(), reason=str(barrier)) for barrier in view.barriers()]
        return TenantReports(
            now_ms=at_ms,
            resolved_ts=view.resolved_ts(),
            schema_ts=view.schema_resolved_ts(),
            task_ids=[task.task_id for task in view.route.tasks],
            statuses=dict(view.statuses),
            stores=stores,
            holds=[*holds, *barriers],
            snapshot_object=layout.schema_snap(view.tenant),
            route_problem=view.route.problem,
            unreachable=[*missing, *unreachable],
            sorters={task.task_id: task.sorter_node for task in view.route.tasks},
            paused=_paused(view.route),
        )

    def _stores(self, view: TenantView, holds: list[Hold], unreachable: list[Hold]) -> list[StoreStatus]:
        """The statuses of the tenant's stores, which the dispatchers report. Adds holds for the stores to `holds`, and
        for dispatchers that do not answer to `unreachable`."""
        query = {"cluster_id": view.tenant.cluster_id, "tenant_id": view.tenant.tenant_id}
        answers: list[StoreList] = []
        route = view.route
        urls = self.tenants.services("dispatcher")
        if not urls:
            unreachable.append(Hold(stage="dispatch", reason="no dispatcher is known"))
        for url in urls:
            try:
                answers.append(self.http.get(f"{url}/v1/stores", StoreList, query))
            except TiStreamError as error:
                unreachable.append(Hold(stage="dispatch", reason=f"dispatcher {url}: {error}"))
        for answer in answers:
            holds.extend(answer.holds)
        holds.extend(store_statuses.unread(route, answers))
        return store_statuses.merged(route, answers)

    def _schema_holds(self, view: TenantView) -> list[Hold]:
        holds: list[Hold] = []
        for url in self.tenants.services("schema"):
            try:
                holds.extend(_client(self.http, url).status(view.tenant).holds)
            except TiStreamError as error:
                holds.append(Hold(stage="schema", reason=f"schema registry {url}: {error}"))
        return holds


def _paused(route: TenantRoute) -> str | None:
    if route.delete_at_ms is not None:
        when = datetime.fromtimestamp(route.delete_at_ms / 1000, UTC).isoformat(timespec="seconds")
        return f"the tenant is paused, and will be deleted at {when}: `tistream tenant keep` takes that back"
    return "the tenant is paused: `tistream tenant resume` lets it go on" if route.paused else None


def _client(http: HttpClient, url: str) -> SchemaClient:
    return SchemaClient(http, lambda: url)
