"""Checks the rules of a stream that need no memory of rows: the order of events, duplicates, resolved events, whole
transactions.

A duplicate that has a lower commit_ts breaks the order. So to find the others, only the events of the newest commit_ts
are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from tistream_verify.violation import Findings, Rule

Event = Mapping[str, Any]
KeyOrder = Callable[[Event], Any]
"""Returns a value that has the order of the raw keys of one table; None for an event whose raw key is unknown."""


class OrderCheck:
    """Checks one consumer's events, in the order of their arrival. The caller leaves out events that a resumed answer
    repeats."""

    def __init__(self, start_ts: int, found: Findings, key_order: KeyOrder | None = None) -> None:
        self.resolved_ts = start_ts
        self.commit_ts = start_ts  # of the newest event
        self.schema_version = 0
        self._found = found
        self._key_order = key_order
        self._cursor: str | None = None
        self._forget(start_ts)

    def _forget(self, commit_ts: int) -> None:
        self.commit_ts = commit_ts
        self._seen: set[Any] = set()
        self._ddl = False
        self._start_ts: dict[str, int] = {}
        self._put: set[tuple[str, str]] = set()
        self._key: dict[tuple[str, str, str], Any] = {}

    def row(self, event: Event, key_text: bytes) -> None:
        """Check a row event. `key_text` is its key as text; equal keys must have equal texts."""
        commit_ts = int(event["commit_ts"])
        if not self._arrive(commit_ts, event):
            return
        table_id, start_ts, op = event["table_id"], event["start_ts"], event["op"]
        identity = (start_ts, table_id, op, key_text)
        if identity in self._seen:
            self._found.add(Rule.TWICE, f"{op} of one key is repeated at {commit_ts}", event)
        self._seen.add(identity)
        if self._ddl:
            self._found.add(Rule.DDL_PLACE, f"a row at {commit_ts} follows the ddl of that ts", event)
        self._in_table(event, table_id, start_ts, op)
        self._version(event)

    def _in_table(self, event: Event, table_id: str, start_ts: str, op: str) -> None:
        before = self._start_ts.get(table_id, 0)
        if int(start_ts) < before:
            self._found.add(Rule.TABLE_ORDER, f"start_ts {start_ts} after {before} at one commit_ts", event)
        self._start_ts[table_id] = max(before, int(start_ts))
        if op == "put":
            self._put.add((start_ts, table_id))
        elif (start_ts, table_id) in self._put:
            self._found.add(Rule.DELETES_FIRST, "a delete follows a put of the same transaction and table", event)
        if self._key_order is None or (key := self._key_order(event)) is None:
            return
        last = self._key.get((start_ts, table_id, op))
        if last is not None and key <= last:
            self._found.add(Rule.KEY_ORDER, f"key {key!r} after {last!r}", event)
        self._key[(start_ts, table_id, op)] = key

    def ddl(self, event: Event) -> None:
        """Check a ddl event."""
        if not self._arrive(int(event["commit_ts"]), event):
            return
        identity = orjson.dumps(event, option=orjson.OPT_SORT_KEYS)
        if identity in self._seen:
            self._found.add(Rule.TWICE, "a ddl is repeated", event)
        self._seen.add(identity)
        self._ddl = True
        self._version(event)

    def resolved(self, event: Event) -> None:
        """Check a resolved event. Its resolved_ts must not be below the previous one, nor below the commit_ts
        of an earlier event. It may equal the previous one, because an idle stream repeats its resolved event,
        but only with the same cursor."""
        resolved_ts, cursor = int(event["resolved_ts"]), event["cursor"]
        if resolved_ts < self.resolved_ts:
            self._found.add(Rule.RESOLVED_ORDER, f"resolved {resolved_ts} after {self.resolved_ts}", event)
        elif resolved_ts == self.resolved_ts and self._cursor not in (None, cursor):
            self._found.add(Rule.RESOLVED_ORDER, f"resolved {resolved_ts} twice, with two cursors", event)
        if resolved_ts < self.commit_ts:
            detail = f"resolved {resolved_ts} after an event at {self.commit_ts}"
            self._found.add(Rule.RESOLVED_ORDER, detail, event)
        self.resolved_ts = max(self.resolved_ts, resolved_ts)
        self._cursor = cursor

    def _arrive(self, commit_ts: int, event: Event) -> bool:
        """Check the commit_ts of a row or ddl event. Returns False if it is invalid; then no other rule applies."""
        if commit_ts <= self.resolved_ts:
            detail = f"commit_ts {commit_ts} is at or below the earlier resolved {self.resolved_ts} (or the start)"
            self._found.add(Rule.BELOW_RESOLVED, detail, event)
            return False
        if commit_ts < self.commit_ts:
            self._found.add(Rule.COMMIT_ORDER, f"commit_ts {commit_ts} after {self.commit_ts}", event)
            return False
        if commit_ts > self.commit_ts:
            self._forget(commit_ts)
        return True

    def _version(self, event: Event) -> None:
        version = int(event["schema_version"])
        if version < self.schema_version:
            self._found.add(Rule.SCHEMA_VERSION, f"schema_version {version} after {self.schema_version}", event)
        self.schema_version = max(self.schema_version, version)
