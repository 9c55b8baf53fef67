"""Calls to the meta servers about the tokens of API users."""

from __future__ import annotations

from tistream.wire.clients.client import DEADLINE_S, parse
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.tokens import KnownTokens, StoreToken, TokenInfo, TokenList

_PATH = "/v1/tokens"


class TokenClient:
    """Client of the meta servers' calls about tokens. Any meta server answers them. Thread-safe."""

    def __init__(self, meta: MetaClient) -> None:
        self._meta = meta

    def known(self, version: int, wait_ms: int) -> KnownTokens:
        """The valid tokens. If their version is `version`, the call returns once it changes, or after wait_ms. Raises
        Unavailable."""
        path = f"/upcall/v1/tokens?known_version={version}&wait_ms={wait_ms}"
        answer = self._meta.request("GET", path, deadline_s=DEADLINE_S + wait_ms / 1000)
        return parse(path, answer, KnownTokens)

    def store(self, token: StoreToken) -> TokenInfo:
        """Store a token. Idempotent. Raises AlreadyDiffers, LimitReached."""
        return parse(_PATH, self._meta.request("POST", _PATH, token.model_dump_json().encode()), TokenInfo)

    def every(self) -> TokenList:
        """The valid tokens, and of the expired and revoked ones the newest."""
        return parse(_PATH, self._meta.request("GET", _PATH), TokenList)

    def revoke(self, token_id: str) -> TokenInfo:
        """Revoke a token. Idempotent. Raises UnknownName."""
        path = f"{_PATH}/{token_id}"
        return parse(path, self._meta.request("DELETE", path), TokenInfo)
