"""A meta server and API servers over HTTP, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from support import plain_http
from support.access_world import AUDIENCE, ISSUER, Issuer
from support.http_world import CLOCK, LEASE_MS, Server, never_superseded
from support.meta_database import database_url
from support.platform import free_port
from support.waiting import PATIENCE_S, eventually
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.token_client import TokenClient
from tistream.wire.tokens import EVERYTHING, StoreToken, hash_of, token_text
from tistream_api.app import build_app as build_api
from tistream_api.app import draw_token
from tistream_api.settings import ApiSettings, OidcSettings
from tistream_meta.app import build_app as build_meta
from tistream_meta.settings import MetaSettings

READ = {"actions": ["read"], "cluster": "7", "tenant": "acme"}


class Platform:
    """A meta server, and API servers that are asked by who bears a token."""

    def __init__(self, directory: Path) -> None:
        self.objects, self.issuer = MemoryObjectStore(), Issuer(directory / "keys.json")
        settings = MetaSettings(database_url=database_url(directory), check_ms=20, lease_ms=LEASE_MS)
        self.meta = Server(build_meta(settings, self.objects, CLOCK))
        eventually(lambda: plain_http.get(f"{self.meta.url}/readyz").status_code == 200)
        self.tokens = TokenClient(MetaClient(HttpClient(deadline_s=PATIENCE_S), self.meta.url))
        self.api = self.start_api(
            auth="on", oidc=OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks_file=self.issuer.path)
        )

    def start_api(self, **settings: Any) -> Server:
        port = free_port()
        made = ApiSettings(port=port, node_id=f"api-{port}", meta_url=self.meta.url, **settings)
        return Server(build_api(made, self.objects, CLOCK, end=never_superseded), port)

    def token(self, expires_ms: int | None = None) -> str:
        """One that may do everything, known to the API."""
        token_id, secret = draw_token()
        kept = StoreToken(token_id=token_id, secret_hash=hash_of(secret), grants=[EVERYTHING], expires_ms=expires_ms)
        self.tokens.store(kept)
        text = token_text(token_id, secret)
        eventually(lambda: self.ask(text, "GET", "/v1/tokens").status_code == 200)
        return text

    def ask(self, token: str, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        return plain_http.request(
            method, self.api.url + path, headers=headers, json=body, timeout=PATIENCE_S, trust_env=False
        )

    def made(self, token: str, **more: Any) -> dict[str, Any]:
        answer = self.ask(token, "POST", "/v1/tokens", {"grants": [READ], **more})
        assert answer.status_code == 201, answer.text
        told: dict[str, Any] = json.loads(answer.content)
        return told


@contextmanager
def platform_in(directory: Path) -> Iterator[Platform]:
    """Started, and stopped at the end."""
    one = Platform(directory)
    try:
        yield one
    finally:
        one.api.stop()
        one.meta.stop()
