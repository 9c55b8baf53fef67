"""Violations that were found in a pulled stream: the rule, the event, and a description."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

KEPT_MAX = 200  # a broken stream may violate a rule with every event; above this number they are only counted


class Rule(StrEnum):
    """The rules, by their names in reports. design.md 5 and 7 define them."""

    FORM = "form"  # an event lacks members that its type and op require
    COMMIT_ORDER = "commit-order"  # commit_ts decreased
    TABLE_ORDER = "table-order"  # start_ts decreased within one table and commit_ts
    KEY_ORDER = "key-order"  # keys are not ascending within one table and transaction
    DELETES_FIRST = "deletes-first"  # a delete follows a put of the same transaction and table
    BELOW_RESOLVED = "below-resolved"  # an event is not above an earlier resolved_ts, or a resolved splits a commit_ts
    RESOLVED_ORDER = "resolved-order"  # resolved_ts decreased, or was repeated with another cursor
    TWICE = "twice"  # an event was duplicated
    DDL_PLACE = "ddl-place"  # a row follows the DDL of its own commit_ts
    SCHEMA_VERSION = "schema-version"  # schema_version decreased
    BEFORE_AFTER = "before-after"  # old_row is not the row after the key's last event
    DEAD_TABLE = "dead-table"  # an event of a table that was dropped
    EVENTS_SUM = "events-sum"  # events are lost, invented or altered, compared with the upstream's truth
    ROWS_SUM = "rows-sum"  # the rows after all events are not the rows that SELECT shows
    DDL_COUNT = "ddl-count"  # DDL events are lost or invented
    NAME = "name"  # an event has another name than its table had
    REREAD = "reread"  # the same window, pulled again, has other events
    SCOPE = "scope"  # PullTable or PullDB returns other events than PullTenant for the same tables
    REFUSED = "refused"  # an error response that no consumer should receive
    CUT = "cut"  # the last line of an answer is not its end


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation. `source` names the consumer. `event` is the event's JSON, or empty if no single event is at
    fault."""

    rule: Rule
    detail: str
    event: str = ""
    source: str = ""

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source else ""
        return f"{self.rule}: {where}{self.detail}" + (f"\n    {self.event}" if self.event else "")


@dataclass(slots=True)
class Findings:
    """Collects the violations of one consumer: the first ones with details, and the counts of all."""

    source: str = ""
    kept: list[Violation] = field(default_factory=list)
    counts: Counter[Rule] = field(default_factory=Counter)

    def add(self, rule: Rule, detail: str, event: Mapping[str, Any] | None = None) -> None:
        """Record a violation of `rule`."""
        self.counts[rule] += 1
        if len(self.kept) < KEPT_MAX:
            text = "" if event is None else orjson.dumps(event).decode()
            self.kept.append(Violation(rule, detail, text, self.source))

    def __bool__(self) -> bool:
        return bool(self.counts)
