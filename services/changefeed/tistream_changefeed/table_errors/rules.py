"""Decides what happens if an event of a table cannot be sent (docs/changefeeds.md, "Changing a feed"). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tistream.rules.table_rules import TableRules
from tistream.schema.visible import Name

OnRowError = Literal["stop", "dead-letter"]
OnTableError = Literal["stop-table", "stop-feed", "leave-table"]
"""`stop-table`: the other tables go on, and the feed's checkpoint waits for it. `leave-table`: it does not wait."""


@dataclass(frozen=True, slots=True)
class TableErrors:
    """The rule for the tables that `matcher` matches."""

    matcher: TableRules
    on_row_error: OnRowError = "stop"
    on_table_error: OnTableError = "stop-table"


@dataclass(frozen=True, slots=True)
class ErrorRules:
    """A feed's rules for tables with events that cannot be sent. The first rule that matches a table applies to it.
    `others`: what such an event stops in tables that no rule matches."""

    entries: Sequence[TableErrors] = ()
    others: OnTableError = "stop-table"

    def on_row_error(self, name: Name) -> OnRowError:
        """What to do if a row event of this table cannot be sent."""
        return next((one.on_row_error for one in self.entries if one.matcher.matches(*name)), "stop")

    def on_table_error(self, name: Name) -> OnTableError:
        """What to do if any event of this table cannot be sent."""
        return next((one.on_table_error for one in self.entries if one.matcher.matches(*name)), self.others)


BY_HAND = ErrorRules()
"""Every table stops at an event that cannot be sent, until a person acts."""
