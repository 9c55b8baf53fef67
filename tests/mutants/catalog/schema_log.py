"""What the schema registry forgets, and how its log is collected."""

from mutants.mutant import Mutant

DURABLE = "services/schema_registry/tistream_schema/durable_log.py"
FOLLOWER = "services/schema_registry/tistream_schema/follower.py"
KEEPING = "services/schema_registry/tistream_schema/keeping.py"
TENANT = "services/schema_registry/tistream_schema/tenant_schema.py"
BASE = "shared/tistream/schema/base.py"
HISTORY = "shared/tistream/schema/history.py"
JOBS = "shared/tistream/schema/ddl_event.py"
REPLICA = "shared/tistream/wire/schema_client.py"

COLLECTION = "tests/unit/schema_registry/test_log_collection.py"
REPLICAS = "tests/unit/schema_registry/test_replicas_of_a_collected_log.py"
BASES = "tests/unit/schema/test_base.py"
HISTORIES = "tests/unit/schema/test_history.py"

MUTANTS = (
    Mutant(
        name="base-above-what-is-retained",
        invariants=(16, 19),
        breaks="history is forgotten up to what is durable, whatever retention says",
        file=KEEPING,
        old="    return min([durable_ts, *retained_ts])\n",
        new="    return durable_ts\n",
        catchers=(f"{COLLECTION}::test_what_is_kept_for_ever_is_never_restated",),
    ),
    Mutant(
        name="base-of-the-newest-task",
        invariants=(14, 16, 19),
        breaks="the highest retained_ts of the schema's tasks counts, not the lowest",
        file=KEEPING,
        old="    return min([durable_ts, *retained_ts])\n",
        new="    return min(durable_ts, max(retained_ts))\n",
        catchers=(f"{COLLECTION}::test_nothing_that_any_task_still_keeps_is_forgotten",),
    ),
    Mutant(
        name="forgotten-times-answered",
        invariants=(16, 19),
        breaks="a history answers for times of which it has forgotten a part",
        file=HISTORY,
        old="        if ts < self._forgotten_ts:\n",
        new="        if ts < 0:\n",
        catchers=(f"{HISTORIES}::test_what_was_forgotten_is_gone_and_never_half_told",),
    ),
    Mutant(
        name="rows-gone-unnoticed",
        invariants=(19,),
        breaks="the registry reads on where rows of the pool may be gone",
        file=FOLLOWER,
        old="        if retained_ts > self._resolved_ts():\n            reason",
        new="        if retained_ts < 0:\n            reason",
        catchers=(f"{COLLECTION}::test_rows_that_are_gone_and_not_in_the_log_hold_the_schema_loudly",),
    ),
    Mutant(
        name="sleeper-does-not-look-into-the-log",
        invariants=(21,),
        breaks="a registry whose rows are gone stops, though another has written them",
        file=FOLLOWER,
        old="        if retained_ts > self._resolved_ts():\n            self._take(self._durable.catch_up())\n",
        new="",
        catchers=(f"{COLLECTION}::test_a_sleeper_whose_rows_are_gone_takes_them_from_the_log",),
    ),
    Mutant(
        name="schema-log-put-below-the-floor-believed",
        invariants=(11,),
        breaks="who puts a number that was collected goes on behind it",
        file=DURABLE,
        old="            if self._read_floor() > log_object.number:\n",
        new="            if self._read_floor() < 0:\n",
        catchers=(f"{COLLECTION}::test_a_writer_that_wakes_with_a_collected_number_gives_way",),
    ),
    Mutant(
        name="schema-log-floor-not-read-again",
        invariants=(11,),
        breaks="a reader believes what it found though the floor has risen above it",
        file=DURABLE,
        old="                if self._read_floor() <= first:\n                    return found\n",
        new="                return found\n",
        catchers=(f"{COLLECTION}::test_a_sleeper_whose_rows_are_gone_takes_them_from_the_log",),
    ),
    Mutant(
        name="schema-log-collected-before-its-floor",
        invariants=(12,),
        breaks="objects below a base are deleted before the floor that leads past them is durable",
        file=FOLLOWER,
        old="        if self._durable.base > self._durable.floor:\n            self._durable.raise_floor()\n",
        new="        self._durable.floor = max(self._durable.floor, self._durable.base)\n",
        catchers=(f"{COLLECTION}::test_a_crash_at_any_write_loses_nothing_and_leaves_a_log_that_can_be_read",),
    ),
    Mutant(
        name="schema-log-floor-goes-down",
        invariants=(12,),
        breaks="whoever wrote an older base puts the floor back to it",
        file=DURABLE,
        old="        if current < self.base:\n",
        new="        if current != self.base:\n",
        catchers=(f"{COLLECTION}::test_the_floor_of_the_log_only_rises",),
    ),
    Mutant(
        name="schema-log-grace-begins-anew",
        invariants=(23,),
        breaks="each new floor puts off what the one before it would delete",
        file=KEEPING,
        old="            self._floors.append((floor, now_ms))\n",
        new="            self._floors = deque([(floor, now_ms)])\n",
        catchers=(f"{COLLECTION}::test_a_day_of_one_ddl_a_minute_leaves_a_bounded_number_of_objects",),
    ),
    Mutant(
        name="schema-log-no-grace",
        invariants=(12,),
        breaks="what lies below the floor is deleted at once",
        file=KEEPING,
        old="if now_ms - found_ms >= self._keeping.grace_ms), default=0)\n",
        new="), default=0)\n",
        catchers=(f"{COLLECTION}::test_nothing_is_deleted_before_the_grace_has_passed",),
    ),
    Mutant(
        name="quiet-schema-progress-not-kept",
        invariants=(21,),
        breaks="without DDL the log does not move on, so that sorters keep the schema's rows for ever",
        file=KEEPING,
        old="        return self._segments > 0 and now_ms - self._written_ms >= self._keeping.quiet_ms\n",
        new="        return False\n",
        catchers=(f"{COLLECTION}::test_quiet_progress_is_kept_after_an_hour_and_only_if_there_was_any",),
    ),
    Mutant(
        name="idle-schema-writes",
        invariants=(24,),
        breaks="a tenant for which nothing comes writes an object an hour",
        file=KEEPING,
        old="        return self._segments > 0 and now_ms",
        new="        return now_ms",
        catchers=(f"{COLLECTION}::test_quiet_progress_is_kept_after_an_hour_and_only_if_there_was_any",),
    ),
    Mutant(
        name="base-forgets-told-jobs",
        invariants=(16, 18),
        breaks="a job that was told before the base is told again after it",
        file=JOBS,
        old="            told_ts = ts if mark.told else None\n",
        new="            told_ts = None\n",
        catchers=(f"{BASES}::test_a_job_that_was_told_before_the_base_is_not_told_again_after_it",),
    ),
    Mutant(
        name="base-tells-jobs-as-of-now",
        invariants=(16, 18),
        breaks="a base says of a job what it came to only afterwards: it is never told",
        file=JOBS,
        old="life.told_ts is not None and life.told_ts <= ts, life.before_history)\n",
        new="life.told_ts is not None, life.before_history)\n",
        catchers=(f"{BASES}::test_a_job_that_was_told_before_the_base_is_not_told_again_after_it",),
    ),
    Mutant(
        name="base-without-what-was-dropped",
        invariants=(17,),
        breaks="a base does not know the ids of tables that are gone",
        file=HISTORY,
        old="        return Base(self._current.named(), self._jobs.marks(ts))\n",
        new="        return Base((), self._jobs.marks(ts))\n",
        catchers=(f"{BASES}::test_what_was_dropped_is_not_restated_and_what_moved_is_where_it_is",),
    ),
    Mutant(
        name="base-restates-what-was-dropped",
        invariants=(16,),
        breaks="a table that was dropped is in the base all the same",
        file=BASE,
        old="                tables.pop((change.database_id, change.table_id), None)\n",
        new="",
        catchers=(f"{BASES}::test_what_was_dropped_is_not_restated_and_what_moved_is_where_it_is",),
    ),
    Mutant(
        name="replica-behind-goes-on",
        invariants=(16,),
        breaks="a replica that lacks records which are not kept any more goes on with those that are",
        file=REPLICA,
        old="        if page.begins:  # what is known stays true, and is told until the whole of this is here\n",
        new="        if page.begins and self.history is None:\n",
        catchers=(f"{REPLICAS}::test_who_is_behind_reads_anew_and_tells_meanwhile_what_it_knows",),
    ),
    Mutant(
        name="half-of-two-bases",
        invariants=(16,),
        breaks="a replica that has read a part of one base is given the rest of another",
        file=TENANT,
        old="(after <= first or known_base_ts != history.base_ts)\n",
        new="after <= first\n",
        catchers=(f"{REPLICAS}::test_a_base_under_a_replica_that_reads_begins_its_reading_anew",),
    ),
    Mutant(
        name="base-moves-the-numbers",
        invariants=(16,),
        breaks="records above a base get other numbers than they had",
        file=TENANT,
        old="        head = BaseHead(base_ts, len(early), kept.first + at, self._log_id, snapshot_ts)\n",
        new="        head = BaseHead(base_ts, len(early), len(early), self._log_id, snapshot_ts)\n",
        catchers=(f"{REPLICAS}::test_who_is_up_to_date_goes_on_and_forgets_too",),
    ),
)
