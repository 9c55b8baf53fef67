"""From one manifest to the next: what is pending, what is told, what a restarted or inheriting task knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant


@mutant(
    "tistream_sorter:recovered_state",
    invariants=(7, 13),
    catchers=("test_a_pending_part_that_lost_rows_stops_the_task_and_loses_none",),
)
def pending_lost_at_recovery(original: Function) -> Function:
    """A restarted task forgets the pending parts of its manifest."""
    return lambda *arguments: replace(original(*arguments), pending=())


@mutant("tistream_sorter:_carried", invariants=(7, 13), catchers=("test_the_pool_is_what_was_committed",))
def pending_lost_at_checkpoint(original: Function) -> Function:
    """A manifest names only the pending parts that its own tick wrote."""
    return lambda *arguments: ()


@mutant(
    "tistream_sorter:needs_job",
    invariants=(5, 6, 9),
    catchers=("test_a_watermark_that_passes_pending_rows_flushes_them",),
)
def progress_above_what_is_pending(original: Function) -> Function:
    """Files without entries raise the progress though rows at or below it are pending."""
    return lambda state, files, *, sweep: original(replace(state, pending=()), files, sweep=sweep)


@mutant(
    "tistream_sorter:TaskMachine.is_idle",
    invariants=(24,),
    catchers=("test_a_tenant_for_which_no_file_arrives_writes_nothing",),
)
def idle_tenant_writes(original: Function) -> Function:
    """A tenant for which no file arrives writes a manifest now and then."""
    return lambda self: False


@mutant(
    "tistream_sorter:from_parents._clipped",
    invariants=(7, 13),
    catchers=("test_what_waits_is_carried_on_by_the_child_of_its_key",),
)
def heir_forgets_what_waits(original: Function) -> Function:
    """A child begins without its parents' pending parts."""
    return lambda parts, span: []


@mutant(
    "tistream_sorter:TaskState.progress_ts",
    invariants=(5,),
    catchers=("test_nothing_above_stop_at_is_flushed_or_told_while_files_go_on_being_taken",),
)
def stop_at_does_not_bind(original: Function) -> Function:
    """A task goes on past the stop_at that it has committed."""
    return lambda self: max(self.flushed_ts, self.slices.watermark())


@mutant(
    "tistream_sorter:TaskState.reported_ts",
    invariants=(5,),
    catchers=("test_it_tells_no_progress_above_a_row_that_is_in_no_manifest",),
)
def heir_tells_progress_above_what_it_flushed(original: Function) -> Function:
    """A task tells the progress of its slices, though rows below it are in no manifest as committed ones."""
    return lambda self: self.progress_ts


@mutant(
    "tistream_sorter:Claims._served_ts",
    invariants=(5,),
    catchers=("test_a_row_that_readers_may_have_passed_stops_its_task",),
)
def what_was_served_is_not_read(original: Function) -> Function:
    """Who holds a task next does not know what readers were told."""
    return lambda self, identity: 0


@mutant(
    "tistream_sorter:promoted",
    invariants=(5, 9),
    catchers=("test_a_segment_written_early_is_named_when_the_window_reaches_it_and_not_before",),
)
def early_segment_named_too_soon(original: Function) -> Function:
    """A segment that was written early is named before the window reaches its commit_ts."""
    return lambda parts, high: original(parts, 2**63 - 1)


@mutant(
    "tistream_sorter:SorterNode._stop",
    invariants=(17,),
    catchers=("test_what_nobody_foresaw_stops_its_own_task_only",),
)
def one_tenants_trouble_stops_all(original: Function) -> Function:
    """An error of one task ends the tick of all."""

    def broken(self: Any, held: Any, error: Exception) -> None:
        raise error

    return broken


@mutant(
    "tistream_sorter:retention._allowed",
    invariants=(19,),
    catchers=("test_a_node_whose_clock_is_years_ahead_deletes_no_more_than_others",),
)
def a_clock_ahead_empties_the_pool(original: Function) -> Function:
    """The age of rows is counted from this node's clock alone."""

    def broken(state: Any, now_ms: int) -> int:
        return min(state.flushed_ts, original(replace(state, flushed_ts=2**63 - 1), now_ms))

    return broken
