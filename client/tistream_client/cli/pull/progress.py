"""The progress bar of a pull: rows, bytes, the newest ts, and the lag. Its text is computed without I/O."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from tistream_client.cli.times import now_ms, shown_seconds, shown_time

_BAR = 20  # characters
_PAUSE_MS = 200
_BITS = 18  # of a TSO's counter
_TS = b'"commit_ts":"'


@dataclass(slots=True)
class Seen:
    """The data that a pull has received: `rows` events, `size` bytes, and `ts`, the newest ts of the events (0 before
    the first one)."""

    rows: int = 0
    size: int = 0
    ts: int = 0


def count_text(count: float, unit: str = "") -> str:
    """Format a number with a suffix for powers of 1000, or with the unit `B`, for bytes, of 1024."""
    step, suffixes = (1024, ("", "Ki", "Mi", "Gi", "Ti")) if unit == "B" else (1000, ("", "k", "M", "G", "T"))
    for suffix in suffixes[:-1]:
        if count < step:
            return f"{count:.0f} {suffix}{unit}" if suffix == "" else f"{count:.1f} {suffix}{unit}"
        count /= step
    return f"{count:.1f} {suffixes[-1]}{unit}"


def shown(seen: Seen, since: int, until: int | None, at_ms: int) -> str:
    """The text of the progress bar at `at_ms` (Unix time). If the pull has a beginning `since` and an end `until` (TSO;
    0 or None: none), it also shows which part of the time between them is done."""
    parts = [f"{count_text(seen.rows).strip()} rows", count_text(seen.size, "B")]
    if seen.ts:
        lag = max(0, at_ms - (seen.ts >> _BITS)) / 1000
        parts += [f"at {shown_time(str(seen.ts))[:19]} UTC", f"lag {shown_seconds(lag)}"]
    text = "  ".join(parts)
    if until is None or not 0 < since < until:
        return text
    part = min(1.0, max(0, seen.ts - since) / (until - since))
    return f"{'━' * int(part * _BAR):╌<{_BAR}} {part:4.0%}  {text}"


def newest_ts(line: bytes) -> int:
    """The commit_ts of a line with a row event; 0 for another line. Lines are not parsed, because that would be
    slow."""
    _, found, rest = line[:200].partition(_TS)
    digits = rest.partition(b'"')[0]
    return int(digits) if found and digits.isdigit() else 0


class Bar:
    """Draws the progress on stderr, if that is a terminal, five times a second at most."""

    def __init__(
        self,
        since: str | None,
        until: str | None,
        out: TextIO | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.seen = Seen()
        self._since, self._until = int(since or 0), None if until is None else int(until)
        self._out = sys.stderr if out is None else out
        self._clock = clock
        self._on = self._out.isatty()
        self._drawn_ms = 0
        self._said = ""

    def tick(self) -> None:
        """Draw the progress, unless it was drawn less than _PAUSE_MS ago."""
        if self._on and (at_ms := self._clock()) - self._drawn_ms >= _PAUSE_MS:
            self._drawn_ms = at_ms
            self._draw(shown(self.seen, self._since, self._until, at_ms))

    def say(self, text: str) -> None:
        """Show the reason for which the pull waits. On a terminal the text replaces the bar; otherwise it is written as
        a line, unless it is the same as the last one."""
        if self._on:
            self._draw(f"waiting: {text}")
        elif text != self._said:
            self._out.write(f"waiting: {text}\n")
            self._said = text

    def close(self) -> None:
        """Draw the progress for the last time. It stays on the screen."""
        if self._on:
            self._draw(shown(self.seen, self._since, self._until, self._clock()))
            self._out.write("\n")
            self._out.flush()

    def _draw(self, text: str) -> None:
        self._out.write(f"\r\x1b[K{text}")
        self._out.flush()
