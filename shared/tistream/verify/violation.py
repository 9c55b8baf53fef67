"""What a pulled stream did wrong: the rule, the event, and what it contradicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

KEPT_MAX = 200  # a broken stream breaks a rule with every event; the counts go on


class Rule(StrEnum):
    """The rules, by the name that reports show. Their meaning is design.md 5 and 7."""

    FORM = "form"  # an event lacks what its type and op ask for
    COMMIT_ORDER = "commit-order"  # commit_ts went back
    TABLE_ORDER = "table-order"  # within one table and commit_ts, start_ts went back
    KEY_ORDER = "key-order"  # within one table and transaction, a key went back
    DELETES_FIRST = "deletes-first"  # a delete after a put of the same transaction and table
    BELOW_RESOLVED = "below-resolved"  # an event at or below a resolved that was told, or one that split a commit_ts
    RESOLVED_ORDER = "resolved-order"  # a resolved went back, or repeats itself with another cursor
    TWICE = "twice"  # an event came a second time
    DDL_PLACE = "ddl-place"  # a row after the DDL of its own commit_ts
    SCHEMA_VERSION = "schema-version"  # it went down
    BEFORE_AFTER = "before-after"  # old_row is not what was shown before
    DEAD_TABLE = "dead-table"  # an event of a table that is no more
    EVENTS_SUM = "events-sum"  # lost, invented or altered events, by the upstream's truth
    ROWS_SUM = "rows-sum"  # the rows that the events leave are not what SELECT shows
    DDL_COUNT = "ddl-count"  # DDL events lost or invented
    NAME = "name"  # an event bears another name than its table had
    REREAD = "reread"  # the same stretch, pulled again, is not the same
    SCOPE = "scope"  # PullTable or PullDB are not the filter of PullTenant
    REFUSED = "refused"  # an answer that no consumer should get
    CUT = "cut"  # an answer's last line is none


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach. `source` names the consumer, `event` is the event's JSON (empty where none is at fault)."""

    rule: Rule
    detail: str
    event: str = ""
    source: str = ""

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source else ""
        return f"{self.rule}: {where}{self.detail}" + (f"\n    {self.event}" if self.event else "")


@dataclass(slots=True)
class Findings:
    """Violations of one consumer: the first ones in full, all of them counted."""

    source: str = ""
    kept: list[Violation] = field(default_factory=list)
    counts: Counter[Rule] = field(default_factory=Counter)

    def add(self, rule: Rule, detail: str, event: Mapping[str, Any] | None = None) -> None:
        """Note a breach of `rule`."""
        self.counts[rule] += 1
        if len(self.kept) < KEPT_MAX:
            text = "" if event is None else orjson.dumps(event).decode()
            self.kept.append(Violation(rule, detail, text, self.source))

    def __bool__(self) -> bool:
        return bool(self.counts)
