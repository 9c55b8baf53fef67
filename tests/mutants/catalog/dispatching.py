"""From the stores' files to the tasks: chains, routing, what is sent again, which source files may go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant


@mutant(
    "tistream_dispatcher:StoreChains._successor",
    invariants=(2,),
    catchers=("test_any_arrival_order_takes_every_file_once_and_in_chain_order",),
)
def missing_file_skipped(original: Function) -> Function:
    """The next file that is there is taken though the one before it is missing."""

    def broken(self: Any, place: int) -> Any:
        chain = self._chains[place]
        later = self._waiting.irange(chain.at_ts + 1, self._end(place) - 1)
        return original(self, place) or next((self._waiting[ts] for ts in later), None)

    return broken


@mutant(
    "tistream_dispatcher:StoreChains._may_start",
    invariants=(2,),
    catchers=("test_a_second_first_file_that_is_not_fresh_breaks_the_chain",),
)
def stale_chain_restarts(original: Function) -> Function:
    """Any file with prev_ts 0 begins a new chain, though its watermarks are no scans."""

    def broken(self: Any, file: Any) -> bool:
        return bool(original(self, file if file.prev_ts else replace(file, fresh=True)))

    return broken


@mutant(
    "tistream_dispatcher:Router.watermarks",
    invariants=(4,),
    catchers=("test_watermarks_go_to_every_task_that_they_overlap_clipped",),
)
def watermarks_not_clipped(original: Function) -> Function:
    """A watermark row reaches every task with its whole span."""

    def broken(self: Any, rows: Any) -> Any:
        import pyarrow as pa

        routed = [original(self, rows.slice(0, 0))]
        for at in range(rows.num_rows):
            row = rows.slice(at, 1)
            one = original(self, row)
            for name in ("start_key", "end_key"):
                place = one.schema.get_field_index(name)
                whole = pa.array(row[name].to_pylist() * one.num_rows, one.schema.field(place).type)
                one = one.set_column(place, one.schema.field(place), whole)
            routed.append(one)
        return pa.concat_tables(routed)

    return broken


@mutant(
    "tistream_dispatcher:Receivers.lowest_positions",
    invariants=(13, 14),
    catchers=("test_the_common_position_is_the_least_and_leaves_out_what_some_task_has_not_begun",),
)
def positions_of_the_fastest_task(original: Function) -> Function:
    """A restarted dispatcher goes on where the fastest task is."""

    def broken(self: Any, store_id: int) -> Any:
        return tuple(
            replace(one, at_ts=max(self.at(task, store_id, one.first_ts) for task in self.received))
            for one in original(self, store_id)
        )

    return broken


@mutant(
    "tistream_dispatcher:FileWindow.must_reread",
    invariants=(13, 21),
    catchers=("test_a_task_that_lost_what_is_not_here_any_more_is_behind",),
)
def lost_files_not_sent_again(original: Function) -> Function:
    """What a restarted sorter has lost is not read again."""
    return lambda self, receivers, store_id, taken: original(self, receivers, store_id, taken) and False


@mutant(
    "tistream_dispatcher:FileWindow.full",
    invariants=(23,),
    catchers=("test_batches_and_the_window_are_bounded",),
)
def window_unbounded(original: Function) -> Function:
    """The dispatcher reads on however far the slowest task is behind."""
    return lambda self: False


@mutant(
    "tistream_dispatcher:consumed.consumed",
    invariants=(12, 14),
    catchers=("test_no_file_up_to_the_mark_is_needed", "TestCollecting"),
)
def collect_consumed_by_the_fastest(original: Function) -> Function:
    """Source files are deleted as far as the fastest task is."""

    def broken(tasks: Any, store_id: int) -> Any:
        told = list(tasks)
        alone = (original([task], store_id) for task in told) if None not in told else ()
        marks = [mark for mark in alone if mark is not None]
        return max(marks, key=lambda mark: mark.through, default=None)

    return broken


@mutant(
    "tistream_dispatcher:consumed.consumed",
    invariants=(12,),
    catchers=("test_no_file_up_to_the_mark_is_needed", "TestCollecting"),
)
def collect_deleted_though_pointed_into(original: Function) -> Function:
    """Source files that pending rows point into are deleted."""
    return lambda tasks, store_id: original([task and replace(task, pointed={}) for task in tasks], store_id)


@mutant(
    "tistream_dispatcher:Receivers.set_status",
    invariants=(12, 13),
    catchers=("test_files_may_go_as_far_as_a_manifest_carries_them", "TestCollecting"),
)
def collect_received_taken_for_consumed(original: Function) -> Function:
    """Source files are deleted as soon as sorters have received them."""
    return lambda self, status, epoch: original(self, status.model_copy(update={"durable": status.received}), epoch)


@mutant(
    "tistream_dispatcher:ReadFiles.__contains__",
    invariants=(2, 12),
    catchers=("test_what_nobody_has_taken_stays_to_be_seen",),
)
def collect_strangers_deleted(original: Function) -> Function:
    """A file that nobody has taken is deleted, because later ones were taken."""
    return lambda self, ts: ts <= self.through
