"""Events of partitions in order: transactions, DDLs, what is repeated, and where reading goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.consume.feed_events import DdlEvent, Event, ResolvedEvent, RowEvent
from tistream.consume.reorder import Ddl, OutOfOrder, ReadProgress, Reorder, Resolved, Step, Transaction

A, B = ("t", 0), ("t", 1)


def row(ts: int, number: int = 0, table: str = "orders", key: tuple[str, ...] = ("id",)) -> RowEvent:
    return RowEvent(ts, "shop", table, None, {"id": number}, key, {})


def ddl(ts: int, query: str = "ALTER TABLE orders ADD c INT") -> DdlEvent:
    return DdlEvent(ts, "shop", "orders", query)


@dataclass
class Log:
    """The messages of the partitions, as a broker keeps them."""

    messages: dict[tuple[str, int], list[list[Event]]]

    def read(self, reorder: Reorder, turns: Iterable[tuple[str, int]], start: ReadProgress) -> list[Step]:
        """Read a message of each partition in turn, then all that is left."""
        at = {one: start.offsets.get(one, 0) for one in self.messages}
        steps: list[Step] = []
        for one in [*turns, *(each for each in self.messages for _ in self.messages[each])]:
            if at[one] < len(self.messages[one]):
                reorder.add(one, at[one], 10, self.messages[one][at[one]])
                at[one] += 1
                steps += reorder.ready()
        return steps


def shown(steps: Iterable[Step]) -> list[object]:
    """What left, without progress."""
    found: list[object] = []
    for step in steps:
        if isinstance(step, Transaction):
            found += sorted((step.commit_ts, str(one.new)) for one in step.rows)
        elif isinstance(step, Ddl):
            found.append((step.event.commit_ts, step.event.query))
    return found


def test_rows_wait_until_every_partition_is_resolved() -> None:
    reorder = Reorder([A, B], ReadProgress())
    reorder.add(A, 0, 10, [row(5, 1), row(5, 2)])
    reorder.add(A, 1, 10, [ResolvedEvent(9)])
    assert reorder.ready() == []
    reorder.add(B, 0, 10, [row(5, 3)])
    reorder.add(B, 1, 10, [ResolvedEvent(7)])
    transaction, resolved = reorder.ready()
    assert isinstance(transaction, Transaction)
    assert [one.new for one in transaction.rows] == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert resolved == Resolved(ReadProgress(7, {A: 2, B: 2}))
    assert reorder.held_bytes == 0


def test_a_ddl_leaves_behind_the_rows_of_its_own_commit_ts_and_before_later_ones() -> None:
    reorder = Reorder([A, B], ReadProgress())
    reorder.add(A, 0, 10, [ddl(5)])
    reorder.add(A, 1, 10, [row(6, 1)])
    reorder.add(A, 2, 10, [ResolvedEvent(6)])
    reorder.add(B, 0, 10, [row(5, 2)])
    reorder.add(B, 1, 10, [ddl(5)])
    reorder.add(B, 2, 10, [ResolvedEvent(6)])
    assert shown(reorder.ready()) == [(5, "{'id': 2}"), (5, ddl(5).query), (6, "{'id': 1}")]


def test_a_ddl_that_follows_a_resolved_ts_of_its_own_commit_ts_leaves_once() -> None:
    reorder = Reorder([A, B], ReadProgress())
    for one in (A, B):
        reorder.add(one, 0, 10, [ResolvedEvent(5)])
    assert reorder.ready() == [Resolved(ReadProgress(5, {A: 1, B: 1}))]
    reorder.add(A, 1, 10, [ddl(5)])
    after = reorder.ready()
    assert shown(after) == [(5, ddl(5).query)]
    reorder.add(B, 1, 10, [ddl(5)])
    assert shown(reorder.ready()) == []

    again = Reorder([A, B], after[-1].progress)
    again.add(B, 1, 10, [ddl(5)])
    assert shown(again.ready()) == []


def test_a_row_below_its_partitions_resolved_ts_is_a_broken_promise() -> None:
    reorder = Reorder([A], ReadProgress())
    reorder.add(A, 0, 10, [ResolvedEvent(9)])
    with pytest.raises(OutOfOrder, match=r"shop\.orders with commit_ts 9 follows resolved ts 9"):
        reorder.add(A, 1, 10, [row(9)])


def test_a_resolved_ts_that_falls_is_a_broken_promise() -> None:
    reorder = Reorder([A], ReadProgress())
    reorder.add(A, 0, 10, [ResolvedEvent(9)])
    with pytest.raises(OutOfOrder, match="resolved ts 8 follows 9"):
        reorder.add(A, 1, 10, [ResolvedEvent(8)])


def test_repeats_of_a_producer_that_delivers_at_least_once_are_left_out() -> None:
    reorder = Reorder([A], ReadProgress(), repeats=True)
    keyless = row(5, 7, "keyless", ())
    sent: Sequence[Event] = [row(3, 1), row(5, 2), row(5, 3), keyless, keyless]
    for offset, one in enumerate([*sent, *sent[:3], row(6, 4), ResolvedEvent(6), row(3, 1), row(6, 4)]):
        reorder.add(A, offset, 10, [one])
    assert shown(reorder.ready()) == [
        (3, "{'id': 1}"), (5, "{'id': 2}"), (5, "{'id': 3}"), (5, "{'id': 7}"), (5, "{'id': 7}"), (6, "{'id': 4}"),
    ]  # fmt: skip


def test_partitions_ahead_of_the_slowest_one_can_pause() -> None:
    reorder = Reorder([A, B], ReadProgress())
    reorder.add(A, 0, 1_000, [row(5)])
    assert (reorder.ahead(), reorder.held_bytes) == (frozenset(), 1_000)
    reorder.add(A, 1, 10, [ResolvedEvent(5)])
    assert reorder.ahead() == frozenset({A})


def test_a_partition_that_joins_is_waited_for() -> None:
    reorder = Reorder([A], ReadProgress())
    reorder.add(A, 0, 10, [ResolvedEvent(5)])
    reorder.ready()
    reorder.add_partition(B)
    reorder.add(A, 1, 10, [row(8, 1), ResolvedEvent(9)])
    reorder.add(B, 0, 10, [row(7, 2)])
    assert reorder.ready() == []
    reorder.add(B, 1, 10, [ResolvedEvent(8)])
    assert shown(reorder.ready()) == [(7, "{'id': 2}"), (8, "{'id': 1}")]


@st.composite
def logs(draw: st.DrawFn) -> tuple[Log, list[object]]:
    """Two partitions that a lawful producer wrote, and their events in order."""
    messages: dict[tuple[str, int], list[list[Event]]] = {A: [], B: []}
    want: list[object] = []
    number = 0
    for ts in range(2, 2 + draw(st.integers(1, 8))):
        late = draw(st.booleans())
        rows: list[object] = []
        for one in draw(st.lists(st.sampled_from([A, B]), max_size=4)):
            number += 1
            messages[one].append([row(ts, number)])
            rows.append((ts, str({"id": number})))
        want += sorted(rows, key=str)
        if late and draw(st.booleans()):
            for one in (A, B):
                messages[one].append([ResolvedEvent(ts)])
        if draw(st.booleans()):
            for one in (A, B):
                messages[one].append([ddl(ts, f"DDL {ts}")])
            want.append((ts, f"DDL {ts}"))
        for one in (A, B):
            if draw(st.booleans()):
                messages[one].append([ResolvedEvent(ts)])
    for one in (A, B):
        messages[one].append([ResolvedEvent(100)])
    return Log(messages), want


@given(logs(), st.lists(st.sampled_from([A, B]), max_size=30), st.data())
def test_every_event_leaves_once_and_in_order_wherever_the_reader_starts_again(
    written: tuple[Log, list[object]], turns: list[tuple[str, int]], data: st.DataObject
) -> None:
    log, want = written
    steps = log.read(Reorder([A, B], ReadProgress()), turns, ReadProgress())
    assert [str(one) for one in shown(steps)] == [str(one) for one in want]

    end = data.draw(st.integers(0, len(steps)), "steps that the target stored")
    start = steps[end - 1].progress if end else ReadProgress()
    rest = log.read(Reorder([A, B], start), turns, start)
    assert [str(one) for one in [*shown(steps[:end]), *shown(rest)]] == [str(one) for one in want]
