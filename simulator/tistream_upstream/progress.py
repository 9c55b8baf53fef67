"""The line with which `tistream simulate` shows its progress. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream_upstream.cluster import Totals

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_KILO = 1024.0


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The state of a run at one moment."""

    seconds: float
    rows_per_s: float
    totals: Totals
    lag_seconds: float | None
    behind_ms: int
    waiting_bytes: int
    platform: bool = False  # a platform is used, even if its lag is unknown now

    def line(self) -> str:
        """Format the state as a line of text."""
        totals = self.totals
        parts = [
            f"{self.seconds:6.1f} s",
            f"{self.rows_per_s:,.0f} entries/s",
            f"{totals.committed:,} txns",
            f"{totals.live_rows:,} live rows",
            f"{totals.files:,} files",
            size(totals.file_bytes),
            f"{totals.regions} regions",
        ]
        if totals.ddl_jobs:
            parts.append(f"{totals.ddl_jobs} DDL")
        if self.lag_seconds is not None:
            parts.append(f"lag {self.lag_seconds:.1f} s")
        elif self.platform:
            parts.append("lag ?")
        if self.behind_ms:
            parts.append(f"{self.behind_ms / 1000:.1f} s behind the clock")
        if self.waiting_bytes:
            parts.append(f"{size(self.waiting_bytes)} not put yet")
        return "  ".join(parts)


def size(count: int) -> str:
    """Format a number of bytes with a binary unit, such as MiB."""
    value, unit = float(count), 0
    while value >= _KILO and unit < len(_UNITS) - 1:
        value /= _KILO
        unit += 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
