"""Authenticates callers. A caller has either a token of TiStream, or a JWT that an OpenID Connect issuer has signed."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.concurrency import new_condition
from tistream.errors import Unauthenticated, Unavailable
from tistream.service.observe.metrics import LoopMetrics
from tistream.service.worker import Loop
from tistream.wire.clients.token_client import TokenClient
from tistream.wire.tokens import EVERYTHING, Grant, KnownToken, hash_of, parse_token
from tistream_api.auth.jwt_callers import InvalidJwt, JwtCallers

FOLLOW_WAIT_MS = 10_000
HEARD_WAITS, HEARD_WAIT_S = 20, 0.1
_SCHEME = "bearer "
# It has no reason, because a caller without a valid token must not learn which tokens exist.
INVALID = (
    "the token is not valid: it is malformed, unknown, expired or revoked; use another one (the log of the API server "
    "says why a JSON Web Token was rejected)"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `name` is for the log. `token_id` is None for a caller with a JWT."""

    name: str
    grants: tuple[Grant, ...]
    expires_ms: int | None = None
    token_id: str | None = None


EVERYBODY = Caller("everybody", (EVERYTHING,))


class Callers:
    """Authenticates requests by their Authorization header. Thread-safe. A background loop calls `follow`.
    Authenticating needs no request to another service, so it continues while no meta server answers."""

    def __init__(self, tokens: TokenClient, clock: Clock, jwts: JwtCallers | None) -> None:
        self._client, self._clock, self._jwts = tokens, clock, jwts
        self._version = -1
        self._known: Mapping[str, KnownToken] | None = None  # replaced as a whole, never modified
        self._updated = new_condition()
        # Tokens revoked through this process. They are rejected whatever token list arrives, because a revocation is
        # final
        self._revoked: set[str] = set()

    def follow(self) -> int:
        """Loop body: wait for a newer token list and store it. Returns milliseconds until the next call. Raises
        Unavailable."""
        answer = self._client.known(self._version, 0 if self._known is None else FOLLOW_WAIT_MS)
        same = answer.version == self._version
        self._known = {token.token_id: token for token in answer.tokens}
        self._version = answer.version
        with self._updated:
            self._updated.notify_all()
        return 50 if same else 0

    def await_token(self, token_id: str) -> bool:
        """Wait until this server's token list contains a new token, so that its creator can use it at once. Returns
        False if it does not within two seconds."""
        with self._updated:
            for _ in range(HEARD_WAITS):
                if token_id in (self._known or {}):
                    return True
                self._updated.wait(HEARD_WAIT_S)
        return False

    def forget(self, token_id: str) -> None:
        """Reject a revoked token at once, although token lists that still contain it may arrive."""
        self._revoked.add(token_id)

    def loops(self, metrics: LoopMetrics) -> list[Loop]:
        """The background loops that refresh tokens and keys."""
        found = [Loop("tokens", self.follow, interval_ms=0, backoff_max_ms=1_000, metrics=metrics)]
        if self._jwts is not None:
            found.append(Loop("keys", self._jwts.refresh, interval_ms=500, metrics=metrics))
        return found

    def of(self, authorization: str | None) -> Caller:
        """Authenticate a request by its Authorization header, and return the caller. Raises Unauthenticated if the
        header is missing or invalid, and Unavailable if the tokens or keys have not been read yet."""
        text = _bearer(authorization)
        now_ms = self._clock.now_ms()
        parts = parse_token(text)
        if parts is not None:
            return self._of_ours(*parts, now_ms)
        if self._jwts is None:
            raise Unauthenticated(INVALID)
        try:
            name, grants, expires_ms = self._jwts.of(text, now_ms)
        except InvalidJwt as error:
            log.info("a JSON Web Token was rejected", extra={"reason": str(error)})
            raise Unauthenticated(INVALID) from error
        return Caller(name, grants, expires_ms)

    def still(self, caller: Caller) -> bool:
        """Whether the caller's token has neither expired nor, if it is one of TiStream's, been revoked."""
        if caller.expires_ms is not None and self._clock.now_ms() >= caller.expires_ms:
            return False
        return caller.token_id is None or self._valid(caller.token_id) is not None

    def _valid(self, token_id: str) -> KnownToken | None:
        return None if token_id in self._revoked else (self._known or {}).get(token_id)

    def _of_ours(self, token_id: str, secret: str, now_ms: int) -> Caller:
        if self._known is None:
            raise Unavailable(
                "this API server has not received the list of tokens from a meta server yet: retry; if it stays, see "
                "whether meta servers run (TISTREAM_API__META_URL)"
            )
        token = self._valid(token_id)
        # The id is no secret, so an ordinary look-up is safe. The secret's hash is compared in constant time.
        if token is None or not hmac.compare_digest(token.secret_hash, hash_of(secret)):
            raise Unauthenticated(INVALID)
        if token.expires_ms is not None and now_ms >= token.expires_ms:
            raise Unauthenticated(INVALID)
        return Caller(f"token {token_id}", tuple(token.grants), token.expires_ms, token_id)


def _bearer(authorization: str | None) -> str:
    if authorization is None:
        raise Unauthenticated("this call needs a token: send the header Authorization: Bearer TOKEN")
    if not authorization.lower().startswith(_SCHEME):
        raise Unauthenticated(
            "the Authorization header has another scheme than Bearer: send Authorization: Bearer TOKEN"
        )
    return authorization[len(_SCHEME) :].strip()
