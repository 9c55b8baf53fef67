"""What this process knows of one sorter that serves tasks of a tenant: when to talk to it, and how that went. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

PAUSE_MS = 100
PAUSE_MAX_MS = 2_000


@dataclass(slots=True)
class SorterLink:
    """Monotonic milliseconds. `tasks` in key order; `stalled` are stores whose files it did not take just now."""

    url: str
    tasks: tuple[int, ...]
    sync_ms: int = 0  # when to ask what it has received
    send_ms: int = 0  # no files before
    pause_ms: int = PAUSE_MS
    calm_ms: int = 0  # the pause between questions while there is nothing new to learn
    problem: str | None = None
    busy: bool = False  # the problem is that it has no room
    stalled: dict[int, tuple[int, int]] = field(default_factory=dict)  # store -> (until, pause)

    def failed(self, problem: str, now_ms: int, *, busy: bool) -> None:
        """A call failed: wait, longer each time. One that is not merely busy is asked anew what it has."""
        self.problem, self.busy = problem, busy
        self.send_ms = now_ms + self.pause_ms
        if not busy:
            self.sync_ms = self.send_ms
        self.pause_ms = min(self.pause_ms * 2, PAUSE_MAX_MS)

    def synced(self, pause_ms: int, idle_ms: int, *, settled: bool) -> int:
        """It told what it has received: how long to wait before the next question. `settled`: that cannot change by
        itself."""
        self.calm_ms = min(max(pause_ms, self.calm_ms * 2), max(pause_ms, idle_ms)) if settled else pause_ms
        return self.calm_ms

    def worked(self) -> None:
        """It took a batch, or there is none that it lacks."""
        self.problem, self.busy = None, False
        self.pause_ms = PAUSE_MS

    def stall(self, store_id: int, now_ms: int) -> None:
        """It did not take the store's next file: it may be waiting for a damaged one. Wait, longer each time."""
        _, pause_ms = self.stalled.get(store_id, (0, PAUSE_MS // 2))
        pause_ms = min(pause_ms * 2, PAUSE_MAX_MS)
        self.stalled[store_id] = (now_ms + pause_ms, pause_ms)

    def went_on(self, store_id: int) -> None:
        """It took files of the store."""
        self.stalled.pop(store_id, None)

    def stalled_now(self, now_ms: int) -> set[int]:
        """Stores to leave out just now."""
        return {store for store, (until_ms, _) in self.stalled.items() if now_ms < until_ms}
