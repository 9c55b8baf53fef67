"""Decides when to LIST a tenant's stores and files. Pure.

A LIST costs money, so the pause between LISTs grows while they find nothing: either no files arrive, or announcements
name all that arrive. The first file that only a LIST finds makes LISTs frequent again.

The pause of a silent tenant grows up to a share of the length of its silence: after an hour of silence a file may be
noticed a minute late. If the tenant's last file was announced, the next one probably will be too, and the pause may be
longer. While a file is missing or the object store fails, no pause is longer than a busy tenant's.
"""

from __future__ import annotations

from dataclasses import dataclass

SILENT_SHARE = 8  # a pause is at most 1/SILENT_SHARE of the silence before it
# After a LIST pass the tenant pauses for REST times the duration of the pass, so that other tenants get that time. This
# pause has an upper limit. After a failure there is no pause: an object store that hangs costs other tenants nothing,
# and its recovery must be noticed.
REST, REST_MAX_MS = 2, 20_000


@dataclass(frozen=True, slots=True)
class PollSettings:
    """The pauses between LISTs, in ms. Between LISTs of a store's files: `poll_min_ms`, growing to `poll_max_ms`.
    Between LISTs of the tenant's stores: `discover_ms`. The longest pause while no files arrive: `idle_ms`, or
    `announced_idle_ms` if the last file was announced."""

    poll_min_ms: int
    poll_max_ms: int
    discover_ms: int
    idle_ms: int
    announced_idle_ms: int


class ListSchedule:
    """Decides when one tenant's stores and files are LISTed. Used by the tenant's thread. Times are monotonic ms."""

    def __init__(self, settings: PollSettings, now_ms: int) -> None:
        self._settings = settings
        self._pause_ms = settings.poll_min_ms
        self._poll_ms = self._rested_ms = 0
        self._discover_ms = 0
        self._news_ms = now_ms  # when a new file was last found or announced
        self._announced = False  # whether that file was announced
        self._expecting = False

    def take_discovery(self, now_ms: int) -> bool:
        """Whether a LIST of the tenant's stores is due. Returning True counts as that LIST: another one is not due
        before a pause has passed."""
        if now_ms < self._discover_ms:
            return False
        self._discover_ms = now_ms + self._longest_ms(now_ms, self._settings.discover_ms)
        return True

    def poll_due(self, now_ms: int) -> bool:
        """Whether a LIST of the stores' files is due. The caller records it with `polled`."""
        return now_ms >= max(self._poll_ms, self._rested_ms)

    def polled(self, now_ms: int, *, found: bool, failed: bool = False, took_ms: int = 0) -> None:
        """Record a LIST of the files of all stores that began at `now_ms`. `found`: there was a new file. `failed`:
        some stores could not be LISTed, so that files may have arrived although none was found. `took_ms`: its
        duration."""
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
        """Record that a new file was found because it was announced, not by a LIST."""
        self._news_ms, self._announced = now_ms, True
        self._soon(now_ms)

    def announced_early(self, now_ms: int) -> None:
        """Record the announcement of a file that does not exist yet. It shows that files arrive again."""
        self._news_ms = now_ms
        self._soon(now_ms)

    def announced_for_other(self, now_ms: int) -> None:
        """Record that files arrive in stores of the tenant that other dispatchers read, so that the tenant does not
        count as silent."""
        self._news_ms = now_ms
        self._soon(now_ms)

    def set_expecting(self, now_ms: int, *, expecting: bool) -> None:
        """Set whether LISTs must stay frequent, because a file is missing, or a failed read or LIST will be retried."""
        if expecting and not self._expecting:
            self._soon(now_ms)
        self._expecting = expecting

    def announcements_lost(self) -> None:
        """Record that announcements cannot be received at present, so that only LISTs find files, and make the LISTs
        due as `list_now` does."""
        self._announced = False
        self.list_now()

    def list_now(self) -> None:
        """Make every LIST due at once, except that a LIST of the stores' files waits for the end of the rest after the
        last one."""
        self._poll_ms = self._discover_ms = 0

    def next_ms(self) -> int:
        """The time of the next due LIST, in monotonic ms."""
        return min(max(self._poll_ms, self._rested_ms), self._discover_ms)

    def _soon(self, now_ms: int) -> None:
        """Shorten the pauses that are running to those of a busy tenant."""
        self._pause_ms = min(self._pause_ms, self._settings.poll_max_ms)
        self._poll_ms = min(self._poll_ms, now_ms + self._settings.poll_max_ms)
        self._discover_ms = min(self._discover_ms, now_ms + self._settings.discover_ms)

    def _longest_ms(self, now_ms: int, busy_ms: int) -> int:
        if self._expecting:
            return busy_ms
        most_ms = self._settings.announced_idle_ms if self._announced else self._settings.idle_ms
        return max(busy_ms, min((now_ms - self._news_ms) // SILENT_SHARE, most_ms))
