"""The tick, the node around it, and what its jobs read and write (design.md 4)."""

# ruff: noqa: E501 - quoted code keeps its length
from mutants.mutant import Mutant

TASK_STATE = "services/sorter/tistream_sorter/task_state.py"
TICK_JOBS = "services/sorter/tistream_sorter/tick_jobs.py"
TICK = "services/sorter/tistream_sorter/tick.py"
TASK = "services/sorter/tistream_sorter/task.py"
POSITIONS = "services/sorter/tistream_sorter/positions.py"
INBOX = "services/sorter/tistream_sorter/inbox.py"
NODE = "services/sorter/tistream_sorter/node.py"
SHARD_IO = "services/sorter/tistream_sorter/jobs/shard_io.py"
SHARD_OUTPUT = "services/sorter/tistream_sorter/jobs/shard_output.py"
PENDING_PARTS = "services/sorter/tistream_sorter/jobs/pending_parts.py"

MUTANTS = (
    Mutant(
        name="pending-lost-at-recovery",
        invariants=(7, 13),
        breaks="a restarted task forgets the pending parts of its manifest",
        file=TASK_STATE,
        old="            pending=manifest.pending,\n",
        new="            pending=(),\n",
        catchers=(
            "tests/unit/sorter/test_named_objects.py::test_a_pending_part_that_lost_rows_stops_the_task_and_loses_none",
        ),
    ),
    Mutant(
        name="pending-lost-at-checkpoint",
        invariants=(7, 13),
        breaks="a manifest names only the pending parts that its own tick wrote",
        file=TICK,
        old="    pending = _carried(after.pending, done.shards, results) + tuple(p for r in results for p in r.pending)\n",
        new="    pending = tuple(p for r in results for p in r.pending)\n",
        catchers=("tests/unit/sorter/test_review_random_cluster.py::test_the_pool_is_what_was_committed",),
    ),
    Mutant(
        name="consumed-part-carried",
        invariants=(7, 23),
        breaks="a pending part that was consumed is carried along all the same",
        file=TICK,
        old="        left = [piece for shard, piece in pieces if (part.key, piece.start) not in consumed[shard.number]]\n",
        new="        left = [piece for shard, piece in pieces]\n",
        catchers=("tests/unit/sorter/test_locks_over_ticks.py::test_a_lock_that_died_is_pending_no_more",),
    ),
    Mutant(
        name="consumed-by-one-shard-gone-for-all",
        invariants=(7, 13),
        breaks="a pending part that one shard consumed is dropped for the others too",
        file=TICK,
        old="        left = [piece for shard, piece in pieces if (part.key, piece.start) not in consumed[shard.number]]\n",
        new="        left = [] if any((part.key, piece.start) in consumed[shard.number] for shard, piece in pieces) "
        "else [piece for _, piece in pieces]\n",
        catchers=(
            "tests/unit/sorter/test_parts_left_over.py::test_a_part_that_one_shard_consumed_stays_for_the_others",
            "tests/unit/sorter/test_review_random_cluster.py::test_the_pool_is_what_was_committed",
        ),
    ),
    Mutant(
        name="positions-lost-at-recovery",
        invariants=(3, 13),
        breaks="a restarted task takes its slices from the manifest, and its files from the beginning",
        file=TASK_STATE,
        old="            positions=dict(manifest.positions),\n",
        new="            positions={},\n",
        catchers=(
            "tests/unit/sorter/test_loud_stops.py::test_a_process_that_wakes_with_an_old_epoch_lets_go_of_its_tasks",
        ),
    ),
    Mutant(
        name="position-ahead-of-the-manifest",
        invariants=(13,),
        breaks="a file counts as taken as soon as it is queued: a failed tick loses it",
        file=TASK,
        old="            self._inbox.forget(self.state.positions, [ref.key for ref, _ in bad])\n",
        new="            self._inbox.files = [file for file in self._inbox.files if file.ref.key not in "
        "[ref.key for ref, _ in bad]]\n",
        catchers=(
            "tests/unit/sorter/test_review_node.py::test_a_damaged_file_is_taken_once_it_is_sound_though_the_wall_clock_went_back",
        ),
    ),
    Mutant(
        name="chain-not-followed",
        invariants=(2, 13),
        breaks="a task takes a file though the one before it in its chain has not come",
        file=POSITIONS,
        old="            return chain.at_ts == ref.prev_ts and ref.ts > chain.at_ts\n",
        new="            return ref.ts > chain.at_ts\n",
        catchers=("tests/unit/sorter/test_chain_positions.py::test_a_file_ahead_of_its_chain_is_left_to_come_again",),
    ),
    Mutant(
        name="file-taken-twice",
        invariants=(5, 15),
        breaks="a task takes a file that it has taken before",
        file=POSITIONS,
        old="            return chain.at_ts == ref.prev_ts and ref.ts > chain.at_ts\n",
        new="            return chain.at_ts == ref.prev_ts or ref.ts <= chain.at_ts\n",
        catchers=("tests/unit/sorter/test_chain_positions.py::test_a_file_that_comes_again_is_not_taken_again",),
    ),
    Mutant(
        name="progress-told-before-the-commit",
        invariants=(3, 6, 9),
        breaks="a task tells the progress of a tick whose manifest is not committed",
        file=TASK,
        old="        if needs_job(taken[0], files, sweep=idle):\n            history = ",
        new="        if needs_job(taken[0], files, sweep=idle):\n"
        "            self.state = replace(self.state, slices=taken[0].slices)\n            history = ",
        catchers=(
            "tests/unit/sorter/test_loud_stops.py::test_a_commit_below_the_watermark_whose_prewrite_never_came_stops_its_task",
        ),
    ),
    Mutant(
        name="progress-above-what-is-pending",
        invariants=(5, 6, 9),
        breaks="files without entries raise the progress though rows at or below it are pending",
        file=TICK,
        old="    if any(part.commit_ts_min <= high for part in state.pending):\n        return True\n",
        new="",
        catchers=("tests/unit/sorter/test_progress_told.py::test_a_watermark_that_passes_pending_rows_flushes_them",),
    ),
    Mutant(
        name="progress-at-the-last-pending-row",
        invariants=(5, 6),
        breaks="the same, off by one: a row pending at the very watermark is not flushed",
        file=TICK,
        old="    if any(part.commit_ts_min <= high for part in state.pending):\n",
        new="    if any(part.commit_ts_min < high for part in state.pending):\n",
        catchers=("tests/unit/sorter/test_progress_told.py::test_a_watermark_that_passes_pending_rows_flushes_them",),
    ),
    Mutant(
        name="flushed-one-too-high",
        invariants=(3, 5),
        breaks="the manifest says that one ts more was flushed than was",
        file=TICK,
        old="        flushed_ts=done.window.high,\n",
        new="        flushed_ts=done.window.high + 1,\n",
        catchers=(
            "tests/unit/sorter/test_loud_stops.py::test_a_commit_below_the_watermark_whose_prewrite_never_came_stops_its_task",
        ),
    ),
    Mutant(
        name="window-one-too-low",
        invariants=(5, 7),
        breaks="the window begins one below flushed_ts",
        file=TICK,
        old="    window = Window(state.flushed_ts, after.progress_ts)\n",
        new="    window = Window(max(state.flushed_ts - 1, identity.snapshot_ts), after.progress_ts)\n",
        catchers=(
            "tests/unit/sorter/test_loud_stops.py::test_a_row_below_flushed_ts_that_the_pool_lacks_stops_its_task",
        ),
    ),
    Mutant(
        name="late-puts-not-heard",
        invariants=(10,),
        breaks="a manifest names a segment whose put, beside the next shard, failed",
        file="shared/tistream/storage/write_behind.py",
        old="            raise failed\n",
        new="            del failed\n",
        catchers=(
            "tests/unit/storage/test_write_behind.py::test_a_failed_put_is_told_when_settled_and_the_others_have_ended",
        ),
    ),
    Mutant(
        name="segment-named-before-it-is-written",
        invariants=(10,),
        breaks="a manifest names a segment whose put failed",
        file=SHARD_OUTPUT,
        old="        self.target.put(key, body)\n        return segment\n",
        new="        try:\n            self.target.put(key, body)\n        except Exception:\n            pass\n"
        "        return segment\n",
        catchers=(
            "tests/unit/sorter/test_named_objects.py::test_a_segment_or_part_that_could_not_be_put_is_not_named",
        ),
    ),
    Mutant(
        name="pending-part-not-checked",
        invariants=(10, 13),
        breaks="a damaged pending part is read without a look at its checksum",
        file=PENDING_PARTS,
        old='    if len(body) != part.size or f"{zlib.crc32(body):08x}" != part.checksum:\n',
        new="    if not body:\n",
        catchers=(
            "tests/unit/sorter/test_named_objects.py::test_a_pending_part_that_lost_rows_stops_the_task_and_loses_none",
        ),
    ),
    Mutant(
        name="damaged-row-group-skipped",
        invariants=(7, 17),
        breaks="a row group that fails its checksum is left out, and the tick goes on",
        file=SHARD_IO,
        old="            bad[file.seq] = str(error)\n            continue\n",
        new="            continue\n",
        catchers=(
            "tests/unit/sorter/test_review_node.py::test_a_damaged_file_is_taken_once_it_is_sound_though_the_wall_clock_went_back",
        ),
    ),
    Mutant(
        name="failed-shard-ignored",
        invariants=(7, 9),
        breaks="a tick is committed though one of its shards had no answer from the store",
        file=TICK_JOBS,
        old="        if reasons := [(result.key_unusable, str(result.failed)) for result in results if result.failed]:\n",
        new="        from dataclasses import replace\n"
        "        results = [replace(result, failed=None) for result in results]\n"
        "        if reasons := [(result.key_unusable, str(result.failed)) for result in results if result.failed]:\n",
        catchers=("tests/unit/sorter/test_progress_told.py::test_nothing_is_told_before_it_is_committed",),
    ),
    Mutant(
        name="broken-invariant-committed",
        invariants=(5, 6),
        breaks="a tick is committed though a shard found what must not be",
        file=TICK,
        old="        if result.broken:\n            raise InvariantBroken(*result.broken)\n",
        new="        if result.broken and result.failed:\n            raise InvariantBroken(*result.broken)\n",
        catchers=(
            "tests/unit/sorter/test_loud_stops.py::test_a_commit_below_the_watermark_whose_prewrite_never_came_stops_its_task",
        ),
    ),
    Mutant(
        name="lookup-in-no-segment",
        invariants=(5, 21),
        breaks="repeats are looked up in no segment: what the pool holds seems to be lost",
        file=TICK,
        old="        where = tuple(s for s in live if s.commit_ts_min <= high and s.commit_ts_max >= low)\n",
        new="        where = tuple(s for s in live if s.commit_ts_min > high and s.commit_ts_max < low)\n",
        catchers=("tests/unit/sorter/test_review_random_cluster.py::test_the_pool_is_what_was_committed",),
    ),
    Mutant(
        name="lookup-by-key-alone",
        invariants=(5, 7),
        breaks="a row that the pool lacks is dropped when it holds another of the same key",
        file=SHARD_IO,
        old='        missing = missing.join(held, on=[*IDENTITY, "commit_ts"], how="anti")\n',
        new='        missing = missing.join(held, on="key", how="anti")\n',
        catchers=(
            "tests/unit/sorter/test_loud_stops.py::test_a_late_row_is_not_taken_for_another_of_its_key_that_comes_again_with_it",
        ),
    ),
    Mutant(
        name="watermark-goes-down",
        invariants=(3,),
        breaks="nothing checks that a task's watermark does not go down, and a copy of its slices is not made",
        file=TICK,
        old="    slices, history = state.slices.copy(), state.history.copy()\n",
        new="    slices, history = state.slices, state.history\n",
        catchers=(
            "tests/unit/sorter/test_loud_stops.py::test_a_commit_below_the_watermark_whose_prewrite_never_came_stops_its_task",
        ),
    ),
    Mutant(
        name="history-lost",
        invariants=(7,),
        breaks="the slices' changes of files without entries are not remembered for the next job",
        file=TICK,
        old="        history=history,\n        positions=positions,\n",
        new="        history=state.history,\n        positions=positions,\n",
        catchers=("tests/unit/sorter/test_locks_over_ticks.py::test_a_lock_that_died_is_pending_no_more",),
    ),
    Mutant(
        name="scans-forgotten",
        invariants=(7,),
        breaks="a tick does not know which locks its files' scans vouch for",
        file=TICK,
        old="        if found.num_rows:\n            scans.append(found)\n",
        new="",
        catchers=(
            "tests/unit/sorter/test_locks_over_ticks.py::test_a_lock_that_a_scan_brings_at_a_covered_place_can_still_be_committed",
        ),
    ),
    Mutant(
        name="new-epoch-ignored",
        invariants=(11, 21),
        breaks="a sorter does not claim a task that it holds when it is given a new epoch for it",
        file=NODE,
        old="        new = [identity for identity in wanted if current.get(identity.task_id) != identity.task_epoch]\n",
        new="        new = [identity for identity in wanted if identity.task_id not in current]\n",
        catchers=("tests/unit/sorter/test_loud_stops.py::test_a_task_that_is_given_a_new_epoch_goes_on_under_it",),
    ),
    Mutant(
        name="doubtful-commit-dropped",
        invariants=(7, 11, 21),
        breaks="a commit whose answer never came is given up, and another is tried at its number",
        file=NODE,
        old="            held.doubtful = (manifest, after, files)\n",
        new="",
        catchers=(
            "tests/unit/sorter/test_loud_stops.py::test_a_commit_whose_answer_never_came_is_settled_and_work_goes_on",
        ),
    ),
    Mutant(
        name="fenced-task-goes-on",
        invariants=(11, 21),
        breaks="a task that was fenced stays held",
        file=NODE,
        old="        with self._lock:\n            self._drop(held)\n",
        new="        held.task.trouble = str(error)\n",
        catchers=(
            "tests/unit/sorter/test_loud_stops.py::test_a_process_that_wakes_with_an_old_epoch_lets_go_of_its_tasks",
        ),
    ),
    Mutant(
        name="one-tenants-trouble-stops-all",
        invariants=(17,),
        breaks="an error of one task ends the tick of all",
        file=NODE,
        old="            except Exception as error:  # whatever one tenant's input may cause: the other tasks go on\n"
        "                self._stop(one, error)\n                continue\n",
        new="            except ZeroDivisionError as error:\n                self._stop(one, error)\n                continue\n",
        catchers=("tests/unit/sorter/test_review_node.py::test_what_nobody_foresaw_stops_its_own_task_only",),
    ),
    Mutant(
        name="idle-tenant-writes",
        invariants=(24,),
        breaks="a tenant for which no file arrives writes a manifest now and then",
        file=TASK,
        old="        if self.stopped is not None or self.rests:\n",
        new="        if self.stopped is not None:\n",
        catchers=(
            "tests/unit/sorter/test_bounds_and_idleness.py::test_a_tenant_for_which_no_file_arrives_writes_nothing",
        ),
    ),
    Mutant(
        name="every-file-a-manifest",
        invariants=(24,),
        breaks="every file without changes costs a manifest at once",
        file=TASK,
        old="        idle = self._idle_at_ms is None or now_ms >= self._idle_at_ms\n",
        new="        idle = True\n",
        catchers=(
            "tests/unit/sorter/test_bounds_and_idleness.py::test_files_without_changes_cost_a_manifest_in_ten_seconds",
        ),
    ),
    Mutant(
        name="files-taken-as-they-came",
        invariants=(23,),
        breaks="while stores are behind a tick takes one's files before the others': all of them wait in pending parts",
        file=INBOX,
        old="        self.files = _by_time(self.files)\n",
        new="",
        catchers=(
            "tests/unit/sorter/test_bounds_and_idleness.py::test_the_oldest_files_are_taken_first_whichever_store_"
            "came_first_but_each_stores_own_in_their_order",
        ),
    ),
    Mutant(
        name="inbox-unbounded",
        invariants=(23,),
        breaks="a task queues whatever it is sent",
        file=TASK,
        old="            if len(self._inbox.files) + len(files) > self._limits.inbox_files_max and self._inbox.files:\n",
        new="            if len(self._inbox.files) < 0:\n",
        catchers=("tests/unit/sorter/test_bounds_and_idleness.py::test_a_task_without_room_takes_nothing_and_says_so",),
    ),
    Mutant(
        name="tick-unbounded",
        invariants=(23,),
        breaks="one tick takes all files, whatever they weigh",
        file=INBOX,
        old="            if out and total > bytes_max:\n                break\n",
        new="",
        catchers=("tests/unit/sorter/test_bounds_and_idleness.py::test_one_tick_takes_no_more_bytes_than_the_limit",),
    ),
    Mutant(
        name="row-groups-of-other-keys-left-out",
        invariants=(7,),
        breaks="a row group is not read whose highest key is the first of the shard",
        file="shared/tistream/model/span.py",
        old="        return highest >= self.start and (not self.end or lowest < self.end)\n",
        new="        return highest > self.start and (not self.end or lowest < self.end)\n",
        catchers=("tests/unit/dispatcher/test_router.py::test_row_groups_go_to_every_task_that_their_keys_touch",),
    ),
    Mutant(
        name="span-end-inclusive",
        invariants=(7,),
        breaks="a key at the end of a span belongs to it: two tasks have it",
        file="services/sorter/tistream_sorter/jobs/key_range.py",
        old="        condition &= column < pl.lit(end)\n",
        new="        condition &= column <= pl.lit(end)\n",
        catchers=("tests/unit/sorter/test_review_random_cluster.py::test_the_pool_is_what_was_committed",),
    ),
    Mutant(
        name="coverage-from-memory",
        invariants=(1, 21),
        breaks="a scan is told to begin at what only this process knows: a broken chain and a crash, and it never connects",
        file="services/sorter/tistream_sorter/task.py",
        old="        return coverage(self._durable, span)\n",
        new="        return coverage(self.state, span)\n",
        catchers=("tests/unit/sorter/test_bounds_and_idleness.py::test_coverage_is_told_of_what_is_durable",),
    ),
)
