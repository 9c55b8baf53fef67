"""Log backups as a source: the rules that look right and are not (docs/log-backup.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant

REPLAYED = "test_each_release_has_exactly_the_changes_of_its_window"


def _flushes(source: Any) -> list[Any]:
    """The metadata that the bucket has now."""
    return [source.bucket.metadata(name) for name, _ in source.bucket.metas("")]


def _newest_by_store(found: list[Any], of: Callable[[Any], int]) -> int:
    newest: dict[int, int] = {}
    for one in found:
        newest[one.store_id] = max(newest.get(one.store_id, 0), of(one))
    return min(newest.values(), default=0)


@mutant("tistream_ingest:SourceRunner._checkpoint", invariants=(29, 33), catchers=(REPLAYED,))
def highest_resolved_ts_as_watermark(original: Function) -> Function:
    """The highest resolved_ts of metadata is taken as the watermark."""
    return lambda self: max((one.resolved_ts for one in _flushes(self)), default=0)


@mutant("tistream_ingest:SourceRunner._checkpoint", invariants=(29, 33), catchers=(REPLAYED,))
def lowest_max_ts_over_stores_as_watermark(original: Function) -> Function:
    """The lowest of the stores' newest max_ts is taken as the watermark."""
    return lambda self: _newest_by_store(_flushes(self), lambda one: one.max_ts)


@mutant("tistream_ingest:SourceRunner._checkpoint", invariants=(29, 33), catchers=(REPLAYED,))
def lowest_resolved_ts_over_stores_as_watermark(original: Function) -> Function:
    """The lowest of the stores' newest resolved_ts is taken as the watermark."""
    return lambda self: _newest_by_store(_flushes(self), lambda one: one.resolved_ts)


@mutant(
    "tistream_ingest:SourceRunner._decide",
    invariants=(29,),
    catchers=("test_flushes_that_come_while_the_bucket_is_listed_lose_nothing",),
)
def list_before_checkpoint(original: Function) -> Function:
    """Metadata is listed before the checkpoint is read."""

    def broken(self: Any) -> None:
        self._load(self._catalog)
        loads, kind = type(self)._load, type(self)
        kind._load = lambda *_: None
        try:
            original(self)
        finally:
            kind._load = loads

    return broken


@mutant(
    "tistream_ingest:SourceRunner._check_safe_point",
    invariants=(29,),
    catchers=("test_a_log_that_was_truncated_while_the_source_was_away_is_no_empty_log",),
)
def truncation_not_noticed(original: Function) -> Function:
    """The safe point is not compared with the released ts."""
    return lambda self, low: None


@mutant("tistream_ingest:Catalog._matters", invariants=(30,), catchers=("test_a_physical_delete_is_no_change",))
def physical_deletes_are_read(original: Function) -> Function:
    """Slices of physical deletes are read as if they had changes of SQL."""
    return lambda self, one, *, fresh: original(self, replace(one, put=True), fresh=fresh)


@mutant(
    "tistream_ingest:joining.distinct",
    invariants=(30,),
    catchers=("test_a_rewritten_record_and_a_repeat_are_the_same_change",),
)
def rewritten_record_as_new_commit(original: Function) -> Function:
    """A record that was rewritten, or repeated by a scan, is another change."""

    def broken(tables: list[Any]) -> Any:
        import numpy as np

        from tistream.model.version_order import version_order

        found = original(tables)
        order = version_order(found.read["key"], found.read["commit_ts"].to_numpy())
        return replace(found, at=order.rows, same_key=order.same_key, value_at=np.copy(order.rows))

    return broken


@mutant(
    "tistream_ingest:taking.take",
    invariants=(31,),
    catchers=("test_a_value_may_come_with_an_earlier_flush_of_any_store_or_a_later_one",),
)
def values_dropped_after_a_flush(original: Function) -> Function:
    """Values are looked for only in the flushes that have the window's commits."""

    def broken(catalog: Any, low: int, high: int) -> Any:
        found = original(catalog, low, high)
        if not hasattr(found, "values"):
            return found
        of = {one: name for name, one in catalog.slices()}
        names = {of[one] for one in found.writes}
        return replace(found, values=tuple(one for one in found.values if of[one] in names))

    return broken


@mutant(
    "tistream_ingest:joining.with_values",
    invariants=(31,),
    catchers=("test_a_value_that_is_missing_at_its_checkpoint_stops_the_source",),
)
def missing_value_as_null(original: Function) -> Function:
    """A value that is missing at its checkpoint is written as null."""

    def broken(changes: Any, values: Any) -> Any:
        from tistream.errors import InvariantBroken

        try:
            return original(changes, values)
        except InvariantBroken:
            return changes

    return broken


@mutant(
    "tistream_ingest:shard_io._check_late",
    invariants=(5,),
    catchers=("test_a_late_commit_stops_the_source_and_a_late_repeat_does_not",),
)
def late_commits_dropped(original: Function) -> Function:
    """Commits at or below the released ts are dropped unseen."""
    return lambda *_: None


@mutant(
    "tistream:ReleaseLog.decide",
    invariants=(30, 32),
    catchers=("test_two_adapters_at_once_do_not_fork_the_chain",),
)
def decided_without_a_condition(original: Function) -> Function:
    """A record that is there is overwritten."""

    def broken(self: Any, release: Any) -> Any:
        from tistream.logbackup import release as records
        from tistream.storage import layout

        self.objects.put(layout.log_release(self.tenant, release.number), records.encode(release))
        return release

    return broken


@mutant(
    "tistream_ingest:joining.in_order",
    invariants=(32,),
    catchers=("test_a_large_window_is_cut_between_commits_and_a_large_commit_by_keys", REPLAYED),
)
def files_in_the_order_of_shards(original: Function) -> Function:
    """Rows of a file stay in the order in which shards gave them."""
    return lambda rows: rows


@mutant(
    "tistream_ingest:SourceRunner._recover",
    invariants=(30, 32),
    catchers=("test_a_restart_writes_what_was_decided_and_not_written",),
)
def restart_after_the_newest_record(original: Function) -> Function:
    """A restart takes the newest record as done."""

    def broken(self: Any) -> None:
        original(self)
        if self._open is not None:
            self._last, self._open = self._open[0], None
            self._catalog.released_ts = self._last.high

    return broken


@mutant(
    "tistream_ingest:push_file._marked",
    invariants=(25,),
    catchers=("test_a_restore_beside_the_log_is_marked_once_in_the_release_that_passes_its_end",),
)
def restores_are_not_marked(original: Function) -> Function:
    """Tables that `br restore` wrote into beside the log are served without what was restored."""
    return lambda release, piece, rows: rows
