"""Counts what a territory's agent has received and dropped, for its metrics. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from tistream.arrays import Int64s
from tistream_agent.core import wire
from tistream_agent.core.wire import ErrorKind

ENTRY_TYPES = {
    wire.PREWRITE: "prewrite",
    wire.COMMIT: "commit",
    wire.ROLLBACK: "rollback",
    wire.COMMITTED: "committed",
}
UNUSABLE = "unusable_stream"  # a kind of error besides TiKV's own: the agent has ended the stream
OUTCOMES = ("initialized", "refused", "lost")
ERROR_KINDS = (*(kind.name.lower() for kind in ErrorKind), UNUSABLE)


@dataclass(slots=True)
class Counts:
    """Counters since the territory began.

    Attributes:
        registrations: by outcome. `initialized`: the scan ended. `refused`: TiKV ended the subscription before that.
            `lost`: its stream ended before that.
        errors: by the kind of TiKV's errors, of registrations and of live subscriptions, and UNUSABLE.
        entries: rows that enter files, by type.
        scan_rows: entries that came before the end of a subscription's scan: scan rows, and entries that
            were applied meanwhile, because TiKV does not mark which is which.
    """

    late_events: int = 0
    rows_outside: int = 0
    empty_repeats: int = 0
    clock_regressions: int = 0
    early_resolved: int = 0
    scan_rows: int = 0
    registrations: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    entries: Counter[str] = field(default_factory=Counter)

    def ended(self, was_live: bool, initialized: bool, error: ErrorKind | None) -> None:
        """Count the end of a subscription. `initialized`: whether its scan has ended; `was_live`: whether the end of
        the scan has been counted already. `error` is None if its stream ended."""
        if error is not None:
            self.errors[error.name.lower()] += 1
        if initialized and not was_live:
            self.registrations["initialized"] += 1
        elif not initialized:
            self.registrations["lost" if error is None else "refused"] += 1

    def kept(self, types: Int64s, indexes: Int64s) -> None:
        """Count rows that enter a file, by type. Those with the log index 0 are counted as scan rows too."""
        of_type = np.bincount(types, minlength=len(ENTRY_TYPES) + 1)
        self.entries.update({name: int(of_type[number]) for number, name in ENTRY_TYPES.items()})
        self.scan_rows += int((indexes == 0).sum())

    def copy(self) -> Counts:
        """Copy the counters; later counts do not change the copy."""
        return replace(
            self,
            registrations=Counter(self.registrations),
            errors=Counter(self.errors),
            entries=Counter(self.entries),
        )
