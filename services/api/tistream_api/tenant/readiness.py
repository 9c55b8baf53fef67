"""Checks whether every service that pulls depend on is ready."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tistream.concurrency import Event
from tistream.errors import TiStreamError
from tistream.follow.tenants import Tenants
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient

ROLES = ("schema", "dispatcher", "sorter")
DEADLINE_S = 2.0


class Readiness:
    """Asks the `/readyz` of every service, until all have been ready once. From then on this server stays ready when
    another service restarts: committed data can be served all the same, and if a load balancer dropped every API
    server, lag would become an outage. The call `status` shows which service is missing."""

    def __init__(self, http: HttpClient, meta: MetaClient, tenants: Tenants, warm: Event) -> None:
        self._http = http
        self._meta = meta
        self._tenants = tenants
        self._warm = warm
        self._were_ready = False

    def first_missing(self) -> str | None:
        """Ask the services whether they are ready, unless all have been ready once. Returns the first reason why pulls
        cannot be answered; None if they can be."""
        if not self._warm.is_set():
            return "the decoder is being compiled"
        if self._tenants.routes() is None:
            return "the meta server has not answered yet"
        if self._were_ready:
            return None
        urls: list[tuple[str, str]] = []
        for role in ROLES:
            found = self._tenants.services(role)
            if not found:
                return f"no {role} has registered"
            urls.extend((role, url) for url in found)
        missing = self._ask("meta", lambda: self._meta.request("GET", "/readyz", deadline_s=DEADLINE_S))
        for role, url in urls if missing is None else ():
            ask = partial(self._http.request, "GET", f"{url}/readyz", deadline_s=DEADLINE_S)
            missing = missing or self._ask(role, ask)
        self._were_ready = missing is None
        return missing

    @staticmethod
    def _ask(role: str, ask: Callable[[], object]) -> str | None:
        try:
            ask()
        except TiStreamError as error:
            return f"{role}: {error}"
        return None
