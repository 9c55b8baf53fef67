"""The keys and certificates with which this process authenticates to other services, from its settings."""

from __future__ import annotations

from collections.abc import Mapping

from tistream.clock import Clock
from tistream.service.http.guard import Guard
from tistream.service.http.tls import Certificates
from tistream.service.settings import ServiceSettings, SettingsError
from tistream.wire.auth.service_auth import ServiceAuth, ServiceKeys
from tistream.wire.auth.service_token import Caller
from tistream.wire.clients.client import DEADLINE_S, HttpClient


class PeerClients:
    """Loads this process's keys and certificates, and creates HTTP clients with them. Create one per process. Raises
    SettingsError if a file is missing or invalid."""

    def __init__(self, settings: ServiceSettings, clock: Clock) -> None:
        self.auth: ServiceAuth | None = None
        self.guard: Guard | None = None
        try:
            self.certificates = Certificates(settings.tls)
            if settings.service_key_file is not None:
                keys = ServiceKeys(settings.service_key_file, clock)
                self.auth = ServiceAuth(keys, Caller(settings.node, settings.service_name()), clock)
                self.guard = Guard(keys, settings.metrics_token_file)
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"the keys and certificates of {settings.service_name()} cannot be used: {error}"
            ) from error

    def new_http(self, *, deadline_s: float = DEADLINE_S, headers: Mapping[str, str] | None = None) -> HttpClient:
        """Create an HTTP client that authenticates as this process. `deadline_s`: the deadline of each call, in
        seconds."""
        return HttpClient(deadline_s=deadline_s, headers=headers, auth=self.auth, tls=self.certificates.client)
