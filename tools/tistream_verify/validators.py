"""Applies every rule to the events of one consumer's stream. Pure: it takes events and returns violations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tistream_verify.before_after import BeforeAfterCheck
from tistream_verify.fingerprint import TruthLine, row_hash
from tistream_verify.form import well_formed
from tistream_verify.order import KeyOrder, OrderCheck
from tistream_verify.truth_check import TruthCheck
from tistream_verify.violation import Findings, Violation


class Validators:
    """Checks the events of a PullTenant stream from `start_ts` (exclusive) on.

    The caller passes every event (parsed JSON) once, in the order of arrival. It leaves out the events that a resumed
    answer repeats, and compares them itself. `truth` may be called at any time.

    `source` names the consumer in violations. `from_beginning`: start_ts is the tenant's snapshot_ts. `with_truth`: the
    caller will pass truth lines; events are kept until they are compared with them. `keys_max`: the number of keys
    whose last row is remembered (see before_after.py). `key_order` returns a value by which keys sort as their raw keys
    do; None: key order is not checked.
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
        """Check one event: a row, DDL or resolved event (`continue` is ignored). Returns False if it is malformed."""
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
        """Check a row event. The hashes are computed once for all rules, because they are most of the work."""
        key, row, old_row = event["key"], event["row"], event["old_row"]
        come = None if row is None else row_hash(key, row)
        gone = None if old_row is None else row_hash(key, old_row)
        key_text = orjson.dumps(key, option=orjson.OPT_SORT_KEYS)
        self._order.row(event, key_text)
        self._before_after.row(event, key_text, come, gone)
        if self._with_truth:
            self._truth.row(event, come, gone)

    def truth(self, line: TruthLine) -> None:
        """Add the next truth line. Raises ValueError if its ts is not above that of the line before."""
        self._truth.truth(line)

    @property
    def resolved_ts(self) -> int:
        """The highest resolved_ts that the stream has returned."""
        return self._order.resolved_ts

    @property
    def compared_ts(self) -> int:
        """The ts up to which events were compared with the truth. Differences that were found are among the
        violations."""
        return self._truth.compared_ts

    @property
    def compared_lines(self) -> int:
        """The number of truth lines that were compared."""
        return self._truth.compared

    @property
    def compared_events(self) -> int:
        """The number of the stream's row events that were compared with the truth. A truth line sums many events."""
        return self._truth.events

    @property
    def compared_before_after(self) -> int:
        """The number of events whose old_row was compared with an earlier event."""
        return self._before_after.compared

    @property
    def violations(self) -> list[Violation]:
        """The first violations, with all details."""
        return list(self.found.kept)

    def require_clean(self) -> None:
        """Raise AssertionError with the recorded violations, if there are any."""
        if self.found:
            raise AssertionError("\n".join(map(str, self.found.kept)))
