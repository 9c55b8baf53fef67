"""Publishes the list of valid tokens to the API servers. Each meta server reads it from the database, whether it is the
owner or not."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tistream.clock import Clock
from tistream.concurrency import new_condition
from tistream.errors import Fenced, InvalidRequest, Unavailable
from tistream.wire.tokens import KnownTokens, StoreToken, TokenInfo
from tistream_meta.audit.audited_action import audited_as
from tistream_meta.database.repository import Repository

log = logging.getLogger(__name__)

LOOK_MS = 300
# a meta server that cannot read the database any more returns no tokens, because one may be revoked by now
STALE_MS = 2_000
REST_AFTER_MS = 30_000  # without a reader for so long, the database is not asked: authentication may be off
REST_MS = 60_000
_WOKEN_S = 1.0  # how long the first reader after such a rest waits for the tokens


class TokenBoard:
    """The valid tokens, for API servers that poll them. Thread-safe. A background loop calls `look`. The owner stores
    the token `first` if it is not in the database. `wake` calls `look` now."""

    def __init__(
        self,
        repository: Repository,
        clock: Clock,
        is_owner: Callable[[], bool],
        first: StoreToken | None = None,
    ) -> None:
        self._repository, self._clock = repository, clock
        self._is_owner, self._first = is_owner, first
        self.wake: Callable[[], None] = lambda: None
        self._read_until_ms = 0  # readers are expected until then
        self._resting = self._woken = self._ended = False
        self._changed = new_condition()
        self._known: KnownTokens | None = None
        self._looked_ms = 0

    def look(self) -> int:
        """Loop body: read the tokens if their version has changed. The owner first stores `first`, once; if the
        database has another token with its id, that is logged. Returns the ms until the next call: LOOK_MS, or REST_MS
        if no reader has come lately; the next reader then calls `wake`. Raises Unavailable."""
        if not self._repository.prepared:
            return LOOK_MS
        if self._first is not None and self._is_owner():
            try:
                with audited_as("KeepFirstToken"):
                    self.store(self._first)
            except InvalidRequest as error:  # another attempt cannot succeed, and the other tokens must be published
                log.error("first token not stored", extra={"token": self._first.token_id, "error": str(error)})
            self._first = None
        began_ms = self._clock.monotonic_ms()
        version = self._repository.tokens_version()
        known = self._known
        if known is None or known.version != version:
            known = self._repository.known_tokens()
        with self._changed:
            if known is not self._known or self._woken:
                self._changed.notify_all()
            self._woken = False
            self._known, self._looked_ms = known, began_ms
            self._resting = self._first is None and began_ms >= self._read_until_ms
            return REST_MS if self._resting else LOOK_MS

    def wait(self, version: int, wait_ms: int) -> KnownTokens:
        """The valid tokens. Waits up to `wait_ms` while the version of the list is `version`. Raises Unavailable if the
        tokens have not been read from the database within the last STALE_MS."""
        until_ms = self._clock.monotonic_ms() + wait_ms
        with self._changed:
            self._read_until_ms = max(self._read_until_ms, until_ms + REST_AFTER_MS)
            if self._resting:
                self._resting = False
                self.wake()
                if self._clock.monotonic_ms() - self._looked_ms > LOOK_MS:
                    self._woken = True
                    self._changed.wait(_WOKEN_S)
            while True:
                now_ms = self._clock.monotonic_ms()
                known = self._known
                if known is None or now_ms - self._looked_ms > STALE_MS:
                    raise Unavailable(
                        "the tokens could not be read from the meta database recently: retry; if it stays, check the "
                        "database"
                    )
                if known.version != version or now_ms >= until_ms or self._ended:
                    return known
                self._changed.wait((min(until_ms, self._looked_ms + STALE_MS + 1) - now_ms) / 1000)

    def end(self) -> None:
        """Answer the waiting readers now, because the process is stopping."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def every(self) -> tuple[TokenInfo, ...]:
        """The valid tokens and the newest of the expired and revoked ones, the oldest first. Raises Unavailable."""
        return self._repository.tokens()

    def store(self, token: StoreToken) -> TokenInfo:
        """Store a token, as the owner. Raises AlreadyDiffers, LimitReached, InvalidRequest (Repository.store_token),
        Unavailable."""
        return self._as_owner(lambda: self._repository.store_token(token))

    def revoke(self, token_id: str) -> TokenInfo:
        """Revoke a token, as the owner. Raises UnknownName, Unavailable."""
        return self._as_owner(lambda: self._repository.revoke_token(token_id))

    @staticmethod
    def _as_owner(write: Callable[[], TokenInfo]) -> TokenInfo:
        try:
            return write()
        except Fenced as error:
            raise Unavailable("another meta server is the owner: retry there") from error
