"""A stream that is cut and resumed from its last cursor, as one stream: what an answer repeats must be what was told.

An endless stream tells a cursor only now and then; the events since are told again after a cut. They are compared with
the record of the first time, and only what is new goes to the validators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tistream.verify.form import well_formed
from tistream.verify.record import Record, line_hash
from tistream.verify.validators import Validators
from tistream.verify.violation import Rule


class ResumedStream:
    """Fed with the lines of every answer. `cursor` is where the next answer begins (None: at start_ts)."""

    def __init__(self, validators: Validators, record: Record) -> None:
        self.cursor: str | None = None
        self.answers = 0
        self.repeated = 0
        self._validators = validators
        self._record = record
        self._at_cursor = record.end  # events that the cursor has behind it
        self._next = record.end

    def begin(self) -> None:
        """An answer begins, from `cursor`."""
        self.answers += 1
        self._next = self._at_cursor

    def take(self, line: bytes) -> dict[str, Any] | None:
        """One line. The event if it was new, None if it was a repetition (compared here)."""
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
                    f"resumed, event {place} is not the one that was told before at {self._record.commit_ts(place)}"
                )
                self._validators.found.add(Rule.REREAD, detail, event)
            return None
        if self._validators.see(event):
            self._record.append(event, line)
        return event

    def _mark(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """A resolved or continue."""
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
        """A resolved amid what was told before: it must stand where it says."""
        coming = self._record.commit_ts(self._next)
        before = self._record.commit_ts(self._next - 1) if self._next > self._record.first else 0
        if resolved_ts >= coming or resolved_ts < before:
            detail = f"resumed, resolved {resolved_ts} after an event at {before}, before one at {coming}"
            self._validators.found.add(Rule.REREAD, detail, event)
