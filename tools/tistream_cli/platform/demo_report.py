"""Collects the events that the demo's consumer receives, and computes their lag. No I/O."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

_LINE_MAX = 200
_ROWS_PER_DDL = 2
_LOOK_AHEAD = 500


@dataclass(slots=True)
class PulledEvents:
    """All events that a pull with --follow has returned. `resolved` has, for each resolved event, its ts and its
    arrival in monotonic ms."""

    events: list[dict[str, Any]] = field(default_factory=list)
    resolved: list[tuple[int, int]] = field(default_factory=list)
    resolved_ts: int = 0
    cursor: str | None = None
    rows: int = 0
    ddls: int = 0
    removed: int = 0
    added: int = 0
    trouble: str | None = None
    failure: str | None = None

    def see(self, line: bytes, now_ms: int) -> None:
        """Add one line of the pull's answer."""
        event = orjson.loads(line)
        if event["type"] == "row":
            self.rows += 1
            self.removed += event["old_row"] is not None
            self.added += event["row"] is not None
            self.events.append(event)
        elif event["type"] == "ddl":
            self.ddls += 1
            self.events.append(event)
        elif event["type"] == "resolved":
            self.cursor = event["cursor"]
            self.resolved_ts = int(event["resolved_ts"])
            self.resolved.append((self.resolved_ts, now_ms))


def lags_ms(
    arrived: Mapping[str, int], last_commit: Mapping[str, int], resolved: Sequence[tuple[int, int]]
) -> list[int]:
    """The sorted lags of change files, in ms. `arrived` has the time at which each file arrived, and `last_commit` its
    highest commit_ts. The lag of a file is the time from its arrival to the first `resolved` event at or above that
    commit_ts, because then all of its rows have been received. A lag below 0 counts as 0."""
    marks = [ts for ts, _ in resolved]
    lags = [resolved[bisect_left(marks, ts)][1] - arrived[key] for key, ts in last_commit.items()]
    return sorted(max(0, lag) for lag in lags)


def percentile(ordered: Sequence[int], percent: int) -> int:
    """A percentile of sorted values, by the nearest-rank method."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def excerpt(events: Sequence[Mapping[str, Any]], ddls: int) -> list[str]:
    """Choose lines that show what happened: up to `ddls` DDLs of different kinds, each followed by the next rows of its
    table. Events must be in order of arrival, without duplicates."""
    lines: list[str] = []
    actions: set[str] = set()
    shown_to = -1
    for at, event in enumerate(events):
        if at <= shown_to or event["type"] != "ddl" or event["action"] in actions or len(actions) == ddls:
            continue
        ahead = range(at + 1, min(at + _LOOK_AHEAD, len(events)))
        rows = [n for n in ahead if _is_row_of(events[n], event)][:_ROWS_PER_DDL]
        if rows:
            actions.add(event["action"])
            lines += [_cut(_ddl_text(event)), *(_cut(_row_text(events[n])) for n in rows)]
            shown_to = rows[-1]
    return lines


def _is_row_of(row: Mapping[str, Any], ddl: Mapping[str, Any]) -> bool:
    return row["type"] == "row" and (row["database"], row["table"]) == (ddl["database"], ddl["table"])


def _ddl_text(event: Mapping[str, Any]) -> str:
    return f"{event['commit_ts']}  DDL     {' '.join(event['query'].split())}"


def _row_text(event: Mapping[str, Any]) -> str:
    op = "delete" if event["row"] is None else "insert" if event["old_row"] is None else "update"
    shown = event["old_row"] if op == "delete" else event["row"]
    return f"{event['commit_ts']}  {op}  {event['database']}.{event['table']} {orjson.dumps(shown).decode()}"


def _cut(text: str) -> str:
    return text if len(text) <= _LINE_MAX else text[: _LINE_MAX - 1] + "…"
