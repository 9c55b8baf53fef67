"""Both ends of the token between services: what a client sends, and what a server takes."""

from __future__ import annotations

from pathlib import Path

from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.wire import service_token
from tistream.wire.secret_file import SecretFile
from tistream.wire.service_token import BadToken, Caller

BEARER = "Bearer "
_RENEW_MS = 20_000  # of a token's 60 s: what is sent has the rest of its life before it
_LOOK_MS = 1_000  # how often the file is looked at for a change


class ServiceKeys:
    """The keys of a file. Raises BadKeys, OSError when made."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = SecretFile(path, service_token.parse_keys)
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()

    def sign(self, caller: Caller) -> str:
        """A new token, with the file's first key as it is now."""
        self._file.look()
        return service_token.sign(self._file.value[0], caller, self._now_s())

    def verify(self, token: str) -> Caller:
        """Who signed it. Raises BadToken."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms >= _LOOK_MS:  # a key that was taken away proves nothing any more
            self._looked_ms = now_ms
            self._file.look()
        try:
            return service_token.verify(token, self._file.value, self._now_s())
        except BadToken:
            if not self._file.look():  # perhaps a peer has read a new key already
                raise
            return service_token.verify(token, self._file.value, self._now_s())

    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000


class ServiceAuth:
    """What a service sends with each call: the value of its `Authorization`. Thread-safe."""

    def __init__(self, keys: ServiceKeys, caller: Caller, clock: Clock) -> None:
        self._keys, self._caller, self._clock = keys, caller, clock
        self._lock = new_lock()
        self._header = ""
        self._signed_ms: int | None = None

    def __call__(self) -> str:
        """`Bearer …`, signed at most 20 s ago."""
        with self._lock:
            now_ms = self._clock.now_ms()  # the wall's: after a sleep of the whole machine too
            if self._signed_ms is None or not 0 <= now_ms - self._signed_ms < _RENEW_MS:
                self._header = BEARER + self._keys.sign(self._caller)
                self._signed_ms = now_ms
            return self._header
