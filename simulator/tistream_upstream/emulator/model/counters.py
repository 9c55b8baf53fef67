"""Counts the load that clients cause in the emulated cluster. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Counters:
    """Counters of the load since the start. `hold_lag_max_ms` is the longest time by which a hold on garbage collection
    was behind the present."""

    registrations: int = 0
    deregistrations: int = 0
    scans: int = 0
    scanned_rows: int = 0
    scans_below_safe_point: int = 0
    oldest_scan_ms: int = 0
    streams: int = 0
    delta_rows: int = 0
    resolved_messages: int = 0
    resolved_regions: int = 0
    sent_messages: int = 0
    sent_bytes: int = 0
    commands: int = 0
    command_rows: int = 0
    region_changes: int = 0
    read_pairs: int = 0
    raw_written: int = 0
    hold_lag_max_ms: int = 0
    collected_versions: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """All counters by name, for JSON."""
        out: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return {**out, "errors": dict(sorted(self.errors.items())), "calls": dict(sorted(self.calls.items()))}
