"""Measures the lag of all tenants: asks each dispatcher every few seconds for the progress of its stores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tistream.clock import Clock
from tistream.errors import TiStreamError
from tistream.follow.tenant_view import TenantView
from tistream.follow.tenants import Tenants
from tistream.model.ids import TenantKey
from tistream.wire.api import LagSamples
from tistream.wire.clients.client import HttpClient
from tistream.wire.dispatcher import StoreList, StoreStatus
from tistream.wire.sorter import Hold
from tistream_api.status import store_statuses
from tistream_api.status.lag_history import LagHistory
from tistream_api.status.stage_lags import stage_lags


class LagSampler:
    """Adds samples of lag to a LagHistory. A background loop calls `sample`. Thread-safe."""

    def __init__(self, http: HttpClient, tenants: Tenants, clock: Clock, history: LagHistory) -> None:
        self._http = http
        self._tenants = tenants
        self._clock = clock
        self._history = history
        self._answers: dict[TenantKey, list[StoreList]] = {}
        self._unanswered = [Hold(stage="dispatch", reason="the dispatchers have not been asked yet")]

    def sample(self) -> None:
        """Add a sample of every tenant. If a dispatcher does not answer, its part of the sample is unknown."""
        self._answers, self._unanswered = self._ask()
        now_ms = self._clock.now_ms()
        lags = {}
        for key, view in self._tenants.views().items():
            # An idle tenant is refreshed only now and then; its lag is computed for the time of its last refresh.
            at_ms = now_ms - self._tenants.refresh_pause_ms(view)
            resolved_ts, schema_ts = view.resolved_ts(), view.schema_resolved_ts()
            lags[key] = stage_lags(at_ms, view.route, self.stores(view), view.statuses, schema_ts, resolved_ts)
        self._history.add(now_ms, lags)

    def stores(self, view: TenantView) -> list[StoreStatus]:
        """The statuses of a tenant's stores in the last sample."""
        return store_statuses.merged(view.route, self._answers.get(view.tenant, []))

    def lags(self, view: TenantView, minutes: int) -> LagSamples:
        """The answer of TenantLag: the samples of the last `minutes` minutes."""
        return self._history.of(view.tenant, self._clock.now_ms() - minutes * 60_000)

    def unanswered(self) -> list[Hold]:
        """A hold (see glossary) for each dispatcher that did not answer the last sample; one if no dispatcher is known,
        or before the first sample."""
        return self._unanswered

    def _ask(self) -> tuple[dict[TenantKey, list[StoreList]], list[Hold]]:
        found: dict[TenantKey, list[StoreList]] = defaultdict(list)
        urls = self._tenants.services("dispatcher")
        unanswered = [] if urls else [Hold(stage="dispatch", reason="no dispatcher is known")]
        for url in urls:
            try:
                answer = self._http.get(f"{url}/v1/stores", StoreList)
            except TiStreamError as error:
                unanswered.append(Hold(stage="dispatch", reason=f"a dispatcher does not answer: {error.code}"))
                continue
            for key, stores in _by_tenant(answer).items():
                found[key].append(StoreList(node_id=answer.node_id, stores=stores))
        return found, unanswered


def _by_tenant(answer: StoreList) -> Mapping[TenantKey, list[StoreStatus]]:
    found: dict[TenantKey, list[StoreStatus]] = defaultdict(list)
    for store in answer.stores:
        found[TenantKey(store.cluster_id, store.tenant_id)].append(store)
    return found
