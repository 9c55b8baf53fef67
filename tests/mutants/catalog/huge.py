"""Pending state that points, parts that are left alone, segments written early, large ticks (docs/adr/0007)."""

# ruff: noqa: E501 - quoted code keeps its length
from mutants.mutant import Mutant

SORTER = "services/sorter/tistream_sorter"
POINTERS = f"{SORTER}/jobs/pointers.py"
PRUNING = f"{SORTER}/jobs/pruning.py"
SHARD_IO = f"{SORTER}/jobs/shard_io.py"
SHARD_OUTPUT = f"{SORTER}/jobs/shard_output.py"
PROMOTION = f"{SORTER}/promotion.py"
NODE = f"{SORTER}/node.py"
SWEEP = f"{SORTER}/sweep.py"
MANIFEST = "shared/tistream/format/manifest.py"
SMALL = "tests/unit/sorter/test_huge_in_small.py"
PARTS = "tests/unit/sorter/test_huge_pruning.py"
PLANS = "tests/unit/sorter/test_huge_plans.py"

MUTANTS = (
    Mutant(
        name="pointer-one-row-off",
        invariants=(7,),
        breaks="a pointer names the row after its own",
        file=POINTERS,
        old="        out.append(np.arange(first, first + rows, dtype=np.int64))\n",
        new="        out.append(np.arange(first + 1, first + rows + 1, dtype=np.int64))\n",
        catchers=(f"{SMALL}::test_a_waiting_value_stays_in_its_source_until_it_is_flushed",),
    ),
    Mutant(
        name="pointer-into-another-source",
        invariants=(7, 10),
        breaks="of two sources of a part the pointers of one are read in the other",
        file=POINTERS,
        old="            numbers[number] = at\n",
        new="            numbers[number] = 0\n",
        catchers=(
            "tests/unit/sorter/test_huge_pointers.py::test_a_part_names_what_its_rows_point_into_and_nothing_else",
        ),
    ),
    Mutant(
        name="source-not-named",
        invariants=(10, 12),
        breaks="a manifest does not name the source files that its pending rows point into",
        file=SHARD_OUTPUT,
        old="        self.pending.append(replace(part, sources=sources, pointed_bytes=pointed_bytes))\n",
        new="        self.pending.append(replace(part, pointed_bytes=pointed_bytes))\n",
        catchers=(f"{SMALL}::test_a_waiting_value_stays_in_its_source_until_it_is_flushed",),
    ),
    Mutant(
        name="values-copied-to-others",
        invariants=(7,),
        breaks="values fetched for the last rows of a row group are written in the order in which they were read",
        file=f"{SORTER}/jobs/pending_parts.py",
        old="take(pa.array(np.argsort(np.concatenate(asked))))",
        new="take(pa.array(np.argsort(np.concatenate(asked))[::-1]))",
        catchers=(f"{SMALL}::test_the_last_rows_of_a_row_group_are_copied_so_that_their_source_may_go",),
    ),
    Mutant(
        name="part-of-the-newest-transaction-pruned",
        invariants=(6, 7),
        breaks="a part is left alone though a change of its highest start_ts has come",
        file=PRUNING,
        old="(near <= part.start_ts_max)",
        new="(near < part.start_ts_max)",
        catchers=(f"{PARTS}::test_a_part_that_is_left_alone_holds_nothing_that_is_at_hand",),
    ),
    Mutant(
        name="part-with-the-highest-key-pruned",
        invariants=(6, 7),
        breaks="a part is left alone though its highest key has come",
        file=PRUNING,
        old="[part.span.end for part in parts]",
        new="[part.span.end[:-1] for part in parts]",
        catchers=(f"{PARTS}::test_a_part_of_other_transactions_or_other_keys_is_left_alone",),
    ),
    Mutant(
        name="part-in-the-window-pruned",
        invariants=(6, 7),
        breaks="a part is left alone though the window has reached a commit in it",
        file=PRUNING,
        old="            or part.commit_ts_min <= self.high\n",
        new="            or part.commit_ts_min < self.high\n",
        catchers=(f"{PARTS}::test_a_part_that_is_left_alone_holds_nothing_that_is_at_hand",),
    ),
    Mutant(
        name="other-halves-pruned",
        invariants=(6, 7),
        breaks="the prewrites of pipelined commits that the window has reached are left alone",
        file=SHARD_IO,
        old="for table in (changes, *reached)]))\n",
        new="for table in (changes,)]))\n",
        catchers=(f"{SMALL}::test_pipelined_halves_in_parts_of_their_own_meet_when_the_window_reaches_the_commit",),
    ),
    Mutant(
        name="pruned-under-a-scan",
        invariants=(7,),
        breaks="a scan ends pipelined locks whose commits are in parts that were left alone",
        file=PRUNING,
        old="            or any(part.span.overlaps(span) for span in self.scanned)\n",
        new="",
        catchers=(f"{SMALL}::test_a_scan_ends_no_pipelined_lock_whose_commit_waits_in_another_part",),
    ),
    Mutant(
        name="work-of-parts-not-counted",
        invariants=(23,),
        breaks="parts that are read in any case are no work: too few shards, in everybody's way",
        file=f"{SORTER}/shards.py",
        old="        elif touched or reads.reaches(part):\n",
        new="        elif touched:\n",
        catchers=(f"{PLANS}::test_whatever_a_tick_reads_is_work",),
    ),
    Mutant(
        name="cuts-where-pending-parts-begin",
        invariants=(23,),
        breaks="all of a pending part's work lies at its lowest key: row groups are cut through, and read twice",
        file=f"{SORTER}/key_scale.py",
        old="        _Candidate(key, scale.below(key), ",
        new="        _Candidate(key, begun[bisect_left(lows, key)], ",
        catchers=(
            "tests/unit/sorter/test_shard_cuts.py::test_what_is_pending_all_over_a_shard_leaves_cuts_between_regions",
        ),
    ),
    Mutant(
        name="cuts-by-the-keys-of-other-tables",
        invariants=(23,),
        breaks="keys are numbers of eight bytes: beside a key of another table one shard has all of a table's rows",
        file=f"{SORTER}/key_scale.py",
        old="KEY_BYTES = 40 ",
        new="KEY_BYTES = 8 ",
        catchers=(
            "tests/unit/sorter/test_shard_cuts.py"
            "::test_a_row_group_of_another_table_does_not_keep_cuts_from_being_even[others0]",
        ),
    ),
    Mutant(
        name="pair-of-different-transactions",
        invariants=(5, 7),
        breaks="the prewrite of one transaction is settled by the commit of another whose hash begins with the same bits",
        file=f"{SORTER}/jobs/pairs.py",
        old="    same &= entries.start_ts[left] == entries.start_ts[right]",
        new="    same &= True",
        catchers=("tests/unit/sorter/test_fast_path.py::test_a_hash_that_two_transactions_share_makes_no_pair",),
    ),
    Mutant(
        name="early-segment-named-too-soon",
        invariants=(5, 9),
        breaks="a segment written early is named before the window reaches its commit_ts",
        file=PROMOTION,
        old="    reached = [part for part in parts if part.kind == SEALED and part.commit_ts_min <= high]\n",
        new="    reached = [part for part in parts if part.kind == SEALED]\n",
        catchers=(f"{PLANS}::test_a_segment_written_early_is_named_when_the_window_reaches_it_and_not_before",),
    ),
    Mutant(
        name="early-segment-forgotten",
        invariants=(7, 13),
        breaks="a segment written early is pending no more, and is never named",
        file=PROMOTION,
        old="    reached = [part for part in parts if part.kind == SEALED and part.commit_ts_min <= high]\n",
        new="    reached = [part for part in parts if part.kind == SEALED and part.commit_ts_min < high]\n",
        catchers=(f"{PLANS}::test_a_segment_written_early_is_named_when_the_window_reaches_it_and_not_before",),
    ),
    Mutant(
        name="repeats-of-early-segments-kept",
        invariants=(7,),
        breaks="a row that is in a segment written early is committed again when it is repeated",
        file=SHARD_IO,
        old="    return changes.filter((~found).to_arrow()) if found.any() else changes\n",
        new="    return changes\n",
        catchers=(f"{SMALL}::test_a_row_that_comes_again_while_it_waits_as_a_segment_is_there_once",),
    ),
    Mutant(
        name="pending-read-by-old-programs",
        invariants=(7, 10),
        breaks="a manifest whose rows point is written under the version that knows no pointers",
        file=MANIFEST,
        old="VERSION = 4\n",
        new="VERSION = 1\n",
        catchers=(
            "tests/unit/format/test_pending_part_format.py::test_a_manifest_that_points_is_refused_by_who_knows_version_1_alone",
        ),
    ),
    Mutant(
        name="large-tick-in-everybodys-way",
        invariants=(21, 23),
        breaks="a large tick runs in the job of all the others",
        file=NODE,
        old="            if isinstance(due, Plan) and due.work > self._large_work:\n",
        new="            if isinstance(due, Plan) and due.work < 0:\n",
        catchers=(f"{SMALL}::test_a_large_tick_holds_nobody_up_and_is_committed_when_it_has_ended",),
    ),
    Mutant(
        name="large-tick-begun-again",
        invariants=(7, 11),
        breaks="a task whose large tick is under way is given another one",
        file=NODE,
        old="                commits += self._ended(one)\n                continue\n",
        new="                commits += self._ended(one)\n",
        catchers=(f"{SMALL}::test_a_large_tick_holds_nobody_up_and_is_committed_when_it_has_ended",),
    ),
    Mutant(
        name="large-parts-never-swept",
        invariants=(23,),
        breaks="dead locks in large parts stay for ever",
        file=SWEEP,
        old="                chosen.add(part.key)\n",
        new="                chosen.discard(part.key)\n",
        catchers=(f"{SMALL}::test_a_dead_lock_in_a_large_part_goes_when_it_is_its_turn",),
    ),
)
