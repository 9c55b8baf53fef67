"""When a watermark counts: the slices of a task's span, and what child tasks take over of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant

ANY_COMMIT = "test_no_watermark_passes_a_commit_that_has_not_arrived"
MERGE = "test_a_merge_waits_for_the_very_last_entry_of_its_source"


@mutant("tistream_sorter:SliceMap._connects", invariants=(2,), catchers=(ANY_COMMIT,))
def gap_skipped(original: Function) -> Function:
    """A row of the slice's own region connects across a gap in its log."""

    def broken(self: Any, at: int, row: Any) -> bool:
        return row.region_id == self.states()[at].region_id or original(self, at, row)

    return broken


@mutant(
    "tistream_sorter:SliceMap._raise",
    invariants=(1, 2),
    catchers=("test_an_older_epoch_may_raise_resolved_ts_and_nothing_else",),
)
def older_epoch_connects(original: Function) -> Function:
    """A row of an older region version is taken like one of the slice's own."""
    return lambda self, at, row, seq, history: self._connect(at, row, seq, history)


@mutant("tistream_sorter:SliceMap._connects", invariants=(1, 2), catchers=(MERGE,))
def split_parent_one_entry_short(original: Function) -> Function:
    """A split-off region connects when its parent lacks the very last entry."""
    return lambda self, at, row: original(self, at, replace(row, after=tuple((r, i - 1) for r, i in row.after)))


@mutant(
    "tistream_sorter:SliceMap._connects",
    invariants=(1, 2),
    catchers=("test_a_scan_from_above_waits_beside_others_too",),
)
def scan_from_above_what_is_covered(original: Function) -> Function:
    """A scan counts though it begins above what the slice is covered up to."""
    return lambda self, at, row: row.base_ts is not None or original(self, at, row)


@mutant("tistream_sorter:SliceMap._connect", invariants=(3,), catchers=(ANY_COMMIT,))
def resolved_goes_down(original: Function) -> Function:
    """A slice takes a lower resolved_ts from a row that connects."""

    def broken(self: Any, at: int, row: Any, seq: int, history: Any) -> None:
        original(self, at, row, seq, history)
        self._set("_resolved", at, row.resolved_ts)

    return broken


@mutant("tistream_sorter:SliceMap.watermark", invariants=(1, 14), catchers=(MERGE, ANY_COMMIT))
def highest_slice_is_the_watermark(original: Function) -> Function:
    """The watermark is the maximum over the slices, not the minimum."""
    return lambda self: max(one.resolved_ts for one in self.states())


@mutant("tistream_sorter:SliceMap.watermark", invariants=(1, 14), catchers=(ANY_COMMIT,))
def minimum_over_reporting_regions(original: Function) -> Function:
    """Slices whose region has not reported yet do not hold the watermark."""

    def broken(self: Any) -> int:
        return min((one.resolved_ts for one in self.states() if one.region_id >= 0), default=original(self))

    return broken


@mutant("tistream_sorter:WaitingRows.and_also", invariants=(21,), catchers=(MERGE,))
def waiting_rows_forgotten(original: Function) -> Function:
    """A row that does not connect at once never counts."""
    return lambda self, *others: self


@mutant("tistream_sorter:WaitingRows.to_table", invariants=(13, 21), catchers=("test_tables_round_trip",))
def waiting_rows_lost_by_a_restart(original: Function) -> Function:
    """A manifest does not restate the rows that wait."""
    return lambda self: original(self).slice(0, 0)


@mutant(
    "tistream_sorter:read_order",
    invariants=(1, 14),
    catchers=("test_children_that_do_not_make_up_the_task_are_refused_and_it_goes_on",),
)
def children_with_a_gap(original: Function) -> Function:
    """A task is sealed in favour of children that leave out some of its keys."""

    def broken(order: Any, identity: Any) -> Any:
        from tistream.errors import InvalidRequest
        from tistream_sorter.task.seal_orders import FittingOrder, _span

        try:
            return original(order, identity)
        except InvalidRequest:
            return FittingOrder(
                tuple((child.task_id, _span(child)) for child in order.children), order.stop_at, order.final
            )

    return broken


@mutant(
    "tistream_sorter:positions.common",
    invariants=(2, 7, 13),
    catchers=("test_files_come_again_from_where_every_parent_has_been",),
)
def heir_takes_the_higher_position(original: Function) -> Function:
    """A child of several goes on behind the file that the fastest parent has taken."""

    def broken(several: Any, flushed_ts: int) -> Any:
        highest: dict[tuple[int, int], int] = {}
        for store, chain in ((store, chain) for one in several for store, chains in one.items() for chain in chains):
            place = (store, chain.first_ts)
            highest[place] = max(chain.at_ts, highest.get(place, 0))
        return {
            store: tuple(replace(chain, at_ts=highest[store, chain.first_ts]) for chain in chains)
            for store, chains in original(several, flushed_ts).items()
        }

    return broken
