"""Joins the answers of a stream whose connection is cut, and which is resumed from its last cursor.

An endless stream returns a cursor only at intervals. After a cut, the events since the last cursor are repeated, and
must be unchanged. They are compared with the record, and only new events are passed to the validators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tistream_verify.form import well_formed
from tistream_verify.record import StreamRecord, line_hash
from tistream_verify.validators import Validators
from tistream_verify.violation import Rule


class ResumedStream:
    """Processes the lines of every answer of a stream. `cursor` is where the next answer begins (None: at start_ts).
    Differences from earlier answers are recorded as violations."""

    def __init__(self, validators: Validators, record: StreamRecord) -> None:
        self.cursor: str | None = None
        self.answers = 0
        self.repeated = 0
        self._validators = validators
        self._record = record
        self._at_cursor = record.end  # the record's position at the cursor
        self._next = record.end

    def begin(self) -> None:
        """Begin to process a new answer, which starts at `cursor`."""
        self.answers += 1
        self._next = self._at_cursor

    def see(self, line: bytes) -> dict[str, Any] | None:
        """Process one line: pass a new event to the validators and the record, or compare a repeated one. Returns the
        event if it is a new row, DDL or resolved event. A new row or DDL event is returned even if the validators
        reject it."""
        event: dict[str, Any] = orjson.loads(line)
        if event.get("type") in ("row", "ddl"):
            return self._event(event, line)
        return self._mark(event) if well_formed(event, self._validators.found) else None

    def _event(self, event: dict[str, Any], line: bytes) -> dict[str, Any] | None:
        place, self._next = self._next, self._next + 1
        if place < self._record.end:
            self.repeated += 1
            if place >= self._record.first and self._record.hash(place) != line_hash(line):
                detail = (
                    f"resumed, event {place} differs from the one that was received at {self._record.commit_ts(place)}"
                )
                self._validators.found.add(Rule.REREAD, detail, event)
            return None
        if self._validators.see(event):
            self._record.append(event, line)
        return event

    def _mark(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Process a resolved or continue event, and store its cursor. Returns a resolved event after which no event is
        repeated any more, otherwise None."""
        self.cursor, self._at_cursor = event["cursor"], self._next
        if event["type"] == "continue":
            return None
        resolved_ts = int(event["resolved_ts"])
        if self._next < self._record.end:
            self._early(resolved_ts, event)
            return None
        self._validators.see(event)
        self._record.resolved_ts = max(self._record.resolved_ts, resolved_ts)
        return event

    def _early(self, resolved_ts: int, event: Mapping[str, Any]) -> None:
        """Check a resolved event that comes among repeated events: its resolved_ts must lie between the events around
        it."""
        coming = self._record.commit_ts(self._next)
        before = self._record.commit_ts(self._next - 1) if self._next > self._record.first else 0
        if resolved_ts >= coming or resolved_ts < before:
            detail = f"resumed, resolved {resolved_ts} between an event at {before} and one at {coming}"
            self._validators.found.add(Rule.REREAD, detail, event)
