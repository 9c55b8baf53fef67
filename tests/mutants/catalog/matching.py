"""What becomes of the entries: prewrites, commits and rollbacks matched, cut at the watermark, sorted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant

ROLLED_BACK = "test_a_late_generation_of_a_rolled_back_transaction_does_not_wait_for_ever"
REPEAT = "test_a_repeat_at_or_below_the_window_is_handed_out_for_lookup"


@mutant(
    "tistream_sorter:judge",
    invariants=(7,),
    catchers=("test_a_new_lock_and_its_repeat_in_one_tick_is_no_repeat_of_something_settled",),
)
def dead_below_the_watermark(original: Function) -> Function:
    """A prewrite with `start_ts` below the watermark is taken as dead."""

    def broken(locks: Any, history: Any) -> Any:
        verdict = original(locks, history)
        if not history.num_rows:
            return verdict
        return replace(verdict, dead=verdict.dead | (locks.start_ts < max(history["resolved_ts"].to_pylist())))

    return broken


@mutant("tistream_sorter:resolve", invariants=(7,), catchers=(ROLLED_BACK,))
def rollback_forgotten(original: Function) -> Function:
    """A rollback does not end its prewrite."""

    def broken(entries: Any, *rest: Any) -> Any:
        from tistream_sorter.match.contracts import ROLLBACK

        return original(entries.filter(entries["type"] != ROLLBACK), *rest)

    return broken


@mutant("tistream_sorter:resolve", invariants=(6, 7), catchers=("test_any_arrival_order_commits_the_same_rows_once",))
def commit_before_its_prewrite_lost(original: Function) -> Function:
    """A commit that comes before its prewrite is not kept."""

    def broken(*arguments: Any) -> Any:
        left = original(*arguments)
        return replace(left, commits=left.commits.clear())

    return broken


@mutant(
    "tistream_sorter:exact_match._first",
    invariants=(7,),
    catchers=("test_a_scans_whole_change_wins_over_a_lower_generation",),
)
def duplicate_in_one_tick(original: Function) -> Function:
    """A change that comes twice in one tick enters the pool twice."""
    return lambda entries: entries


@mutant(
    "tistream_sorter:match",
    invariants=(6,),
    catchers=("test_a_commit_without_prewrite_inside_the_window_is_stranded",),
)
def stranded_commit_ignored(original: Function) -> Function:
    """A commit in the window whose prewrite never came is dropped in silence."""

    def broken(*arguments: Any) -> Any:
        matched = original(*arguments)
        return replace(matched, stranded=matched.stranded.clear())

    return broken


@mutant("tistream_sorter:match", invariants=(5,), catchers=(REPEAT,))
def repeats_not_looked_up(original: Function) -> Function:
    """A row at or below flushed_ts is dropped without a look whether the pool has it."""

    def broken(*arguments: Any) -> Any:
        matched = original(*arguments)
        return replace(matched, repeats=matched.repeats.clear())

    return broken


@mutant("tistream_sorter:match", invariants=(5, 7), catchers=(REPEAT,))
def window_low_inclusive(original: Function) -> Function:
    """The flush takes [low, high]: a repeat at the last watermark enters the pool again."""

    def broken(*arguments: Any) -> Any:
        rules = arguments[-1]
        window = replace(rules.window, low=max(0, rules.window.low - 1))
        return original(*arguments[:-1], replace(rules, window=window))

    return broken


@mutant(
    "tistream_sorter:fast_match._same_changes",
    invariants=(7,),
    catchers=("test_a_commit_of_another_key_of_the_transaction_is_no_partner",),
)
def pair_of_different_keys(original: Function) -> Function:
    """The fast path takes a prewrite and a commit of one start_ts for a pair without a look at their keys."""
    return lambda entries, left, right: entries.start_ts[left] == entries.start_ts[right]


@mutant(
    "tistream_sorter:segment_order",
    invariants=(8,),
    catchers=("test_any_arrival_order_commits_the_same_rows_once",),
)
def segment_ordered_by_start_ts(original: Function) -> Function:
    """Rows of a table are in order of start_ts, not of commit_ts."""
    return lambda commit_ts, start_ts, *rest: original(start_ts, start_ts, *rest)
