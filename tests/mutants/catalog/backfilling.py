"""Backfills: which rows of a chunk count, where they stay, what a fold takes, and what retention waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant

HISTORIES = "test_reads_over_backfills_at_any_ts_are_what_was_there"
WRONG_TS = "test_a_chunk_of_another_ts_is_caught_if_a_row_differs"
REFUSED = "test_a_chunk_below_the_log_is_refused"
JOINS = "test_a_base_joins_the_parts_that_it_touches_and_counts_as_taken_in"


@mutant(
    "tistream_sorter:_Planner._fold",
    invariants=(34,),
    catchers=("test_a_fold_takes_in_the_backfilled_rows_that_its_deletes_may_end", HISTORIES),
)
def folds_without_backfills(original: Function) -> Function:
    """A fold takes the base and the changes only: rows of backfills come back below deletes."""
    return lambda self, part: original(self, replace(part, basis=()))


@mutant(
    "tistream_sorter:version_index._merged_part",
    invariants=(34,),
    catchers=("test_a_fold_takes_in_the_backfilled_rows_that_its_deletes_may_end",),
)
def folded_rows_stay_below(original: Function) -> Function:
    """What a fold took in of a backfill stays in the index too."""

    def broken(part: Any, unit: Any, written: Any) -> Any:
        found = original(part, unit, written)
        return None if found is None else replace(found, basis=part.basis)

    return broken


@mutant("tistream_sorter:base_rows.rows_that_count", invariants=(35,), catchers=(WRONG_TS,))
def chunks_believed(original: Function) -> Function:
    """A chunk is not compared with the log."""

    def broken(chunk: Any, logged: Any, first: Any, base_ts: int, **more: Any) -> Any:
        return original(chunk, logged.slice(0, 0), first.slice(0, 0), base_ts, **more)

    return broken


@mutant(
    "tistream_sorter:base_runs._logged",
    invariants=(34,),
    catchers=("test_a_second_backfill_adds_no_row_twice",),
)
def rows_that_the_log_has_count(original: Function) -> Function:
    """Every row of a chunk becomes a row of the base, also one that the log or an earlier backfill has."""
    return lambda objects, unit: iter(())


@mutant(
    "tistream_sorter:base_runs._first_changes",
    invariants=(35,),
    catchers=("test_a_chunk_of_a_wrong_ts_is_caught",),
)
def old_values_not_compared(original: Function) -> Function:
    """The old values of the first changes above the chunk's ts are not compared with it."""
    return lambda objects, unit: iter(())


@mutant("tistream_sorter:base_plan.refusal", invariants=(36,), catchers=(REFUSED,))
def chunks_below_the_log(original: Function) -> Function:
    """A chunk that is older than the log is taken."""
    return lambda state, backfill, number: None


@mutant("tistream_sorter:base_plan.with_bases", invariants=(36,), catchers=(JOINS, HISTORIES))
def chunks_overtaken_by_retention(original: Function) -> Function:
    """A chunk counts although retention has passed it while the job ran."""

    def broken(state: Any, made: Any) -> Any:
        after, vain = original(replace(state, retained_ts=0), made)
        return replace(after, retained_ts=state.retained_ts), vain

    return broken


@mutant("tistream_sorter:base_plan.kept_above", invariants=(36,), catchers=("test_retention_waits_for_open_backfills",))
def retention_does_not_wait(original: Function) -> Function:
    """Retention goes on while chunks are read."""
    return lambda open_backfills: 1 << 62


@mutant("tistream:laid_over", invariants=(37,), catchers=("test_the_newest_base_of_each_key_counts_in_any_order",))
def the_last_base_counts(original: Function) -> Function:
    """Where bases overlap the oldest one counts."""

    def broken(cover: Any, added: Any) -> Any:
        turned = [replace(base, base_ts=-base.base_ts) for base in [*cover, *added]]
        return tuple(replace(base, base_ts=-base.base_ts) for base in original((), turned))

    return broken


@mutant("tistream:base_ts_of", invariants=(37,), catchers=("test_a_table_is_complete_at_the_highest_base_of_a_tiling",))
def complete_in_spite_of_holes(original: Function) -> Function:
    """A table with a hole counts as complete."""

    def broken(cover: Any, spans: Any) -> Any:
        found = original(cover, spans)
        return found if isinstance(found, int) else max((base.base_ts for base in cover), default=0)

    return broken
