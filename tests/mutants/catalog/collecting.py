"""What is kept, put together and deleted (docs/adr/0009)."""

# ruff: noqa: E501 - quoted code keeps its length
from mutants.mutant import Mutant

RETENTION = "services/sorter/tistream_sorter/retention.py"
RESTATE = "services/sorter/tistream_sorter/restate.py"
COLLECTION = "services/sorter/tistream_sorter/collection.py"
COLLECTING = "services/sorter/tistream_sorter/collecting.py"
COMPACTION = "services/sorter/tistream_sorter/compaction.py"
COMPACT = "services/sorter/tistream_sorter/jobs/compact.py"
COMPACTING = "services/sorter/tistream_sorter/compacting.py"
NODE = "services/sorter/tistream_sorter/node.py"
HEIRS = "services/sorter/tistream_sorter/heirs.py"
TASK_STATE = "services/sorter/tistream_sorter/task_state.py"
TASK = "services/sorter/tistream_sorter/task.py"
FOLLOWER = "services/schema_registry/tistream_schema/follower.py"
LOG = "tests/unit/schema_registry/test_log_collection.py"
TICK = "services/sorter/tistream_sorter/tick.py"
SOURCE = "services/api/tistream_api/source.py"
VIEW = "services/api/tistream_api/tenant_view.py"
PULL = "services/api/tistream_api/pull.py"
KEPT = "tests/unit/sorter/test_retention.py"
DELETED = "tests/unit/sorter/test_pool_collection.py"
TOGETHER = "tests/unit/sorter/test_compaction_plans.py"
OVERTAKEN = "tests/unit/api/test_overtaken.py"

MUTANTS = (
    Mutant(
        name="segment-gone-with-rows-that-are-kept",
        invariants=(19,),
        breaks="a segment goes as soon as its first rows are old enough",
        file=RETENTION,
        old="if segment.commit_ts_max > schema_ts)",
        new="if segment.commit_ts_min > schema_ts)",
        catchers=(f"{KEPT}::test_segments_go_once_all_of_their_rows_are_old_enough",),
    ),
    Mutant(
        name="a-clock-ahead-empties-the-pool",
        invariants=(19,),
        breaks="age is counted from this node's clock alone",
        file=RETENTION,
        old="    newest_ms = min(now_ms, physical_ms(state.flushed_ts))\n",
        new="    newest_ms = now_ms\n",
        catchers=(f"{KEPT}::test_a_node_whose_clock_is_years_ahead_deletes_no_more_than_others",),
    ),
    Mutant(
        name="retained-goes-down",
        invariants=(19,),
        breaks="a longer retention promises rows that are gone",
        file=RETENTION,
        old="    ts = max(state.retained_ts, _allowed(state, now_ms))\n",
        new="    ts = _allowed(state, now_ms)\n",
        catchers=(f"{KEPT}::test_what_is_retained_never_goes_down",),
    ),
    Mutant(
        name="schema-rows-gone-unread",
        invariants=(16, 19),
        breaks="rows go that the schema registry has not read",
        file=RETENTION,
        old="    return min(state.flushed_ts, state.retention.read_ts, ",
        new="    return min(state.flushed_ts, ",
        catchers=(f"{KEPT}::test_nothing_goes_before_the_registry_has_read_it",),
    ),
    Mutant(
        name="old-rows-go-while-another-task-stands",
        invariants=(19,),
        breaks="while one task stands still the rows of the others go before anybody could read them",
        file="services/sorter/tistream_sorter/task.py",
        old="self._readable.through(min(self._durable.flushed_ts, self._flushed_by_all), now_ms)",
        new="self._readable.through(self._durable.flushed_ts, now_ms)",
        catchers=(
            "tests/unit/sorter/test_retention_of_several_tasks.py"
            "::test_what_nobody_can_have_read_stays_however_old_it_is_and_goes_when_they_can",
        ),
    ),
    Mutant(
        name="told-for-all-by-those-that-have-told",
        invariants=(19,),
        breaks="a task of which nothing is known does not keep others from letting go of rows",
        file="services/dispatcher/tistream_dispatcher/receivers.py",
        old="        return min(told) if told and len(told) == len(known) else None\n",
        new="        return min(told) if told else None\n",
        catchers=(
            "tests/unit/dispatcher/test_delivery.py"
            "::test_what_all_tasks_have_made_durable_is_known_when_each_has_told_it_under_its_epoch",
        ),
    ),
    Mutant(
        name="old-rows-go-before-anybody-could-read-them",
        invariants=(19,),
        breaks="what a stall brings at once is dropped by the manifest that flushes it, if it is old enough",
        file=TASK,
        old=" else min(self._read_ts, readable_ts)\n",
        new=" else self._read_ts\n",
        catchers=(f"{KEPT}::test_what_could_not_be_read_before_is_kept_for_a_while_however_old_it_is",),
    ),
    Mutant(
        name="a-merge-takes-schema-rows-unread",
        invariants=(16, 19),
        breaks="after a merge what the neighbour had let go of goes of the schema's keys, too",
        file=HEIRS,
        old="    return max(told or (seal.retained_ts for seal in seals))\n",
        new="    return max(seal.retained_ts for seal in seals)\n",
        catchers=(f"{KEPT}::test_a_merge_takes_nothing_from_the_registry_that_it_has_not_read",),
    ),
    Mutant(
        name="registry-refuses-what-is-all-there",
        invariants=(16, 21),
        breaks="after a merge the registry takes what is gone of other keys for rows of the schema",
        file=FOLLOWER,
        old="    return [log.view.state.schema_retained_ts if",
        new="    return [log.view.state.retained_ts if",
        catchers=(f"{LOG}::test_after_a_merge_a_restart_reads_what_is_left_of_the_schemas_rows",),
    ),
    Mutant(
        name="late-files-of-closed-chains-are-read",
        invariants=(12, 21),
        breaks="a sorter reads what its dispatcher may delete at any moment",
        file=TASK,
        old="self._inbox.offer(emptied(file) if late else file)",
        new="self._inbox.offer(file)",
        catchers=("tests/unit/sorter/test_closed_chains.py",),
    ),
    Mutant(
        name="one-segment-stops-every-tenants-compaction",
        invariants=(17,),
        breaks="a job that dies is done again as it was, for all of its tasks",
        file=COMPACTING,
        old="        self._one_by_one = bool(died)\n",
        new="        self._one_by_one = False\n",
        catchers=(
            "tests/unit/sorter/test_compacting.py::test_a_job_that_dies_for_one_tasks_sake_is_done_for_the_others",
        ),
    ),
    Mutant(
        name="retained-lost-at-recovery",
        invariants=(13, 19),
        breaks="who holds a task next does not know what has gone",
        file=TASK_STATE,
        old="            retained_ts=manifest.retained_ts,\n",
        new="",
        catchers=(f"{KEPT}::test_after_a_crash_it_goes_on_as_before",),
    ),
    Mutant(
        name="row-below-retention-stops-the-task",
        invariants=(5,),
        breaks="a row that has gone and comes again is taken for one that was lost",
        file=TICK,
        old="MatchRules(window, after.begins_ts,",
        new="MatchRules(window, identity.snapshot_ts,",
        catchers=(f"{KEPT}::test_a_row_that_went_may_come_again",),
    ),
    Mutant(
        name="own-epoch-swept",
        invariants=(10, 12),
        breaks="objects of the holder's own epoch that no manifest names yet are deleted",
        file=COLLECTION,
        old=" and epoch < state.identity.task_epoch\n",
        new=" and epoch <= state.identity.task_epoch\n",
        catchers=(f"{DELETED}::test_what_an_earlier_epoch_has_left_goes_and_nothing_of_this_one",),
    ),
    Mutant(
        name="promoted-segment-deleted",
        invariants=(10,),
        breaks="a pending part that became a segment is taken for one that nobody needs",
        file=COLLECTION,
        old="        named -= {segment.key for segment in manifest.segments}\n",
        new="        pass\n",
        catchers=("tests/unit/sorter/test_pool_collection.py::test_a_part_that_became_a_segment_stays",),
    ),
    Mutant(
        name="no-pause-before-deleting",
        invariants=(10,),
        breaks="an object goes at once, under the eyes of who reads it",
        file=COLLECTION,
        old="if now_ms - since_ms >= grace_ms)",
        new="if now_ms >= since_ms)",
        catchers=(f"{DELETED}::test_what_a_manifest_ceases_to_name_goes_after_the_pause",),
    ),
    Mutant(
        name="collected-above-the-floor",
        invariants=(11, 12),
        breaks="the manifest that readers begin at is deleted",
        file=COLLECTION,
        old="for number in range(low, high)]",
        new="for number in range(low, high + 1)]",
        catchers=(f"{DELETED}::test_manifests_below_the_floor_go_and_the_others_stay",),
    ),
    Mutant(
        name="one-heir-speaks-for-all",
        invariants=(10, 12),
        breaks="what one heir does not name of a sealed task is deleted, though another does",
        file=COLLECTING,
        old="        left = unnamed(keys, found) if len(found) == len(logs) else []\n",
        new="        left = unnamed(keys, found[:1])\n",
        catchers=(f"{DELETED}::test_what_heirs_share_stays_until_none_of_them_names_it",),
    ),
    Mutant(
        name="ancestors-forgotten",
        invariants=(12,),
        breaks="nobody deletes what sealed tasks have left",
        file=HEIRS,
        old="        heritage=tuple(sorted({task_id for seal in seals for task_id in (seal.task_id, *seal.heritage)})),\n",
        new="",
        catchers=(f"{DELETED}::test_what_heirs_share_stays_until_none_of_them_names_it",),
    ),
    Mutant(
        name="shared-segment-put-together",
        invariants=(7,),
        breaks="an heir writes a segment again that another heir names as it is: rows are there twice",
        file=COMPACTION,
        old=" or not segment.key.startswith(own)",
        new="",
        catchers=(f"{DELETED}::test_segments_that_heirs_share_stay_as_they_are",),
    ),
    Mutant(
        name="output-for-inputs-that-are-gone",
        invariants=(7, 19),
        breaks="what was written together replaces segments of which some are not in the list any more",
        file=COMPACTION,
        old="    if tuple(keys[at:end]) != done.inputs:\n        return None\n",
        new="",
        catchers=(f"{TOGETHER}::test_the_output_stands_where_its_inputs_stood",),
    ),
    Mutant(
        name="compacted-in-no-order",
        invariants=(8,),
        breaks="rows of segments that are put together stay in the order of the segments",
        file=COMPACT,
        old="    return rows.take(pa.array(order))\n",
        new="    return rows\n",
        catchers=(f"{TOGETHER}::test_the_rows_are_the_same_and_in_order",),
    ),
    Mutant(
        name="compacted-without-restating",
        invariants=(10,),
        breaks="inputs are deleted, and no manifest says what replaces them",
        file=RESTATE,
        old=" or state.restate or",
        new=" or",
        catchers=(f"{DELETED}::test_small_segments_become_one_with_the_same_rows",),
    ),
    Mutant(
        name="compacted-again-and-again",
        invariants=(24,),
        breaks="what was put together and is not committed yet is put together once more",
        file=COMPACTING,
        old="        if task.to_settle or state.inherited:\n",
        new="        if state.inherited:\n",
        catchers=(f"{DELETED}::test_what_waits_for_a_manifest_is_not_put_together_again",),
    ),
    Mutant(
        name="gap-below-retention-in-a-pull",
        invariants=(19,),
        breaks="an answer that retention overtakes goes on behind the gap",
        file=SOURCE,
        old="            if window.low < retained_ts:\n",
        new="            if False:\n",
        catchers=(f"{OVERTAKEN}::test_an_answer_that_is_overtaken_ends_where_its_last_line_says",),
    ),
    Mutant(
        name="earliest-of-the-task-that-keeps-most",
        invariants=(14, 19),
        breaks="the earliest ts is that of the task that keeps the longest",
        file=VIEW,
        old="        retained_ts = max((state.retained_ts for",
        new="        retained_ts = min((state.retained_ts for",
        catchers=("tests/unit/api/test_tenant_view.py::test_what_one_task_does_not_keep_is_gone",),
    ),
    Mutant(
        name="overtaken-answer-is-cut",
        invariants=(18, 19),
        breaks="an answer that retention overtakes ends without a cursor",
        file=PULL,
        old="                except (RetryableError, Gone):\n",
        new="                except RetryableError:\n",
        catchers=(f"{OVERTAKEN}::test_an_answer_that_is_overtaken_ends_where_its_last_line_says",),
    ),
)
