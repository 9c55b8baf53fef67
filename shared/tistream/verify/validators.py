"""Every rule for one consumer's stream, behind one door. Pure: events in, violations out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tistream.verify.before_after import BeforeAfterCheck
from tistream.verify.fingerprint import TruthLine, row_hash
from tistream.verify.form import well_formed
from tistream.verify.order import KeyOrder, OrderCheck
from tistream.verify.truth_check import TruthCheck
from tistream.verify.violation import Findings, Violation


class Validators:
    """Watches a PullTenant stream from `start_ts` (exclusive) on, from outside.

    Feed it every event (parsed JSON) in the order in which it came, once: what a resumed answer repeats is left out by
    the caller, who compares it. `truth` may be fed at any time.

    `from_beginning`: start_ts is the tenant's snapshot_ts. `with_truth`: truth lines will come; events wait for them.
    `key_order` tells how raw keys sort, where the caller knows.
    """

    def __init__(
        self,
        start_ts: int,
        *,
        source: str = "",
        from_beginning: bool = True,
        with_truth: bool = True,
        keys_max: int = 1_000_000,
        key_order: KeyOrder | None = None,
    ) -> None:
        self.found = Findings(source)
        self.rows = 0
        self.ddls = 0
        self._order = OrderCheck(start_ts, self.found, key_order)
        self._before_after = BeforeAfterCheck(self.found, keys_max)
        self._with_truth = with_truth
        self._truth = TruthCheck(start_ts, self.found, from_beginning=from_beginning)

    def see(self, event: Mapping[str, Any]) -> bool:
        """One event: row, ddl or resolved (`continue` says nothing). False: it lacks what an event must have."""
        if not well_formed(event, self.found):
            return False
        match event["type"]:
            case "row":
                self.rows += 1
                self._row(event)
            case "ddl":
                self.ddls += 1
                self._order.ddl(event)
                self._before_after.ddl(event)
                if self._with_truth:
                    self._truth.ddl(event)
            case "resolved":
                self._order.resolved(event)
                self._truth.reach(int(event["resolved_ts"]))
        return True

    def _row(self, event: Mapping[str, Any]) -> None:
        """The hashes that several rules want are made once: they are most of the work."""
        key, row, old_row = event["key"], event["row"], event["old_row"]
        come = None if row is None else row_hash(key, row)
        gone = None if old_row is None else row_hash(key, old_row)
        key_text = orjson.dumps(key, option=orjson.OPT_SORT_KEYS)
        self._order.row(event, key_text)
        self._before_after.row(event, key_text, come, gone)
        if self._with_truth:
            self._truth.row(event, come, gone)

    def truth(self, line: TruthLine) -> None:
        """One truth line. Raises ValueError when it is out of order."""
        self._truth.truth(line)

    @property
    def resolved_ts(self) -> int:
        """The highest that was told."""
        return self._order.resolved_ts

    @property
    def compared_ts(self) -> int:
        """Up to here the events are what the truth says, or a violation says what is not."""
        return self._truth.compared_ts

    @property
    def compared_lines(self) -> int:
        """Truth lines that were compared."""
        return self._truth.compared

    @property
    def compared_events(self) -> int:
        """Row events that those lines covered."""
        return self._truth.events

    @property
    def compared_before_after(self) -> int:
        """Events whose old_row could be compared."""
        return self._before_after.compared

    @property
    def violations(self) -> list[Violation]:
        """What went wrong so far, the first ones in full."""
        return list(self.found.kept)

    def require_clean(self) -> None:
        """Raise AssertionError that tells every violation kept."""
        if self.found:
            raise AssertionError("\n".join(map(str, self.found.kept)))
