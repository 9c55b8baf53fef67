"""Changefeeds: what is in a sink once and in order, who may write it, and what users are told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant

LIFE = "test_each_event_is_sent_once_and_in_order_whatever_fails"


@mutant("tistream_changefeed:Shard.resolved_ts_due", invariants=(42,), catchers=(f"{LIFE}[0]",))
def feed_resolved_before_rows(original: Function) -> Function:
    """A resolved message names a ts whose rows are not sent yet."""

    def broken(self: Any, until: Any, now_ms: int, *, reaches_end: bool) -> int | None:
        found: int | None = original(self, until, now_ms, reaches_end=reaches_end)
        return None if found is None else min(found + 20, self.order.end_ts)

    return broken


@mutant("tistream_changefeed:to_partitions", invariants=(43,), catchers=(f"{LIFE}[0]",))
def feed_ddl_to_one_partition(original: Function) -> Function:
    """A DDL of a protocol that sends it everywhere goes to the first partition alone."""
    return lambda message, count, topic: original(message, count, topic)[:1]


@mutant("tistream_changefeed:everywhere", invariants=(42,), catchers=(f"{LIFE}[0]",))
def feed_resolved_to_the_first_topic(original: Function) -> Function:
    """A resolved message goes to the partitions of one topic alone."""
    return lambda message, topics: original(message, dict(sorted(topics.items())[:1]))


@mutant("tistream_changefeed:KafkaSink.write", invariants=(38, 39), catchers=(f"{LIFE}[0]",))
def feed_progress_outside_the_transaction(original: Function) -> Function:
    """Rows are committed first, and the progress in a transaction of its own."""

    def broken(self: Any, transaction: Any) -> bool:
        old = getattr(self, "_old_progress", None)
        if old is not None and len(transaction.rows):
            original(self, replace(transaction, progress=old))
            original(self, replace(transaction, rows=transaction.rows.between(0, 0), marks=()))
        else:
            original(self, transaction)
        self._old_progress = transaction.progress
        return True

    return broken


@mutant("tistream_changefeed:Outgoing.fingerprints", invariants=(39,), catchers=(f"{LIFE}[0]",))
def feed_fingerprint_without_a_row(original: Function) -> Function:
    """The fingerprint that is stored with a window leaves out its last row."""
    return lambda self: original(self.between(0, max(0, len(self) - 1)))


@mutant("tistream_changefeed:KafkaSink._new_producer", invariants=(40,), catchers=(f"{LIFE}[3]",))
def feed_id_of_each_holder(original: Function) -> Function:
    """Each holder has a transactional id of its own, so the broker fences none."""
    return lambda self, name: original(self, f"{name}-{self._order.fence.epoch}")


@mutant(
    "tistream_changefeed:producer_ids.written_id",
    invariants=(40,),
    catchers=("test_a_holder_of_an_earlier_release_that_wakes_up_writes_nothing",),
)
def feed_begins_under_the_dotted_id(original: Function) -> Function:
    """A feed begins under its dotted id, which a holder of an earlier release does not fence."""
    from tistream_changefeed.sinks.kafka.producer_ids import shard_id

    return lambda order, found: shard_id(order) if found is None else original(order, found)


@mutant(
    "tistream_changefeed:taken_over",
    invariants=(40,),
    catchers=("test_only_the_owner_and_a_newer_holder_go_on",),
)
def feed_stale_epoch_goes_on(original: Function) -> Function:
    """A holder goes on though a newer one has written."""

    def broken(found: Any, fence: Any, start_ts: int, where: str) -> Any:
        newer = found is not None and found.fence > fence
        return original(replace(found, fence=fence) if newer else found, fence, start_ts, where)

    return broken


@mutant("tistream_changefeed:KafkaSink._stored", invariants=(38, 40), catchers=(f"{LIFE}[1]",))
def feed_progress_read_before_the_fence(original: Function) -> Function:
    """The progress that was read before the old holder was fenced counts."""

    def broken(self: Any, *, wait: bool) -> Any:
        if not hasattr(self, "_before_fence"):
            self._before_fence = original(self, wait=wait)
        return self._before_fence

    return broken


@mutant("tistream_changefeed:Shard.opened", invariants=(38,), catchers=(f"{LIFE}[5]",))
def feed_goes_on_from_memory(original: Function) -> Function:
    """After a failure a holder goes on behind what the sink has acknowledged to it, whatever the sink has."""

    def broken(self: Any, found: Any, ends: Any, where: str) -> Any:
        acked = self.acked
        return original(self, found if acked is None else acked, ends, where)

    return broken


@mutant(
    "tistream_changefeed:Shard.acked",
    invariants=(39,),
    catchers=("test_only_what_the_sink_has_acknowledged_is_reported",),
)
def feed_checkpoint_of_what_is_planned(original: Function) -> Function:
    """The checkpoint is what was sent, not what the sink has acknowledged."""
    return lambda self: self._planned or original(self)


@mutant(
    "tistream_changefeed:segments.windows",
    invariants=(38, 48),
    catchers=("test_windows_end_between_commit_ts_and_are_cut_by_bytes",),
)
def feed_windows_end_anywhere(original: Function) -> Function:
    """A window ends inside a commit_ts, and the position after it counts the whole."""

    def broken(commit_ts: Any, sizes: Any, limit: int, until: Any) -> Any:
        from tistream.read.cursor import Position

        for one in original(commit_ts, sizes, limit, until):
            if one.end - one.start < 2:
                yield one
                continue
            middle = (one.start + one.end) // 2
            yield replace(one, end=middle, until=Position(int(commit_ts[middle - 1])))
            yield replace(one, start=middle)

    return broken


@mutant(
    "tistream_changefeed:segments._before",
    invariants=(38, 43),
    catchers=(
        "test_rows_up_to_a_ddl_precede_it_and_no_other_follows_below_it",
        "test_a_reader_goes_on_at_the_end_of_any_segment_without_a_gap_or_a_repeat",
    ),
)
def feed_progress_passes_a_ddl(original: Function) -> Function:
    """The rows before a DDL are committed with a position behind it."""
    return lambda events, at, start: events.position(at)


@mutant(
    "tistream_changefeed:check_kept",
    invariants=(38,),
    catchers=("test_a_log_that_is_shorter_than_what_was_sent_stops_the_feed",),
)
def feed_lost_messages_unnoticed(original: Function) -> Function:
    """A feed goes on though its topic has lost messages."""
    return lambda progress, ends: None


@mutant(
    "tistream_changefeed:kept_ends",
    invariants=(38,),
    catchers=("test_a_topic_that_was_made_anew_and_filled_by_others_is_noticed",),
)
def feed_new_topic_unnoticed(original: Function) -> Function:
    """What others have written into a topic that was created again counts as what the feed has sent."""
    return lambda progress, ids, ends: dict(ends)


@mutant(
    "tistream_changefeed:NewRows.concerns",
    invariants=(51,),
    catchers=("test_rows_of_other_tables_do_not_wake_a_shard_that_rests",),
)
def feed_rests_over_its_rows(original: Function) -> Function:
    """A shard that rests is not told of its rows."""
    return lambda self, scope: False


@mutant(
    "tistream_changefeed:pause_ms",
    invariants=(46,),
    catchers=("test_a_feed_that_cannot_write_waits_longer_each_time_and_says_why",),
)
def feed_tries_again_at_once(original: Function) -> Function:
    """A feed whose sink is dead tries again without a pause."""
    return lambda failures, rng: 0


@mutant(
    "tistream_meta:HeldShard.held_by",
    invariants=(40,),
    catchers=("test_a_worker_that_starts_anew_takes_its_feeds_at_once",),
)
def feed_epoch_outlives_its_process(original: Function) -> Function:
    """A new start of a worker goes on under the epoch of the one before."""
    return lambda self, node_id, instance: self.node_id == node_id


@mutant(
    "tistream_meta:HeldShard.free",
    invariants=(40,),
    catchers=("test_workers_share_the_feeds_and_each_holds_one_epoch",),
)
def feed_taken_under_a_lease(original: Function) -> Function:
    """A worker takes a shard whose lease another holds."""
    return lambda self, node_id, instance, now_ms: not self.of(node_id, instance)


@mutant(
    "tistream_meta:feed_book._reported",
    invariants=(39,),
    catchers=("test_the_checkpoint_never_goes_down_and_idle_beats_write_nothing",),
)
def feed_checkpoint_goes_down(original: Function) -> Function:
    """What a user sees as the checkpoint falls when a new holder reports."""

    def broken(shard: Any, feed: Any, report: Any, now_ms: int) -> Any:
        return original(replace(shard, checkpoint_ts=report.checkpoint_ts or 0), feed, report, now_ms)

    return broken


@mutant(
    "tistream_changefeed:split._order",
    invariants=(41,),
    catchers=("test_golden_events_have_ticdcs_order_in_each_table_and_transaction",),
)
def feed_puts_before_deletes(original: Function) -> Function:
    """The puts of a transaction precede its deletes."""

    def broken(parts: Any, commit_ts: Any) -> Any:
        return original([replace(part, kind=-part.kind) for part in parts], commit_ts)

    return broken


@mutant(
    "tistream_changefeed:FeedFilter.rows",
    invariants=(44,),
    catchers=("test_deletes_and_puts_that_are_read_apart_give_the_same_events",),
)
def feed_filter_sees_halves(original: Function) -> Function:
    """A filter takes the half of an update that is read apart for a delete or an insert."""

    def broken(self: Any, batch: Any) -> Any:
        import numpy as np

        from tistream_changefeed.rows.row_batch import DELETE_HALF, PUT_HALF
        from tistream_changefeed.rows.window import taken

        if batch.half is None:
            return original(self, batch)
        new_at = np.where(batch.half == DELETE_HALF, -1, batch.new_at)
        old_at = np.where(batch.half == PUT_HALF, -1, batch.old_at)
        sent = original(self, replace(batch, new_at=new_at, old_at=old_at, half=None))
        return taken(batch, np.flatnonzero(np.isin(batch.at, sent.at)))

    return broken


@mutant(
    "tistream_meta:HeldShard.held_by",
    invariants=(45,),
    catchers=("test_the_feeds_of_a_lost_worker_are_taken_under_the_next_epoch",),
)
def feed_lost_worker_counts(original: Function) -> Function:
    """Whoever reports is taken for the holder of a shard, so the checkpoint is that of those that report."""
    return lambda self, node_id, instance: self.node_id is not None


@mutant(
    "tistream_changefeed:EventFilter.rows",
    invariants=(47,),
    catchers=("test_a_column_that_is_gone_stops_the_table_by_name",),
)
def feed_undecided_rows_left_out(original: Function) -> Function:
    """Rows for which an expression cannot be computed are left out, and nobody is told."""

    def broken(self: Any, batch: Any) -> Any:
        import numpy as np

        from tistream.errors import InvalidRequest

        try:
            return original(self, batch)
        except InvalidRequest:
            return np.ones(len(batch), dtype=bool), np.zeros(len(batch), dtype=bool)

    return broken


@mutant(
    "tistream_changefeed:ErrorRules.on_row_error",
    invariants=(47,),
    catchers=("test_the_choice_of_one_table_is_not_that_of_another",),
)
def feed_row_left_out_unasked(original: Function) -> Function:
    """A row that cannot be sent goes to the dead letters though the user has not chosen that for its table."""
    return lambda self, name: "dead-letter"


@mutant(
    "tistream_changefeed:Progress.holding",
    invariants=(42, 47),
    catchers=("test_a_table_stops_by_name_and_the_others_go_on",),
)
def feed_passes_a_stopped_table(original: Function) -> Function:
    """The checkpoint and resolved messages pass what a stopped table has not sent, and no one is told of it."""
    return lambda self: ()


@mutant(
    "tistream_changefeed:MainLane.waits_for",
    invariants=(43,),
    catchers=("test_tables_that_a_rule_does_not_fit_wait_with_their_ddls_until_the_rule_is_changed[0]",),
)
def feed_ddl_overtakes_a_stopped_table(original: Function) -> Function:
    """A DDL of a stopped table is sent before the rows that it waits for."""
    return lambda self, names, end: None


@mutant(
    "tistream:references.masked",
    invariants=(49,),
    catchers=("test_values_are_masked_in_what_others_said",),
)
def feed_error_quotes_a_secret(original: Function) -> Function:
    """An error shows what the sink has said, with the password in it."""
    return lambda text, values: text


@mutant(
    "tistream_changefeed:segments.windows",
    invariants=(50,),
    catchers=("test_windows_end_between_commit_ts_and_are_cut_by_bytes",),
)
def feed_window_of_any_size(original: Function) -> Function:
    """One transaction of the sink holds all that was read."""
    return lambda commit_ts, sizes, limit, until: original(commit_ts, sizes, 1 << 60, until)


@mutant(
    "tistream_changefeed:Shard.held_by",
    invariants=(51,),
    catchers=("test_a_feed_that_cannot_write_waits_longer_each_time_and_says_why",),
)
def feed_holds_still_without_a_reason(original: Function) -> Function:
    """A feed that waits does not say for what."""
    return lambda self: iter(())


@mutant(
    "tistream:TenantSource._chosen_ids",
    invariants=(46,),
    catchers=("test_only_row_groups_of_tables_that_the_rules_choose_are_fetched_and_decoded",),
)
def feed_reads_every_table(original: Function) -> Function:
    """The row groups of all tables are fetched, whatever the rules of the feed."""
    return lambda self, scope, window: None


@mutant(
    "tistream:History.steady_since",
    invariants=(44,),
    catchers=("test_a_table_is_chosen_by_the_name_that_it_has_at_each_commit",),
)
def feed_tables_of_the_first_look(original: Function) -> Function:
    """The ids of a feed's tables are never looked up again."""
    return lambda self, low, high: 0


@mutant(
    "tistream_meta:feed_shards.combined",
    invariants=(45,),
    catchers=("test_the_checkpoint_is_the_lowest_of_all_shards_of_the_feed_whether_they_report_or_not",),
)
def feed_checkpoint_of_shards_that_report(original: Function) -> Function:
    """The checkpoint is the minimum over the shards that report."""
    return lambda shards: original([one for one in shards if one.report is not None] or shards)


@mutant(
    "tistream_changefeed:barrier.behind",
    invariants=(43,),
    catchers=("test_every_expected_shard_is_waited_for_whether_it_has_progress_or_not",),
)
def feed_barrier_of_shards_with_progress(original: Function) -> Function:
    """A DDL waits for the shards that have progress, not for those that have none yet."""

    def broken(found: Any, expected: Any, own: int, fence: Any, revision: Any, until: Any) -> Any:
        return original(found, [one for one in expected if one in found], own, fence, revision, until)

    return broken


@mutant(
    "tistream_changefeed:Sending._meet",
    invariants=(43,),
    catchers=("test_each_event_is_in_kafka_once_and_in_order_whatever_happens[1]",),
)
def feed_ddl_without_a_barrier(original: Function) -> Function:
    """A shard sends a DDL, and the rows behind it, without waiting for the others."""
    return lambda self, lane, until: {}


@mutant(
    "tistream_changefeed:MainLane.adopt",
    invariants=(43,),
    catchers=(
        "test_the_main_lane_stops_a_table_where_the_shards_meet_and_the_other_lane_where_its_table_is",
        "test_tables_that_stop_in_one_shard_stop_in_all_and_alone_and_catch_up_together[1]",
    ),
)
def feed_stop_of_another_shard_not_adopted(original: Function) -> Function:
    """A table that has stopped in one shard goes on in the others, behind its DDLs."""
    return lambda self, other, at: []


@mutant(
    "tistream_changefeed:Ownership.chosen",
    invariants=(38, 41),
    catchers=("test_shards_send_together_what_one_sends_and_no_partition_has_two[2]",),
)
def feed_partition_with_two_writers(original: Function) -> Function:
    """The first shard writes every partition."""

    def broken(self: Any, topic: str, partitions: Any) -> Any:
        return original(self, topic, partitions) | (self.shard == 0)

    return broken


@mutant(
    "tistream_changefeed:check_there",
    invariants=(38,),
    catchers=("test_a_feed_whose_progress_was_deleted_does_not_begin_anew_by_itself",),
)
def feed_begins_anew_without_its_progress(original: Function) -> Function:
    """A feed whose progress was deleted sends everything again."""
    return lambda found, fence, known_ts, where: None


@mutant(
    "tistream_changefeed:check_counts",
    invariants=(41,),
    catchers=("test_a_feed_whose_topic_has_got_partitions_goes_on_with_those_that_it_wrote",),
)
def feed_hashes_by_a_new_number_of_partitions(original: Function) -> Function:
    """A feed goes on though its topic has other partitions."""
    return lambda progress, ends: None


@mutant(
    "tistream_meta:feed_shards.stopped_at_one_ts",
    invariants=(38, 41),
    catchers=("test_events_are_sent_once_and_in_order_by_whatever_shards_a_feed_has[cuts0]",),
)
def feed_recut_without_a_barrier(original: Function) -> Function:
    """A feed gets other shards though the present ones have stopped at different ts."""
    return lambda reports: True


FILES = "test_each_row_is_in_one_file_whoever_is_killed_or_wakes_up_late"


@mutant("tistream_changefeed:StorageSink._put", invariants=(38, 48), catchers=(f"{FILES}[0]",))
def file_names_by_chance(original: Function) -> Function:
    """A data file is named by what is there: the first number that no file has."""

    def broken(self: Any, ended: Any) -> None:
        objects, (directory, _) = self._root._objects, ended
        keys = [info.key for info in objects.list_after(f"{directory}/CDC")]
        self._numbers[directory] = len(keys)
        original(self, ended)

    return broken


@mutant("tistream_changefeed:StorageSink._flush", invariants=(38, 39), catchers=(f"{FILES}[0]",))
def metadata_before_files(original: Function) -> Function:
    """The progress is committed before the data files are put."""

    def broken(self: Any, progress: Any) -> None:
        self._put_metadata(progress, {})
        original(self, progress)

    return broken


@mutant("tistream_changefeed:SinkRoot.put_metadata", invariants=(40,), catchers=(f"{FILES}[0]",))
def metadata_of_any_epoch(original: Function) -> Function:
    """A holder replaces the progress of whoever has written it."""

    def broken(self: Any, content: bytes, beaten: Any) -> None:
        self._read = self._versioned("metadata")
        original(self, content, beaten)

    return broken


@mutant("tistream_changefeed:SinkRoot.last_number", invariants=(40, 48), catchers=(f"{FILES}[15]",))
def index_of_a_later_holder(original: Function) -> Function:
    """A holder that was paused counts on from the files of the one that took over."""

    def broken(self: Any, directory: str, beaten: Any) -> int:
        before, self._read = self._read, self._versioned("metadata")
        found: int = original(self, directory, beaten)
        self._read = before
        return found

    return broken


@mutant(
    "tistream_meta:feed_shards.postponed",
    invariants=(51,),
    catchers=("test_a_stopped_table_postpones_a_cut_and_the_other_tables_go_on",),
)
def feed_cut_stands_for_a_stopped_table(original: Function) -> Function:
    """All tables of a feed stop where it is to be cut, until the one that has stopped has caught up."""
    return lambda feed, reports: feed


@mutant(
    "tistream_changefeed:progress.grown_ts",
    invariants=(41,),
    catchers=("test_rows_above_the_announced_ts_alone_go_to_the_new_number_of_partitions",),
)
def feed_grows_unannounced(original: Function) -> Function:
    """Rows go to more partitions, and no message says from which ts on."""
    return lambda before, wanted: None


@mutant(
    "tistream_meta:shard_loads._wanted",
    invariants=(46,),
    catchers=("test_a_feed_does_not_grow_beyond_its_highest_number",),
)
def feed_grows_beyond_its_highest_number(original: Function) -> Function:
    """A busy feed gets more shards than `shards-max` allows."""
    return lambda load, most, now_ms, rules: original(load, 64, now_ms, rules)


@mutant(
    "tistream_meta:KeptFeed.continued",
    invariants=(38,),
    catchers=("test_a_feed_that_was_removed_with_its_progress_continues_when_it_is_created_again",),
)
def feed_begins_anew_though_its_progress_is_kept(original: Function) -> Function:
    """A feed that was removed with `keep_progress` and is created again sends its events a second time."""
    return lambda self, feed: feed


@mutant(
    "tistream_changefeed:NeededColumns.__call__",
    invariants=(44,),
    catchers=("test_columns_that_a_feed_does_not_need_are_not_decoded_and_it_sends_the_same",),
)
def feed_needs_only_what_it_sends(original: Function) -> Function:
    """Columns that are not sent are not decoded, though a filter or a partition rule looks at them."""

    def broken(self: Any, version: Any) -> Any:
        from tistream_changefeed.filters.column_selector import selector_of

        selector, visible = selector_of(self.selectors, version), version.table.visible_columns
        return visible if selector is None else [one for one in visible if one in selector.sent(version.table)]

    return broken


@mutant(
    "tistream_changefeed:MySqlSink._write",
    invariants=(38, 39),
    catchers=("test_rows_and_their_progress_are_one_transaction",),
)
def mysql_progress_outside_the_transaction(original: Function) -> Function:
    """Rows are committed into a database first, and the progress in a transaction of its own."""

    def broken(self: Any, nets: Any, letters: Any, progress: Any, window: Any) -> None:
        old = getattr(self, "_old_progress", None)
        if nets and old is not None:
            original(self, nets, letters, old, None)
            nets, letters = (), ()
        original(self, nets, letters, progress, window)
        self._old_progress = progress

    return broken


@mutant(
    "tistream_changefeed:Slot.begin",
    invariants=(40,),
    catchers=(
        "test_a_holder_that_was_replaced_writes_nothing",
        "test_of_two_holders_with_one_epoch_only_the_one_that_came_last_writes",
    ),
)
def mysql_epoch_not_checked(original: Function) -> Function:
    """A transaction takes the epoch and the holder that the database has for its own."""

    def broken(self: Any, begun: str) -> None:
        sql = "SELECT generation, epoch, holder FROM tistream.progress WHERE feed = %s"
        *fence, self._holder = self.target().rows(sql, (self._feed,))[0]
        self._fence = type(self._fence)(*fence)
        original(self, begun)

    return broken


@mutant(
    "tistream_changefeed:statements.statements",
    invariants=(41,),
    catchers=("test_deletes_come_before_puts_and_repeats_replace",),
)
def mysql_puts_before_deletes(original: Function) -> Function:
    """The puts of a window come before its deletes."""

    def broken(nets: Any, dialect: Any, *, safe: bool) -> Any:
        found = list(original(nets, dialect, safe=safe))
        return iter(sorted(found, key=lambda one: one.sql.startswith("DELETE")))

    return broken


@mutant(
    "tistream_changefeed:slots._crossing",
    invariants=(41,),
    catchers=("test_a_table_gets_the_rows_of_the_upstream_whatever_the_window_and_the_slots",),
)
def mysql_slots_by_primary_key(original: Function) -> Function:
    """Changes that have a value of another unique key in common go to different slots."""
    return lambda one, slot: original(one, slot)[:0]


@mutant(
    "tistream_changefeed:loading.rows_of",
    invariants=(38,),
    catchers=("test_a_feed_that_begins_with_rows_has_each_once_though_connections_and_holders_end",),
)
def load_begins_each_table_again(original: Function) -> Function:
    """A worker that takes over a load begins the table again, in place of going on behind the newest part."""
    return lambda pool, reader, version, window, window_bytes, after=b"": original(
        pool, reader, version, window, window_bytes
    )


@mutant(
    "tistream_changefeed:barrier.behind",
    invariants=(43,),
    catchers=("test_shards_wait_for_each_other_at_ddls_and_sync_points",),
)
def mysql_shards_do_not_wait(original: Function) -> Function:
    """A DDL is executed, and a sync point marked, whatever the other shards have written."""
    return lambda found, expected, own, fence, revision, until: ()


@mutant(
    "tistream_changefeed:barrier.beyond",
    invariants=(43,),
    catchers=("test_no_sync_point_is_marked_while_another_shard_is_above_it",),
)
def sync_point_though_shards_differ(original: Function) -> Function:
    """A sync point is marked though another shard has rows above it."""
    return lambda found, expected, own, after: ()


@mutant(
    "tistream_changefeed:progress.check_revision",
    invariants=(38,),
    catchers=(
        "test_shards_from_before_a_cut_that_the_meta_server_has_forgotten_write_nothing",
        "test_a_worker_of_a_revision_from_before_a_cut_sends_nothing",
    ),
)
def revision_not_checked(original: Function) -> Function:
    """A worker writes under the revision that it was ordered, whatever shards a newer one has had in the sink."""
    return lambda found, fence, wanted, shards, where: None


@mutant(
    "tistream_changefeed:StorageSink._shorten",
    invariants=(38, 48),
    catchers=("test_a_window_that_ended_early_ends_there_for_the_worker_that_takes_over",),
)
def window_end_by_the_clock(original: Function) -> Function:
    """A window ends early because the tenant stands still, and the end is not stored before the files."""

    def broken(self: Any, at: Any) -> None:
        self._end = min(self._end, at.low_ts)

    return broken
