"""What consumers are told: how far a tenant can be read, which events, in which order, and from where on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant

PAGES = "test_any_page_ends_where_the_next_one_goes_on[1-None]"


@mutant(
    "tistream:TenantView._resolve",
    invariants=(14,),
    catchers=("test_a_task_that_cannot_be_read_holds_the_tenant",),
)
def api_minimum_over_reporting_tasks(original: Function) -> Function:
    """The tenant's resolved_ts is the minimum over the tasks that answered."""

    def broken(self: Any) -> None:
        lowest = min([self._replica.resolved_ts, *self._progress.values()])
        self._resolved_ts = max(self._resolved_ts, lowest)
        original(self)

    return broken


@mutant(
    "tistream:TenantView._resolve",
    invariants=(3, 18),
    catchers=("test_resolved_ts_never_goes_down",),
)
def api_resolved_goes_down(original: Function) -> Function:
    """A tenant's resolved_ts falls when a sorter starts again."""

    def broken(self: Any) -> None:
        self._resolved_ts = 0
        original(self)

    return broken


@mutant(
    "tistream:TenantView._read_logs",
    invariants=(18,),
    catchers=("test_a_tenant_that_a_restored_database_has_forgotten_keeps_its_rows_until_its_tasks_are_back",),
)
def reader_forgets_the_rows_of_a_forgotten_tenant(original: Function) -> Function:
    """A route without tasks drops the segments below resolved_ts."""

    def broken(self: Any, tasks: Any, *others: Any) -> Any:
        progress = original(self, tasks, *others)
        if not tasks:
            self._segments.update(())
        return progress

    return broken


@mutant(
    "tistream_api:DroppedAnswers.add",
    invariants=(21,),
    catchers=("test_an_unread_answer_that_the_garbage_collector_finds_stops_no_pull",),
)
def api_finalizer_takes_locks(original: Function) -> Function:
    """A dropped answer is released by the garbage collector, in whatever thread that runs."""
    return lambda _self, release: release()


@mutant(
    "tistream:Scan.__init__",
    invariants=(23,),
    catchers=("test_no_row_group_is_read_after_the_client_has_gone",),
)
def scan_without_its_client(original: Function) -> Function:
    """A scan whose client has gone reads the rest of its chunk."""

    def broken(*args: Any, **given: Any) -> None:
        given.pop("alive", None)
        original(*args, **given)

    return broken


@mutant(
    "tistream:lineage._reached",
    invariants=(6, 9),
    catchers=("test_progress_counts_once_the_manifest_that_it_rests_on_was_read",),
)
def api_resolved_before_manifests(original: Function) -> Function:
    """A sorter's progress counts though the manifest that it rests on was not read."""
    return lambda log, promise: max(log.flushed_ts, promise.progress_ts) if promise else original(log, promise)


@mutant(
    "tistream:SharedSegments.update",
    invariants=(7,),
    catchers=("test_a_split_is_crossed_child_by_child[old-route]",),
)
def reader_counts_a_shared_segment_twice(original: Function) -> Function:
    """A segment that two children list is read twice by the API."""

    def broken(self: Any, logs: Any) -> None:
        self.segments = tuple(segment for log in logs for segment in log.segments)

    return broken


@mutant(
    "tistream:exact_cut",
    invariants=(9, 18),
    catchers=("test_an_exact_cut_keeps_commit_ts_whole",),
)
def chunk_ends_inside_a_commit_ts(original: Function) -> Function:
    """A chunk ends inside a commit_ts: the rest of it is skipped."""

    def broken(commit_ts: Any, high: int, *rest: Any) -> Any:
        cut = original(commit_ts, high, *rest)
        return cut if cut.high == high else replace(cut, high=cut.high + 1)

    return broken


@mutant("tistream:Events.after", invariants=(18,), catchers=(PAGES,))
def cursor_one_event_late(original: Function) -> Function:
    """A pull that goes on inside a commit_ts leaves one event out."""

    def broken(self: Any, at: Any) -> Any:
        found = original(self, at)
        return found if at.place == 2 or not len(found) else found.between(1, len(found))

    return broken


@mutant("tistream:Scope.digest", invariants=(18, 20), catchers=("test_other_scopes_are_refused",))
def cursor_of_another_scope(original: Function) -> Function:
    """A cursor of another table, database or tenant is taken."""
    return lambda self: bytes(len(original(self)))


@mutant("tistream:cursor._check", invariants=(18,), catchers=("test_a_changed_letter_is_seen",))
def cursor_not_checked(original: Function) -> Function:
    """A cursor with a changed letter is taken."""
    return lambda body: bytes(len(original(body)))


@mutant(
    "tistream:TenantView.check_served",
    invariants=(19,),
    catchers=("test_a_pull_from_below_the_snapshot_is_refused_however_it_says_so",),
)
def cursor_not_checked_for_retention(original: Function) -> Function:
    """A pull from below what is kept is answered, with a gap."""
    return lambda self, ts: None


@mutant(
    "tistream:_Part._undecodable",
    invariants=(17,),
    catchers=("test_an_undecodable_row_ends_the_answer_below_it_and_refuses_the_next[0-budget0]",),
)
def undecodable_row_skipped(original: Function) -> Function:
    """A row that cannot be decoded is left out of the answer."""
    return lambda self, row, reason: None


FILTERED = "test_a_filtered_pull_has_the_events_that_fulfil_the_filter_with_and_without_statistics"


@mutant("tistream_api:_other_keys", invariants=(44,), catchers=(FILTERED,))
def filter_excludes_by_the_first_key_alone(original: Function) -> Function:
    """A row group is excluded if its first key is outside of what a condition may be true for."""

    def broken(statistics: Any, physical_id: int, ranges: Any) -> bool:
        if statistics.keys is None:
            return False
        return bool(original(replace(statistics, keys=(statistics.keys[0],) * 2), physical_id, ranges))

    return broken


@mutant("tistream:_Bounds._comparison", invariants=(44,), catchers=(FILTERED,))
def filter_takes_the_opposite_for_the_condition(original: Function) -> Function:
    """The keys for which a comparison can be false are taken for those for which it can be true."""
    return lambda self, node, *, truth: original(self, node, truth=not truth)


@mutant("tistream:chosen_events._operations", invariants=(44,), catchers=(FILTERED,))
def filter_takes_updates_for_inserts(original: Function) -> Function:
    """An update is an insert to a filter of operations."""
    return lambda choice, op, old_at: original(choice, op, old_at * 0 - 1)


@mutant(
    "tistream:chosen_events.chosen",
    invariants=(18, 44),
    catchers=("test_rows_before_a_column_was_added_end_the_answer_and_the_next_one_is_refused",),
)
def filter_passes_over_rows_that_it_cannot_judge(original: Function) -> Function:
    """Rows of a table that lacks a column of the condition are left out, and the pull goes on."""

    def broken(choice: Any, found: Any) -> Any:
        for batch in found:
            for one in original(choice, iter([batch])):
                yield replace(one, through=batch.through, last=False)

    return broken
