"""Checks the form of events: which members each type and op must have, and that an event's key agrees with its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tistream_verify.violation import Findings, Rule

_ROW = frozenset(
    ["type", "op", "commit_ts", "start_ts", "database", "table", "table_id", "schema_version", "key", "row", "old_row"]
)
_DDL = frozenset(["type", "commit_ts", "database", "table", "query", "action", "schema_version", "involved"])
_RESOLVED = frozenset({"type", "resolved_ts", "cursor"})
_CONTINUE = frozenset({"type", "cursor"})
_MEMBERS = {"row": _ROW, "ddl": _DDL, "resolved": _RESOLVED, "continue": _CONTINUE}


def well_formed(event: Mapping[str, Any], found: Findings) -> bool:
    """Check the form of an event and record violations. Returns whether the other checks can process the event."""
    wanted = _MEMBERS.get(event.get("type", ""))
    if wanted is None:
        found.add(Rule.FORM, f"an event has the unknown type {event.get('type')!r}", event)
        return False
    if event.keys() != wanted:
        found.add(Rule.FORM, f"members {sorted(wanted ^ event.keys())} are missing or unknown", event)
        return wanted <= event.keys()
    if event["type"] == "row":
        _row(event, found)
    return True


def _row(event: Mapping[str, Any], found: Findings) -> None:
    op, row, old_row = event["op"], event["row"], event["old_row"]
    if op not in ("put", "delete") or (row is None) != (op == "delete") or (op == "delete" and old_row is None):
        found.add(Rule.FORM, f"op {op!r} with row {_has(row)} and old_row {_has(old_row)}", event)
        return
    if row is not None and None not in row.values() and _text(row) == _text(old_row):  # SQL NULL and JSON null differ
        found.add(Rule.FORM, "a put whose row equals its old row must not be an event", event)
    key = event["key"].items()
    for image in (row, old_row):
        if image is None:
            continue
        for column, value in key:
            if image.get(column, value) != value:
                found.add(Rule.FORM, f"key {column} = {value!r}, but the row has {image[column]!r}", event)


def _text(image: Mapping[str, Any] | None) -> bytes:
    return orjson.dumps(image, option=orjson.OPT_SORT_KEYS)


def _has(image: object) -> str:
    return "null" if image is None else "set"
