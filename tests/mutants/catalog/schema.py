"""The schema over time, and which sorters its progress rests on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant


@mutant("tistream:Timeline.runs", invariants=(16,), catchers=("test_runs_cut_the_window_exactly",))
def schema_at_not_before(original: Function) -> Function:
    """A row is decoded with the schema at its commit_ts, not strictly before it."""

    def broken(self: Any, low: int, high: int) -> Any:
        for start, end, value in original(self, low, high):
            if end - 1 > start:
                yield start, end - 1, value
            yield max(start, end - 1), end, self.at(end)

    return broken


@mutant("tistream:History.ddl_events", invariants=(16, 18), catchers=("test_filters_by_name_and_window",))
def ddl_window_low_inclusive(original: Function) -> Function:
    """A DDL at the start of a window is sent again."""
    return lambda self, low, *rest, **options: original(self, low - 1, *rest, **options)


@mutant(
    "tistream_schema:expected_tasks.promises",
    invariants=(11, 15),
    catchers=("test_an_older_holder_is_not_listened_to",),
)
def registry_hears_an_old_holder(original: Function) -> Function:
    """The registry believes a sorter that holds a task under an older epoch."""
    return lambda tasks, statuses: original([replace(task, task_epoch=0) for task in tasks], statuses)


@mutant(
    "tistream_schema:DurableLog._put",
    invariants=(16, 22),
    catchers=("test_the_second_writer_takes_what_the_first_wrote",),
)
def registry_log_forked(original: Function) -> Function:
    """A second registry overwrites what the first made durable."""

    def broken(self: Any, object_: Any) -> Any:
        from tistream.storage import layout

        self.objects.delete(layout.schema_log(self.tenant, object_.number))
        return original(self, object_)

    return broken
