"""Calls of the simulator to the platform's API: it creates the tenant, announces files, and asks for coverage, as
agents do."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import orjson

from tistream.errors import RetryableError
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.wire.clients.client import HttpClient
from tistream_upstream.effects import Announce

DEADLINE_S = 5.0
_AGAIN_S = 0.5
_SAY_EVERY = 20


class PlatformApi:
    """Client of one API server for one tenant. Methods raise TiStreamError."""

    def __init__(self, url: str, tenant: TenantKey, http: HttpClient) -> None:
        self._http = http
        self._url = url.rstrip("/")
        self._tenant = tenant
        cluster = f"{self._url}/v1/clusters/{quote(tenant.cluster_id, safe='')}/tenants"
        self._tenants, self._own = cluster, f"{cluster}/{quote(tenant.tenant_id, safe='')}"

    def create_tenant(
        self, sleep: Callable[[float], None], tries: int = 120, say: Callable[[str], None] | None = None
    ) -> None:
        """Create the tenant. Retry while the platform starts, up to `tries` times, and report the wait with `say`."""
        for number in range(1, tries + 1):
            try:
                self._post(self._tenants, {"tenant_id": self._tenant.tenant_id})
                return
            except RetryableError as error:
                if number == tries:
                    raise
                if say is not None and number % _SAY_EVERY == 1:
                    say(f"waiting for the platform at {self._url}: {error}")
                sleep(_AGAIN_S)

    def announce(self, announce: Announce) -> None:
        """Announce a file. A lost announcement costs latency only."""
        names = {"cluster_id": self._tenant.cluster_id, "tenant_id": self._tenant.tenant_id}
        self._post(
            f"{self._url}/v1/notifications", {**names, "store_id": str(announce.store_id), "ts": str(announce.ts)}
        )

    def coverage(self, span: KeySpan) -> list[tuple[KeySpan, int]]:
        """The slices that overlap `span`, each as its span and its resolved_ts."""
        params = {"start_key": span.start.hex(), "end_key": span.end.hex()}
        answer = orjson.loads(self._http.request("GET", f"{self._own}/coverage", params=params).content)
        return [
            (KeySpan(bytes.fromhex(one["start_key"]), bytes.fromhex(one["end_key"])), int(one["resolved_ts"]))
            for one in answer["slices"]
        ]

    def lag_seconds(self) -> float | None:
        """The seconds by which the tenant's resolved_ts is behind the wall clock; None if the platform does not know
        it."""
        lag = orjson.loads(self._http.request("GET", f"{self._own}/status").content)["lag_seconds"]
        return None if lag is None else float(lag)

    def _post(self, url: str, body: dict[str, str]) -> None:
        self._http.request("POST", url, content=orjson.dumps(body), content_type="application/json")
