"""Manifests: claims, fencing, answers that are lost, the floor (design.md 4); and the databases of meta and registry
that fence alike."""

# ruff: noqa: E501 - quoted code keeps its length
from mutants.mutant import Mutant

LOG = "shared/tistream/storage/manifest_log.py"
FOLLOW = "shared/tistream/storage/manifest_follow.py"
VIEW = "shared/tistream/format/task_view.py"

MUTANTS = (
    Mutant(
        name="work-without-a-claim",
        invariants=(11, 22),
        breaks="a new holder writes no claim: the old one's next commit succeeds",
        file=LOG,
        old="            try:\n                self._put(claim.number, manifest_format.encode(claim))\n",
        new="            try:\n                break\n",
        catchers=("tests/unit/storage/test_manifest_log.py::test_an_old_holder_is_fenced_however_long_it_was_paused",),
    ),
    Mutant(
        name="claim-against-a-newer-epoch",
        invariants=(11,),
        breaks="an old epoch may claim after a newer one",
        file=LOG,
        old="        if self._view.epoch >= epoch:\n",
        new="        if self._view.epoch > epoch + 1_000_000:\n",
        catchers=("tests/unit/storage/test_manifest_log.py::test_a_claim_needs_a_higher_epoch",),
    ),
    Mutant(
        name="claim-against-the-same-epoch",
        invariants=(11,),
        breaks="two processes may claim with one epoch",
        file=LOG,
        old="        if self._view.epoch >= epoch:\n",
        new="        if self._view.epoch > epoch:\n",
        catchers=("tests/unit/storage/test_manifest_log.py::test_a_claim_needs_a_higher_epoch",),
    ),
    Mutant(
        name="claim-after-the-seal",
        invariants=(11,),
        breaks="a sealed task may be claimed",
        file=LOG,
        old="        if last is not None and last.kind == KIND_SEAL:\n            raise Sealed(",
        new="        if last is None and self._view.epoch == epoch:\n            raise Sealed(",
        catchers=("tests/unit/storage/test_manifest_log.py::test_a_seal_ends_the_task",),
    ),
    Mutant(
        name="commit-without-epoch-check",
        invariants=(11,),
        breaks="a holder that lost the number reads on and puts its manifest at the next one",
        file=LOG,
        old="            with self._unknown_until_read(manifest.number):\n"
        "                self._refuse_if_fenced(manifest.number, self._epoch)\n"
        "            self._epoch = None\n            raise error\n",
        new="            from dataclasses import replace\n"
        "            self._view = self._task.follow(self._view)\n"
        "            again = replace(manifest, number=self.next_number, low_ts=self._view.flushed_ts,\n"
        "                            flushed_ts=max(manifest.flushed_ts, self._view.flushed_ts),\n"
        "                            task_epoch=self._view.epoch)\n"
        "            self._epoch = self._view.epoch\n"
        "            self._put(again.number, manifest_format.encode(again))\n"
        "            self._in_doubt, self._view = None, extend(self._view, [again])\n"
        "            return self._view\n",
        catchers=("tests/unit/storage/test_manifest_log.py::test_an_old_holder_is_fenced_however_long_it_was_paused",),
    ),
    Mutant(
        name="read-back-skipped",
        invariants=(7, 11),
        breaks="after a lost answer the own manifest at the number is taken for a foreign one",
        file=LOG,
        old="                    if self._objects.get(key) == body:\n                        return\n                    raise\n",
        new="                    raise\n",
        catchers=("tests/unit/storage/test_manifest_log.py::test_an_unknown_answer_is_settled_at_the_same_number",),
    ),
    Mutant(
        name="foreign-manifest-taken-for-the-own",
        invariants=(7, 11),
        breaks="whoever finds the number taken believes that it was its own put",
        file=LOG,
        old="                    if self._objects.get(key) == body:\n                        return\n                    raise\n",
        new="                    return\n",
        catchers=("tests/unit/storage/test_manifest_log.py::test_an_old_holder_is_fenced_however_long_it_was_paused",),
    ),
    Mutant(
        name="unknown-answer-is-success",
        invariants=(7, 11),
        breaks="a put whose answer was lost is believed to have happened",
        file=LOG,
        old="                doubtful, problem = True, error\n",
        new="                return\n",
        catchers=("tests/unit/storage/test_manifest_log.py::test_an_unknown_answer_is_settled_at_the_same_number",),
    ),
    Mutant(
        name="unknown-answer-is-failure",
        invariants=(7, 11),
        breaks="a put whose answer was lost is believed not to have happened: another manifest may follow",
        file=LOG,
        old="        raise CommitStateUnknown(key) if doubtful else problem\n",
        new='        raise Unavailable(f"cannot write {key}")\n',
        catchers=(
            "tests/unit/storage/test_manifest_log.py::test_a_lost_answer_whose_number_went_to_a_newer_epoch_is_fenced",
        ),
    ),
    Mutant(
        name="doubt-forgotten",
        invariants=(7, 11),
        breaks="after an unknown answer other bytes may be put at the number",
        file=LOG,
        old="            self._in_doubt = body\n            raise\n",
        new="            raise\n",
        catchers=("tests/unit/storage/test_manifest_log.py::test_in_doubt_only_the_same_bytes_may_follow",),
    ),
    Mutant(
        name="doubt-until-the-floor-forgotten",
        invariants=(7, 11),
        breaks="a manifest that was put counts as failed when the floor could not be read after it",
        file=LOG,
        old="        self._in_doubt = body\n        with self._unknown_until_read(manifest.number):\n"
        "            self._check_floor(",
        new="        if True:\n            self._check_floor(",
        catchers=("tests/unit/storage/test_manifest_log.py::test_a_commit_is_in_doubt_until_the_floor_was_read",),
    ),
    Mutant(
        name="floor-not-read-by-holders",
        invariants=(11,),
        breaks="a holder does not see that its number had been collected",
        file=LOG,
        old="            self._check_floor(manifest.number, self._epoch)\n",
        new="            assert view\n",
        catchers=("tests/unit/storage/test_manifest_log.py::test_a_commit_is_in_doubt_until_the_floor_was_read",),
    ),
    Mutant(
        name="floor-not-read-by-claimants",
        invariants=(11,),
        breaks="a claim at a collected number counts",
        file=LOG,
        old="            if self._task.floor() > claim.number:",
        new="            if claim.number < 0:",
        catchers=("tests/unit/storage/test_manifest_log.py::test_a_claim_below_the_floor_says_nothing",),
    ),
    Mutant(
        name="floor-not-read-by-readers",
        invariants=(10, 11),
        breaks="a reader believes a manifest that a put long under way brought back",
        file=FOLLOW,
        old="            if self.floor() <= oldest:\n",
        new="            if oldest:\n",
        catchers=(
            "tests/unit/storage/test_manifest_log.py::test_a_reader_that_slept_through_a_collection_plans_again",
        ),
    ),
    Mutant(
        name="floor-goes-down",
        invariants=(3, 12),
        breaks="the floor is lowered by whoever comes late",
        file=LOG,
        old="        if current < checkpoint:\n",
        new="        if current != checkpoint:\n",
        catchers=("tests/unit/storage/test_manifest_log.py::test_the_floor_only_rises",),
    ),
    Mutant(
        name="manifest-overwritten",
        invariants=(7, 10, 11),
        breaks="the put of a manifest is not conditional",
        file=LOG,
        old="                    self._objects.put_new(key, body)\n                    return\n                except",
        new="                    self._objects.put(key, body)\n                    return\n                except",
        catchers=("tests/unit/storage/test_manifest_log.py::test_an_old_holder_is_fenced_however_long_it_was_paused",),
    ),
    Mutant(
        name="flushed-goes-down",
        invariants=(3,),
        breaks="readers take a manifest whose flushed_ts is lower than the last one's",
        file=VIEW,
        old="        if manifest.flushed_ts < flushed_ts or manifest.low_ts > manifest.flushed_ts:\n",
        new="        if manifest.flushed_ts < 0:\n",
        catchers=(
            "tests/unit/storage/test_manifest_log.py::test_manifests_that_contradict_each_other_stop_their_readers",
        ),
    ),
    Mutant(
        name="window-with-a-hole",
        invariants=(3, 5),
        breaks="readers take a manifest whose window does not begin where the last one's ended",
        file=VIEW,
        old="            if state is not None and manifest.low_ts != flushed_ts:\n",
        new="            if state is not None and manifest.low_ts < 0:\n",
        catchers=(
            "tests/unit/storage/test_manifest_log.py::test_manifests_that_contradict_each_other_stop_their_readers",
        ),
    ),
    Mutant(
        name="older-epoch-read",
        invariants=(11, 15),
        breaks="readers take a manifest of an older epoch after a newer one's",
        file=VIEW,
        old="        if manifest.task_epoch < epoch:\n",
        new="        if manifest.task_epoch < 0:\n",
        catchers=(
            "tests/unit/storage/test_manifest_log.py::test_manifests_that_contradict_each_other_stop_their_readers",
        ),
    ),
    Mutant(
        name="foreign-manifest-read",
        invariants=(10, 20),
        breaks="a manifest of another task or tenant is read as one's own",
        file=VIEW,
        old="    if found != (tenant, task_id, number):\n",
        new="    if found[2] != number:\n",
        catchers=("tests/unit/storage/test_manifest_log.py::test_a_manifest_of_another_task_is_corrupt",),
    ),
    Mutant(
        name="segments-of-the-checkpoint-doubled",
        invariants=(7,),
        breaks="a checkpoint's live segments are added to those known, not taken in their place",
        file=VIEW,
        old="                segments = list(manifest.live_segments)\n",
        new="                segments = [*view.segments, *manifest.live_segments]\n",
        catchers=("tests/unit/storage/test_manifest_race.py::test_commits_survive_any_race",),
    ),
    Mutant(
        name="claim-nonce-forgotten",
        invariants=(21,),
        breaks="a claim whose answer was lost is tried again under a new nonce and fences itself",
        file="services/sorter/tistream_sorter/claims.py",
        old="            nonce = self._nonces.setdefault(key, self._new_nonce())\n",
        new="            nonce = self._new_nonce()\n",
        catchers=("tests/unit/sorter/test_review_node.py::test_a_claim_whose_answer_never_came_is_found_again",),
    ),
    Mutant(
        name="registry-log-forked",
        invariants=(16, 22),
        breaks="a second registry overwrites what the first made durable",
        file="services/schema_registry/tistream_schema/durable_log.py",
        old="                self.objects.put_new(key, body)\n",
        new="                self.objects.put(key, body)\n",
        catchers=("tests/unit/schema_registry/test_durable_log.py::test_the_second_writer_takes_what_the_first_wrote",),
    ),
    Mutant(
        name="epoch-not-raised-at-register",
        invariants=(11,),
        breaks="a sorter that starts again works under the epoch of its former self",
        file="services/meta/tistream_meta/repository.py",
        old="update(tasks).where(tasks.c.sorter_node == node_id).values(task_epoch=tasks.c.task_epoch + 1)",
        new="update(tasks).where(tasks.c.sorter_node == node_id).values(task_epoch=tasks.c.task_epoch + 0)",
        catchers=(
            "tests/unit/meta/test_repository.py::test_every_move_and_every_start_of_its_sorter_takes_a_new_epoch",
        ),
    ),
    Mutant(
        name="epoch-not-raised-at-move",
        invariants=(11, 15),
        breaks="a task that moves to another sorter keeps its epoch",
        file="services/meta/tistream_meta/repository.py",
        old=".values(sorter_node=move.sorter_node, task_epoch=tasks.c.task_epoch + 1)",
        new=".values(sorter_node=move.sorter_node)",
        catchers=(
            "tests/unit/meta/test_repository.py::test_every_move_and_every_start_of_its_sorter_takes_a_new_epoch",
        ),
    ),
    Mutant(
        name="old-meta-server-writes",
        invariants=(11, 22),
        breaks="a meta server that lost its lease still writes to the database",
        file="services/meta/tistream_meta/repository.py",
        old="            if connection.execute(touch).rowcount != 1:\n                current",
        new="            if connection.execute(touch).rowcount > 1:\n                current",
        catchers=(
            "tests/unit/meta/test_repository.py::test_another_node_waits_for_the_lease_and_then_fences_the_first",
        ),
    ),
    Mutant(
        name="lease-not-awaited",
        invariants=(22,),
        breaks="a meta server takes the ownership while another's lease runs",
        file="services/meta/tistream_meta/repository.py",
        old="            .where((owner.c.lease_until_ms < self._now_ms) | (owner.c.node_id == self._node_id))\n",
        new="",
        catchers=(
            "tests/unit/meta/test_repository.py::test_another_node_waits_for_the_lease_and_then_fences_the_first",
        ),
    ),
    Mutant(
        name="new-owner-counts-old-silence",
        invariants=(22,),
        breaks="a new owner calls nodes lost that it could not have heard yet",
        file="services/meta/tistream_meta/liveness.py",
        old="    silence_ms = now_ms - max(owner_since_ms, owner_since_ms if heard_ms is None else heard_ms)\n",
        new="    silence_ms = now_ms - (0 if heard_ms is None else heard_ms)\n",
        catchers=("tests/unit/meta/test_assignment_rules.py::test_a_new_owner_counts_silence_from_its_own_beginning",),
    ),
    Mutant(
        name="old-start-heard",
        invariants=(15,),
        breaks="a heartbeat of an earlier start of a process counts for the newest",
        file="services/meta/tistream_meta/server.py",
        old="node.node_id == node_id and node.start_epoch == start_epoch for node",
        new="node.node_id == node_id for node",
        catchers=("tests/unit/meta/test_meta_routes.py::test_heartbeats_are_for_the_newest_start_of_a_node",),
    ),
    Mutant(
        name="older-routes-published",
        invariants=(15,),
        breaks="a route table with a lower version replaces a newer one",
        file="services/meta/tistream_meta/route_table.py",
        old="            if self._table is None or table.version >= self._table.version:\n",
        new="            if self._table is None or table.version != self._table.version:\n",
        catchers=("tests/unit/meta/test_route_board.py::test_an_older_table_that_comes_late_replaces_nothing",),
    ),
)
