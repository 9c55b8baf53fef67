"""Changefeeds into Iceberg tables: each row once, the newest worker alone, columns by their ids."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Function, mutant

KILLED = "test_each_change_is_there_once_whoever_is_killed_or_wakes_up_late"


@mutant("tistream_changefeed:Lake.commit", invariants=(40,), catchers=(f"{KILLED}[0]",))
def a_stale_writer_commits_on_top_of_what_is_there(original: Function) -> Function:
    """A commit is repeated on the newest snapshot, as pyiceberg's own retries do."""

    def broken(self: Any, table: Any, change: Any) -> None:
        table.refresh()
        original(self, table, change)

    return broken


@mutant(
    "tistream_changefeed:above",
    invariants=(38,),
    catchers=("test_rows_that_a_table_has_are_not_written_again_after_a_crash",),
)
def the_progress_is_not_in_the_commit(original: Function) -> Function:
    """A table's own cursor is not looked at: only the progress that is committed after it."""

    return lambda batches, commit_ts, key=None: batches


@mutant(
    "tistream_changefeed:LakeTables.fence",
    invariants=(40,),
    catchers=("test_a_worker_that_wakes_up_in_the_middle_of_a_window_commits_nothing_more",),
)
def tables_of_a_begun_window_are_not_fenced(original: Function) -> Function:
    """Only the feed's own table gets the fence of a worker that takes over."""

    return lambda self, identifier, at, *, loading: None


@mutant(
    "tistream_changefeed:_field_id",
    invariants=(43,),
    catchers=("test_a_column_keeps_its_field_through_renames_and_one_that_is_added_again_is_another",),
)
def fields_are_found_by_name(original: Function) -> Function:
    """A column of Iceberg is the one with the same name, not the one with TiDB's id."""

    def broken(now: Any, column: Any, columns: Any, before: Any) -> int:
        named = {one.name: one.field_id for one in now.schema.fields}
        found: int = named.get(column.name, original(now, column, columns, before))
        return found

    return broken


@mutant(
    "tistream_changefeed:CreatedTables.check",
    invariants=(38,),
    catchers=("test_a_table_that_goes_away_while_no_worker_runs_is_not_created_again_unnoticed",),
)
def a_table_that_is_gone_is_created_again(original: Function) -> Function:
    """The ids of the tables that the feed has created are not looked at."""

    return lambda self, identifier, uuid: None


@mutant(
    "tistream_changefeed:CreatedTables.shows_newest",
    invariants=(38,),
    catchers=("test_a_table_that_another_program_has_rolled_back_stops_the_feed",),
)
def a_table_that_was_rolled_back_is_written_on(original: Function) -> Function:
    """The newest commit of the feed is not looked for in the main branch."""

    return lambda self, uuid, newest: True


@mutant(
    "tistream_changefeed:marks.newest",
    invariants=(38,),
    catchers=("test_rows_are_there_once_though_another_program_expires_every_snapshot_of_the_feed",),
)
def a_cursor_expires_with_its_snapshot(original: Function) -> Function:
    """The cursor of a table is in its snapshots alone."""

    return lambda told, properties, tenant, where: original(told, {}, tenant, where)


@mutant(
    "tistream_changefeed:LetterTable._there",
    invariants=(38,),
    catchers=("test_a_letter_is_written_once_and_does_not_end_the_window_of_the_rows_beside_it",),
)
def a_letter_is_written_again_after_a_crash(original: Function) -> Function:
    """The letters that are there are not looked at."""

    return lambda self, table, least_ts: set()


@mutant(
    "tistream_changefeed:Deltas._files",
    invariants=(38,),
    catchers=("test_small_changes_wait_in_the_delta_and_a_reader_may_open_both_tables_in_any_order",),
)
def a_delta_forgets_rows_when_the_table_has_them(original: Function) -> Function:
    """A reader that has opened the table before it took the rows does not find them in the delta."""

    def broken(self: Any, table: Any, delta: Any) -> Any:
        found = original(self, table, delta)
        return found._replace(old=[*found.old, *found.taken], taken=[])

    return broken


@mutant(
    "tistream_changefeed:Deltas.settle",
    invariants=(38,),
    catchers=("test_ddls_come_to_a_table_and_its_delta_though_the_worker_is_killed[None]",),
)
def a_ddl_comes_before_the_rows_that_wait(original: Function) -> Function:
    """The table does not take the rows of its delta before a DDL, which empties the delta."""

    return lambda self, version, ts: None


@mutant(
    "tistream_changefeed:LakeDdls._rows_again",
    invariants=(38,),
    catchers=("test_a_new_version_of_a_table_has_all_rows_though_the_worker_is_killed[None]",),
)
def a_new_version_begins_without_rows(original: Function) -> Function:
    """The rows from before the DDL are not read again."""

    return lambda self, *_: iter(())


@mutant(
    "tistream_changefeed:reached",
    invariants=(38,),
    catchers=("test_a_table_that_has_stopped_gets_each_row_once_when_it_goes_on[0]",),
)
def a_table_that_has_stopped_has_the_cursor_of_the_feed(original: Function) -> Function:
    """Its commits say that it has the events that were not sent."""

    return lambda progress, source: progress.at


@mutant(
    "tistream_changefeed:moved_ids",
    invariants=(38,),
    catchers=("test_rows_of_partitions_come_and_go_though_the_worker_is_killed[None-0]",),
)
def partitions_go_without_their_rows(original: Function) -> Function:
    """A DDL of partitions changes no rows."""

    return lambda action, before, after: None
