"""Tracks files that could not be read: how long they have been unchanged, and when to read them again. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_PAUSE_MS = 500
PAUSE_MAX_MS = 4_000  # a repair is noticed within this time: lag must return under 5 s when a fault ends


@dataclass(frozen=True, slots=True)
class SuspectFile:
    """One version of a change file that could not be read, and why. `since_ms`: when this version was first read.
    `retry_ms`: when it is read again. `pause_ms`: the pause before that. All in monotonic ms."""

    ts: int
    version: str
    reason: str
    since_ms: int
    retry_ms: int
    pause_ms: int


class SuspectFiles:
    """The files of one store that could not be read. They are read again for ever, because an operator may repair them
    in place."""

    def __init__(self) -> None:
        self._by_ts: dict[int, SuspectFile] = {}

    def __len__(self) -> int:
        return len(self._by_ts)

    def __contains__(self, ts: int) -> bool:
        return ts in self._by_ts

    def failed(self, ts: int, version: str, reason: str, now_ms: int) -> int:
        """Record that this version of a file could not be read. Returns for how many ms the file has been unchanged.
        `now_ms`: monotonic."""
        known = self._by_ts.get(ts)
        if known is None or known.version != version:
            known = SuspectFile(ts, version, reason, now_ms, now_ms, FIRST_PAUSE_MS // 2)
        pause_ms = min(known.pause_ms * 2, PAUSE_MAX_MS) if now_ms - known.since_ms >= 2_000 else FIRST_PAUSE_MS
        self._by_ts[ts] = replace(known, reason=reason, retry_ms=now_ms + pause_ms, pause_ms=pause_ms)
        return now_ms - known.since_ms

    def cleared(self, ts: int) -> None:
        """Forget a suspect that was read, no longer exists, or is no longer needed."""
        self._by_ts.pop(ts, None)

    def due(self, now_ms: int) -> list[int]:
        """The files that must be read again at `now_ms`, in order."""
        return sorted(ts for ts, suspect in self._by_ts.items() if suspect.retry_ms <= now_ms)

    def next_ms(self) -> int | None:
        """When the next file must be read again, in monotonic ms; None if all files could be read."""
        return min((suspect.retry_ms for suspect in self._by_ts.values()), default=None)
