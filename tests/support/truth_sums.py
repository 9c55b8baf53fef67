"""What a consumer of events sums up to, beside what the upstream's truth lines say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tistream_verify.fingerprint import TableSums, TruthLine


def require_sums(lines: Iterable[TruthLine], events: Sequence[Mapping[str, Any]]) -> None:
    """Check that every truth line sums up the events at or below its ts: the number of DDLs and, for each table, the
    number and hash sum of its row events."""
    for line in lines:
        past = [event for event in events if int(event["commit_ts"]) <= line.ts]
        assert sum(event["type"] == "ddl" for event in past) == line.ddls, line.ts
        sums: dict[str, TableSums] = {}
        for event in past:
            if event["type"] == "row":
                sums.setdefault(event["table_id"], TableSums("", "")).see(event)
        for table_id, table in line.tables.items():
            found = sums.get(table_id, TableSums("", "")).events
            assert (found.count, found.total) == (table.events, table.events_sum), (line.ts, table)
