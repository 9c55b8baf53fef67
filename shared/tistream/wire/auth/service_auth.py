"""Creates and verifies the tokens with which services authenticate to each other."""

from __future__ import annotations

from pathlib import Path

from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.wire.auth import service_token
from tistream.wire.auth.secret_file import SecretFile
from tistream.wire.auth.service_token import BadToken, Caller

BEARER = "Bearer "
_RENEW_MS = 20_000  # renewal after 20 s of a token's life of 60 s, so at least 40 s are left when it is sent
_LOOK_MS = 1_000  # how often the file is checked for changes


class ServiceKeys:
    """Signs and verifies the tokens between services, with keys from a file. The constructor raises BadKeys if the file
    has no valid keys, OSError if it cannot be read."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = SecretFile(path, service_token.parse_keys)
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()

    def sign(self, caller: Caller) -> str:
        """Create a token, signed with the first key that the file has now."""
        self._file.look()
        return service_token.sign(self._file.value[0], caller, self._now_s())

    def verify(self, token: str) -> Caller:
        """Verify that a token was signed with a key of the file, and is valid now. Returns its signer. Raises BadToken
        if it is not."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms >= _LOOK_MS:  # a removed key must no longer be accepted
            self._looked_ms = now_ms
            self._file.look()
        try:
            return service_token.verify(token, self._file.value, self._now_s())
        except BadToken:
            if not self._file.look():  # the signer may have read a new key already
                raise
            return service_token.verify(token, self._file.value, self._now_s())

    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000


class ServiceAuth:
    """Creates the `Authorization` header that a service sends with each call to another service. Thread-safe."""

    def __init__(self, keys: ServiceKeys, caller: Caller, clock: Clock) -> None:
        self._keys, self._caller, self._clock = keys, caller, clock
        self._lock = new_lock()
        self._header = ""
        self._signed_ms: int | None = None

    def __call__(self) -> str:
        """The header's value, `Bearer …`. Its token was signed at most 20 s ago."""
        with self._lock:
            # The wall clock, because it includes the time in which the machine was suspended.
            now_ms = self._clock.now_ms()
            if self._signed_ms is None or not 0 <= now_ms - self._signed_ms < _RENEW_MS:
                self._header = BEARER + self._keys.sign(self._caller)
                self._signed_ms = now_ms
            return self._header
