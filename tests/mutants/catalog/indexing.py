"""The version index: what a run has, what is folded, which segments may go, what a merge may cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant

HISTORIES = "test_reads_of_the_index_at_any_ts_are_what_was_committed"
REFUSED = "test_an_index_that_breaks_a_rule_is_refused"


@mutant("tistream:check_index", invariants=(25, 27, 28), catchers=(REFUSED,))
def any_index_accepted(original: Function) -> Function:
    """Readers and holders take whatever index a manifest states."""
    return lambda index, span, flushed_ts, before: None


@mutant("tistream:_check_part", invariants=(25,), catchers=(REFUSED,))
def windows_that_overlap(original: Function) -> Function:
    """Windows and objects of a part may overlap."""
    return lambda part: None


@mutant("tistream_sorter:folded", invariants=(25,), catchers=("test_a_fold_keeps_the_newest_put",))
def deletes_in_the_base(original: Function) -> Function:
    """A base run keeps deletes."""

    def broken(rows: Any) -> Any:
        import pyarrow as pa

        from tistream_sorter.match.versions import first_of_key

        return rows.filter(pa.array(first_of_key(rows.column("key"))))

    return broken


@mutant("tistream_sorter:version_order", invariants=(25,), catchers=("test_any_keys_are_ordered_as_bytes",))
def oldest_version_first(original: Function) -> Function:
    """Versions of a key are ordered by rising commit_ts."""
    return lambda keys, commit_ts: original(keys, -commit_ts)


@mutant("tistream_sorter:_order_unsure", invariants=(25,), catchers=("test_any_keys_are_ordered_as_bytes",))
def long_keys_by_their_first_bytes(original: Function) -> Function:
    """Keys whose first bytes are equal are not compared as a whole."""
    return lambda *arguments: None


@mutant(
    "tistream_sorter:index_merge._read",
    invariants=(25,),
    catchers=("test_rows_of_other_tasks_are_left_out", "test_what_does_not_fit_into_memory_is_merged_in_shards"),
)
def keys_of_others_taken(original: Function) -> Function:
    """A merge takes all keys of its inputs, whatever the span of the part and of the shard."""

    def broken(objects: Any, unit: Any, source: Any) -> Any:
        from tistream.model.span import WHOLE

        return original(objects, replace(unit, span=WHOLE, shard=None), source)

    return broken


@mutant("tistream_sorter:retention.retained", invariants=(25, 26), catchers=(HISTORIES,))
def segments_dropped_before_they_are_indexed(original: Function) -> Function:
    """Retention does not wait for the index."""

    def broken(state: Any, now_ms: int) -> Any:
        found = original(replace(state, retention=replace(state.retention, indexed=False)), now_ms)
        return replace(found, retention=state.retention, index=state.index)

    return broken


@mutant(
    "tistream_sorter:_Planner._split",
    invariants=(28,),
    catchers=("test_runs_below_the_floor_are_folded_once_they_are_a_fifth_of_the_rest",),
)
def folded_above_the_floor(original: Function) -> Function:
    """Everything is folded, whatever is retained."""
    return lambda self, part: (part.by_window(), [])


@mutant(
    "tistream_sorter:_Planner._affordable",
    invariants=(25,),
    catchers=(
        "test_what_the_budget_cannot_pay_waits",
        "test_the_index_writes_at_most_four_bytes_for_each_byte_of_segments",
    ),
)
def merges_without_a_budget(original: Function) -> Function:
    """Merges cost nothing."""
    return lambda self, unit: True


@mutant(
    "tistream_sorter:index_unit",
    invariants=(27,),
    catchers=("test_age_counts_from_the_earlier_clock",),
)
def age_by_this_nodes_clock(original: Function) -> Function:
    """The upstream's clock does not count for the age of rows."""

    def broken(state: Any, rules: Any, now_ms: int, nonce: str, skip: frozenset[str] = frozenset()) -> Any:
        from tistream.model.ts import from_physical_ms

        return original(replace(state, flushed_ts=from_physical_ms(now_ms)), rules, now_ms, nonce, skip)

    return broken


@mutant(
    "tistream_sorter:version_index._fits",
    invariants=(25,),
    catchers=("test_parts_stay_apart_while_an_object_reaches_over_their_bound",),
)
def parts_joined_over_foreign_keys(original: Function) -> Function:
    """Parts become one although an object has keys of the other part."""
    return lambda run, span: True


@mutant("tistream_sorter:gc_plan.object_keys", invariants=(10, 12), catchers=(HISTORIES,))
def runs_are_garbage(original: Function) -> Function:
    """What an index names counts as named by no manifest."""
    return lambda pending, live, index: original(pending, live, ())
