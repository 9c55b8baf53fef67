"""Decides when the schema of a table is sent: before the first row of each of its versions, and again from time to
time.

Pure. A reader buffers rows until it has the schema of their version. Time is measured by the commits, so that the
messages for the same rows are equal whenever they are sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tistream.arrays import Int64s
from tistream.schema.visible import TableVersion


@dataclass(frozen=True, slots=True)
class BootstrapRule:
    """Says when the schema of a table is sent again: `interval_ms` after it was last sent, or after `rows` rows
    (`send-bootstrap-interval-in-sec`, `send-bootstrap-in-msg-count`). If one of the two is not above 0, schemas are
    never sent. With `every_partition` a schema goes to all partitions of the table's topic, otherwise to the first one.
    With `all_at_start` the schemas of all tables are sent before any row."""

    interval_ms: int = 120_000
    rows: int = 10_000
    every_partition: bool = True
    all_at_start: bool = False

    @property
    def sends(self) -> bool:
        """Whether schemas are sent at all."""
        return self.interval_ms > 0 and self.rows > 0


@dataclass(slots=True)
class _Sent:
    """When the schema of a table was last sent: its version, the commit's time in ms, and the number of rows since."""

    version: TableVersion
    ms: int
    rows: int


@dataclass(slots=True)
class Bootstraps:
    """Remembers the schemas that were sent since the sink was opened. If a transaction fails, its messages are lost, so
    a new object is used once the sink is opened again."""

    rule: BootstrapRule
    _tables: dict[int, _Sent] = field(default_factory=dict)  # by logical id

    def sent(self, version: TableVersion, ms: int) -> None:
        """Record that the schema of a table is sent. `ms`: the time of the commit."""
        self._tables[version.head.id] = _Sent(version, ms, 0)

    def before(self, version: TableVersion, commit_ms: Int64s) -> list[int]:
        """Find the rows before which the schema of their table version must be sent, and return their indexes. The
        schema counts as sent from then on. `commit_ms` has the commit's time of each of the next rows of the version,
        ascending."""
        return list(self._due(version, commit_ms)) if self.rule.sends else []

    def _due(self, version: TableVersion, commit_ms: Int64s) -> Iterator[int]:
        last = self._tables.get(version.head.id)
        at = 0
        if last is None or last.version != version:
            last = self._tables[version.head.id] = _Sent(version, int(commit_ms[0]), 0)
            yield 0
        while True:
            due = at + self.rule.rows - last.rows
            late = int(np.searchsorted(commit_ms, last.ms + self.rule.interval_ms, side="left"))
            due = max(at, min(due, late))
            if due >= len(commit_ms):
                last.rows += len(commit_ms) - at
                return
            yield due
            at, last.ms, last.rows = due, int(commit_ms[due]), 0
