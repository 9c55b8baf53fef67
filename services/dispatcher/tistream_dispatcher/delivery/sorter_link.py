"""The state of the connection to one sorter: the results of calls, and when the next call is due. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

PAUSE_MS = 100
PAUSE_MAX_MS = 2_000


@dataclass(slots=True)
class SorterLink:
    """The state of the connection to one sorter. Times are monotonic ms. `tasks`: the ids of the tenant's tasks at this
    sorter, in key order. `problem`: why the last call failed; None if it succeeded. `stalled`: stores whose files the
    sorter has recently not accepted."""

    url: str
    tasks: tuple[int, ...]
    sync_ms: int = 0  # when to request the sorter's positions
    send_ms: int = 0  # no files are sent before this time
    pause_ms: int = PAUSE_MS
    calm_ms: int = 0  # the pause between two requests while nothing changes
    problem: str | None = None
    busy: bool = False  # whether the only problem is that the sorter has no room
    # Store -> (end of the pause, length of the pause).
    stalled: dict[int, tuple[int, int]] = field(default_factory=dict)

    def failed(self, problem: str, now_ms: int, *, busy: bool) -> None:
        """Record a failed call. The pause before the next call grows with each failure. Unless the sorter was only
        busy, its positions will be requested again. `now_ms`: monotonic."""
        self.problem, self.busy = problem, busy
        self.send_ms = now_ms + self.pause_ms
        if not busy:
            self.sync_ms = self.send_ms
        self.pause_ms = min(self.pause_ms * 2, PAUSE_MAX_MS)

    def synced(self, pause_ms: int, idle_ms: int, *, settled: bool) -> int:
        """Record that the sorter has reported its positions. Returns the ms until the next request. This is `pause_ms`,
        unless the positions cannot change (`settled`): then it is twice the last pause, at most `idle_ms`."""
        self.calm_ms = min(max(pause_ms, self.calm_ms * 2), max(pause_ms, idle_ms)) if settled else pause_ms
        return self.calm_ms

    def succeeded(self) -> None:
        """Record that the sorter accepted a batch, or that it lacks no file."""
        self.problem, self.busy = None, False
        self.pause_ms = PAUSE_MS

    def stall(self, store_id: int, now_ms: int) -> None:
        """Record that the sorter did not accept the store's next file, perhaps because it waits for a damaged one. The
        pause before the store's files are sent again grows each time. `now_ms`: monotonic."""
        _, pause_ms = self.stalled.get(store_id, (0, PAUSE_MS // 2))
        pause_ms = min(pause_ms * 2, PAUSE_MAX_MS)
        self.stalled[store_id] = (now_ms + pause_ms, pause_ms)

    def resumed(self, store_id: int) -> None:
        """Record that the sorter accepted files of the store again."""
        self.stalled.pop(store_id, None)

    def stalled_now(self, now_ms: int) -> set[int]:
        """The stores whose files must not be sent at `now_ms`."""
        return {store for store, (until_ms, _) in self.stalled.items() if now_ms < until_ms}
