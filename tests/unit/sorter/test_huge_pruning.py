"""Which pending parts a tick leaves alone: never one that could matter."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream.format.manifest import UNMATCHED, PendingPart
from tistream.model.span import KeySpan, merge_spans
from tistream.model.ts import MAX_TS
from tistream_sorter.jobs.pruning import ReadRules, read_anyway, read_for_repeats

KEYS = [b"a", b"a\x00", b"b", b"c", b"c\x00\x00", b"d"]
CHANGE = st.tuples(st.integers(1, 6), st.sampled_from(KEYS))
PART = st.lists(st.tuples(CHANGE, st.sampled_from([None, 3, 8, 9])), min_size=1, max_size=5)


def part_of(number: int, rows: list[tuple[tuple[int, bytes], int | None]]) -> PendingPart:
    starts, keys = zip(*(change for change, _ in rows), strict=True)
    commits = [commit for _, commit in rows if commit is not None]
    return PendingPart(
        f"part-{number}",
        1,
        "",
        len(rows),
        UNMATCHED,
        min(starts),
        max(starts),
        min(commits, default=MAX_TS),
        KeySpan(min(keys), max(keys) + b"\x00"),
    )


def identities(changes: list[tuple[int, bytes]]) -> pl.DataFrame:
    return pl.DataFrame(changes, schema={"start_ts": pl.Int64, "key": pl.Binary}, orient="row")


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(PART, max_size=6), st.lists(CHANGE, max_size=6), st.integers(0, 10), st.integers(0, 3))
def test_a_part_that_is_left_alone_holds_nothing_that_is_at_hand(
    rows: list[list[tuple[tuple[int, bytes], int | None]]],
    changes: list[tuple[int, bytes]],
    high: int,
    rows_small: int,
) -> None:
    parts = [part_of(number, found) for number, found in enumerate(rows)]
    rules = ReadRules(high, rows_small, swept={"part-1"})
    anyway = read_anyway(parts, rules)
    too = read_for_repeats(parts, anyway, identities(changes))
    for number, found in enumerate(rows):
        if not anyway[number] and not too[number]:
            assert not {change for change, _ in found} & set(changes)
            assert all(commit is None or commit > high for _, commit in found)
            assert len(found) >= rows_small
            assert number != 1


def test_a_part_of_other_transactions_or_other_keys_is_left_alone() -> None:
    parts = [part_of(0, [((5, b"a"), None), ((5, b"b"), None)]), part_of(1, [((5, b"d"), None)])]
    anyway = read_anyway(parts, ReadRules(100, 0))
    assert anyway == [False, False]
    assert read_for_repeats(parts, anyway, identities([(4, b"a"), (6, b"b"), (5, b"c"), (4, b"d")])) == [False, False]
    assert read_for_repeats(parts, anyway, identities([(5, b"a\x00")])) == [True, False]
    assert read_for_repeats(parts, anyway, identities([(5, b"d")])) == [False, True]
    assert read_anyway(parts, ReadRules(100, 0, scanned=[KeySpan(b"c", b"")])) == [False, True]


def test_what_lies_between_two_keys_of_one_transaction_is_left_alone() -> None:
    parts = [part_of(number, [((5, bytes([number])), None)]) for number in range(100)]
    too = read_for_repeats(parts, [False] * 100, identities([(5, b"\x00"), (5, b"\x63")]))
    assert [number for number, read in enumerate(too) if read] == [0, 99]


def test_joined_spans_hold_the_same_keys() -> None:
    spans = [KeySpan(b"c", b"d"), KeySpan(b"a", b"b"), KeySpan(b"b", b"c"), KeySpan(b"x", b""), KeySpan(b"y", b"z")]
    assert merge_spans(spans, 2) == (KeySpan(b"a", b"d"), KeySpan(b"x", b""))
    assert merge_spans(spans, 1) == (KeySpan(b"a", b""),)
    assert merge_spans([], 1) == ()
