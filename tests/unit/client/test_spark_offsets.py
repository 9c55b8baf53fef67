"""Offsets of a stream: whatever is killed, each change is in one batch, and a batch that is repeated is the same."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tistream_client.spark import offsets
from tistream_client.spark.offsets import Batch, Offset

MINUTE = 60_000 << 18
CHANGES = st.lists(st.integers(1, 40), max_size=6).map(sorted)


class Query:
    """A query as Spark runs it. An offset is stored before its batch runs; a process that is killed repeats the batch
    of the last offset, from the one before, which of the first is where the process itself begins."""

    def __init__(self, changes: list[int], snapshot: bool, span: int | None) -> None:
        self.changes, self.snapshot, self.span = changes, snapshot, span
        self.logged: list[Offset] = []
        self.batches: list[Batch | None] = []

    def run(self, now: int) -> None:
        """The next batch, if there is one, by a process with `startingTs=now`."""
        start = self.logged[-1] if self.logged else offsets.first(now, snapshot=self.snapshot)
        end = offsets.snapshot_after(start) or self.changes_after(start, now)
        if end != start or not self.logged:
            self.logged.append(json.loads(json.dumps(end)))
            self.batches.append(offsets.batch(start, self.logged[-1]))

    def changes_after(self, start: Offset, newest: int) -> Offset:
        low = int(start["to"])
        change = next((ts for ts in self.changes if low < ts <= newest), None)
        if change is None:
            return offsets.changes_after(start, offsets.end_without(low, newest, [], at_once=False))
        return offsets.changes_after(start, offsets.end_with(change, newest, self.span, []))

    def repeated(self, now: int) -> Batch | None:
        """The last batch, by a process that is started again later."""
        start = self.logged[-2] if len(self.logged) > 1 else offsets.first(now, snapshot=self.snapshot)
        return offsets.batch(start, self.logged[-1])


@given(CHANGES, st.booleans(), st.none() | st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_each_change_is_in_one_batch_wherever_a_process_is_killed(
    changes: list[int], snapshot: bool, span: int | None, steps: list[int]
) -> None:
    query, now, begun = Query(changes, snapshot, span), 0, steps[0]
    for step in [*steps, *[0] * (len(changes) + 1)]:
        now += step
        query.run(now)
        assert query.repeated(now + 5) == query.batches[-1]
    found = [batch for batch in query.batches if batch is not None]
    assert [batch.high for batch in found if batch.low is None] == [begun] * snapshot
    windows = [(batch.low, batch.high) for batch in found if batch.low is not None]
    assert [low for low, _ in windows] == [begun, *(high for _, high in windows)][: len(windows)]
    read = [ts for low, high in windows for ts in changes if low < ts <= high]
    assert read == [ts for ts in changes if begun < ts <= now]


def test_a_first_batch_without_changes_is_empty_wherever_the_next_process_begins() -> None:
    """A query with `startingTs=now` on an idle table that is killed in its first batch."""
    stored = offsets.changes_after(offsets.first(7, snapshot=False), 7)
    assert offsets.batch(offsets.first(7, snapshot=False), stored) is None
    assert offsets.batch(offsets.first(9, snapshot=False), stored) is None
    assert offsets.batch(stored, offsets.changes_after(stored, 12)) == Batch(7, 12)


def test_a_batch_begins_where_its_offset_says() -> None:
    stored = offsets.changes_after(offsets.first(7, snapshot=False), 12)
    assert offsets.batch(offsets.first(9, snapshot=False), stored) == Batch(7, 12)
    snapshot = offsets.snapshot_after(offsets.first(7, snapshot=True))
    assert snapshot is not None
    assert offsets.batch(offsets.first(9, snapshot=True), snapshot) == Batch(None, 7)
    assert offsets.batch(snapshot, offsets.changes_after(snapshot, 12)) == Batch(7, 12)


def test_a_batch_ends_at_what_is_resolved_the_span_or_a_bound() -> None:
    assert offsets.end_with(5, 20, None, []) == 20
    assert offsets.end_with(25, 20, None, []) == 25
    assert offsets.end_with(5, 20, 4, []) == 9
    assert offsets.end_with(5, 20, 40, []) == 20
    assert offsets.end_with(5, 20, 40, [12, 15]) == 12


def test_the_offset_of_an_idle_table_moves_each_minute() -> None:
    assert offsets.end_without(5, 4 + MINUTE, [], at_once=False) == 5
    assert offsets.end_without(5, 5 + MINUTE, [], at_once=False) == 5 + MINUTE
    assert offsets.end_without(5, 5 + MINUTE, [9], at_once=False) == 9
    assert offsets.end_without(5, 8, [9], at_once=True) == 8
