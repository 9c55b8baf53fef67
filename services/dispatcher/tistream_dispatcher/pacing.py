"""When to LIST. Pure.

A LIST costs money, so its pause grows while it finds nothing: because nothing comes, or because announcements bring
all that comes. The first file that only LIST finds makes it frequent again.

A tenant for which nothing comes at all is looked at less and less, down to a share of the time for which it has been
silent: who was silent for an hour may be noticed a minute late. Where its last file was announced, the next one will
be too, and the pause may be longer. Where something is expected, because a file is missing or the object store has
failed, no pause is longer than a busy tenant's.
"""

from __future__ import annotations

from dataclasses import dataclass

SILENT_SHARE = 8  # a pause is at most this part of the silence before it
# Times as long as the LISTs of a tenant's stores took they are not LISTed again: others have that time. Not for ever,
# and not where they failed: an object store that hangs costs others nothing, and must be heard of when it is back.
REST, REST_MAX_MS = 2, 20_000


@dataclass(frozen=True, slots=True)
class PollSettings:
    """Pauses in milliseconds: between LISTs of a store, and between LISTs of the stores; the longest while nothing
    comes, and the same where files were announced."""

    poll_min_ms: int
    poll_max_ms: int
    discover_ms: int
    idle_ms: int
    announced_idle_ms: int


class Pace:
    """The polling of one tenant, by its thread. Monotonic milliseconds."""

    def __init__(self, settings: PollSettings, now_ms: int) -> None:
        self._settings = settings
        self._pause_ms = settings.poll_min_ms
        self._poll_ms = self._rested_ms = 0
        self._discover_ms = 0
        self._news_ms = now_ms  # when something new was last found, or said to be there
        self._announced = False  # it was announced
        self._expecting = False

    def discovery_due(self, now_ms: int) -> bool:
        """Whether to LIST the stores now; it is assumed that this is done."""
        if now_ms < self._discover_ms:
            return False
        self._discover_ms = now_ms + self._longest_ms(now_ms, self._settings.discover_ms)
        return True

    def poll_due(self, now_ms: int) -> bool:
        """Whether to LIST the stores' files now."""
        return now_ms >= max(self._poll_ms, self._rested_ms)

    def polled(self, now_ms: int, *, found: bool, failed: bool = False, took_ms: int = 0) -> None:
        """The files were LISTed, which began now; whether any was new, and whether some were not told. Silence is what
        was looked for in vain, not what could not be seen."""
        self._rested_ms = now_ms + took_ms + (0 if failed else min(REST * took_ms, REST_MAX_MS))
        if found:
            self._news_ms, self._announced = now_ms, False
            self._soon(now_ms)
        busy_ms = self._settings.poll_max_ms
        longest_ms = busy_ms if failed else self._longest_ms(now_ms, busy_ms)
        longer_ms = min(self._pause_ms * 2, longest_ms)
        self._pause_ms = self._settings.poll_min_ms if found else longer_ms
        self._poll_ms = now_ms + self._pause_ms

    def announced(self, now_ms: int) -> None:
        """An announced file was new."""
        self._news_ms, self._announced = now_ms, True
        self._soon(now_ms)

    def promised(self, now_ms: int) -> None:
        """A file was announced that is not there yet: files come again."""
        self._news_ms = now_ms
        self._soon(now_ms)

    def elsewhere(self, now_ms: int) -> None:
        """Files come to other stores of the tenant, which other dispatchers read: it is not silent."""
        self._news_ms = now_ms
        self._soon(now_ms)

    def expect(self, now_ms: int, *, expecting: bool) -> None:
        """Whether some store waits for a file that is missing, or something could not be read or LISTed."""
        if expecting and not self._expecting:
            self._soon(now_ms)
        self._expecting = expecting

    def deaf(self) -> None:
        """Announcements do not come through just now."""
        self._announced = False
        self.hurry()

    def hurry(self) -> None:
        """LIST everything at the next occasion."""
        self._poll_ms = self._discover_ms = 0

    def next_ms(self) -> int:
        """When the next LIST is due."""
        return min(max(self._poll_ms, self._rested_ms), self._discover_ms)

    def _soon(self, now_ms: int) -> None:
        """The tenant is not idle: no pause that has begun is longer than a busy one's."""
        self._pause_ms = min(self._pause_ms, self._settings.poll_max_ms)
        self._poll_ms = min(self._poll_ms, now_ms + self._settings.poll_max_ms)
        self._discover_ms = min(self._discover_ms, now_ms + self._settings.discover_ms)

    def _longest_ms(self, now_ms: int, busy_ms: int) -> int:
        if self._expecting:
            return busy_ms
        most_ms = self._settings.announced_idle_ms if self._announced else self._settings.idle_ms
        return max(busy_ms, min((now_ms - self._news_ms) // SILENT_SHARE, most_ms))
