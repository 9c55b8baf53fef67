"""Publishes the list of valid tokens to the API servers. Each meta server reads it from the database, whether it is the
owner or not."""

from __future__ import annotations

from collections.abc import Callable

from tistream.clock import Clock
from tistream.concurrency import new_condition
from tistream.errors import Fenced, Unavailable
from tistream.wire.tokens import KnownTokens, StoreToken, TokenInfo
from tistream_meta.audit.audited_action import audited_as
from tistream_meta.database.repository import Repository

LOOK_MS = 300
# a meta server that cannot read the database any more returns no tokens, because one may be revoked by now
STALE_MS = 2_000
_POLL_S = 0.2  # how soon a waiting reader notices that the process stops


class TokenBoard:
    """The valid tokens, for API servers that poll them. Thread-safe. A background loop calls `look`. The owner stores
    the token `first` if it is not in the database."""

    def __init__(
        self,
        repository: Repository,
        clock: Clock,
        is_owner: Callable[[], bool],
        stopping: Callable[[], bool],
        first: StoreToken | None = None,
    ) -> None:
        self._repository, self._clock = repository, clock
        self._is_owner, self._stopping = is_owner, stopping
        self._first = first
        self._changed = new_condition()
        self._known: KnownTokens | None = None
        self._looked_ms = 0

    def look(self) -> None:
        """Loop body: read the tokens if their version has changed. Raises Unavailable."""
        if not self._repository.prepared:
            return
        if self._first is not None and self._is_owner():
            with audited_as("KeepFirstToken"):
                self.store(self._first)
            self._first = None
        began_ms = self._clock.monotonic_ms()
        version = self._repository.tokens_version()
        known = self._known
        if known is None or known.version != version:
            known = self._repository.known_tokens()
        with self._changed:
            self._known, self._looked_ms = known, began_ms
            self._changed.notify_all()

    def wait(self, version: int, wait_ms: int) -> KnownTokens:
        """The valid tokens. Waits up to `wait_ms` while the version of the list is `version`. Raises Unavailable if the
        tokens have not been read from the database within the last STALE_MS."""
        until_ms = self._clock.monotonic_ms() + wait_ms
        with self._changed:
            while True:
                now_ms = self._clock.monotonic_ms()
                known = self._known
                if known is None or now_ms - self._looked_ms > STALE_MS:
                    raise Unavailable(
                        "the tokens could not be read from the meta database recently: retry; if it stays, check the "
                        "database"
                    )
                if known.version != version or now_ms >= until_ms or self._stopping():
                    return known
                self._changed.wait(min(_POLL_S, (until_ms - now_ms) / 1000))

    def every(self) -> tuple[TokenInfo, ...]:
        """The valid tokens and the newest of the expired and revoked ones, the oldest first. Raises Unavailable."""
        return self._repository.tokens()

    def store(self, token: StoreToken) -> TokenInfo:
        """Store a token, as the owner. Raises AlreadyDiffers, LimitReached, Unavailable."""
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
