"""What one tenant does must not cost another (design.md 5 and 7, invariants 17, 20 and 23)."""

from mutants.mutant import Mutant

TURNS = "services/api/tistream_api/turns.py"
WORKING = "services/api/tistream_api/working.py"
GATE = "services/api/tistream_api/gate.py"
FEED = "services/dispatcher/tistream_dispatcher/tenant_feed.py"
UNPACKING = "shared/tistream/format/unpacking.py"
READER = "shared/tistream/storage/change_reader.py"
REFUSALS = "services/api/tistream_api/refusals.py"
REFUSED = "tests/unit/api/test_refusals.py::"
IN_TURN = "tests/unit/api/test_turns.py::"
AT_WORK = "tests/unit/api/test_working.py::"
SIZES = "tests/unit/format/test_unpacking.py::"

MUTANTS = (
    Mutant(
        name="hostile-refusals-never-wait",
        invariants=(17,),
        breaks="whoever is refused may ask again as fast as it likes, without a token too",
        file=REFUSALS,
        old="        if wait_s <= 0:\n            return\n",
        new="        if wait_s >= 0:\n            return\n",
        catchers=(
            REFUSED + "test_refusals_wait[401]",
            "tests/unit/api/test_access_ends.py::test_who_is_refused_without_end_waits_for_it_and_who_is_not_does_not",
        ),
    ),
    Mutant(
        name="hostile-refusals-are-owed-without-end",
        invariants=(17,),
        breaks="after a flood its sender waits for hours",
        file=REFUSALS,
        old="        if not 0 < wait_s < WAIT_MAX_S:",
        new="        if wait_s <= 0:",
        catchers=(REFUSED + "test_nobody_waits_longer_than_the_most_and_nobody_owes_more",),
    ),
    Mutant(
        name="hostile-refusals-by-address-alone",
        invariants=(17,),
        breaks="who has a valid token waits for the refusals of strangers behind the same address",
        file=REFUSALS,
        old="    if caller is not None:\n        return f",
        new="    if caller is not None and False:\n        return f",
        catchers=(REFUSED + "test_whose_token_is_valid_does_not_wait_for_who_shares_its_address",),
    ),
    Mutant(
        name="hostile-refusals-wait-without-bound",
        invariants=(23,),
        breaks="whoever asks and does not wait for the answer fills the memory",
        file=REFUSALS,
        old="        if self.waiting >= WAITING_MAX or self._waiting_of[who] >= WAITING_EACH:\n",
        new="        if self.waiting < 0:\n",
        catchers=(
            REFUSED + "test_so_many_wait_and_no_more",
            REFUSED + "test_when_there_is_no_room_it_is_told_at_once_on_a_connection_that_ends",
        ),
    ),
    Mutant(
        name="hostile-refusals-hold-bodies",
        invariants=(23,),
        breaks="what refused requests have sent is in memory while they wait",
        file=REFUSALS,
        old="        if received > BODY_BYTES_MAX or not",
        new="        if not",
        catchers=(REFUSED + "test_who_has_sent_much_does_not_hold_it_in_memory",),
    ),
    Mutant(
        name="hostile-refusals-outlast-the-process",
        invariants=(21,),
        breaks="refusals that wait are cut with a 500 when the process ends",
        file=REFUSALS,
        old="            while left_s > 0 and not self._stopping.is_set():\n",
        new="            while left_s > 0:\n",
        catchers=(REFUSED + "test_when_the_process_ends_all_are_told",),
    ),
    Mutant(
        name="hostile-who-goes-on-is-forgotten",
        invariants=(17,),
        breaks="whoever is refused most is forgotten for all who were refused once after it",
        file=REFUSALS,
        old="        self._of.move_to_end(who)\n",
        new="",
        catchers=(REFUSED + "test_who_goes_on_is_not_forgotten_for_all_who_come_after",),
    ),
    Mutant(
        name="hostile-each-address-of-a-network-is-another",
        invariants=(17,),
        breaks="whoever has an IPv6 network has an address for each of its refusals",
        file=REFUSALS,
        old="_PREFIX = 64",
        new="_PREFIX = 128",
        catchers=(REFUSED + "test_whose_an_address_is[one-ipv6-network]",),
    ),
    Mutant(
        name="hostile-all-tenants-in-one-line",
        invariants=(17,),
        breaks="a tenant's requests wait behind those of another",
        file=GATE,
        old='        turn = request.state.turn = await self._turns.begin((*who, "push") if access.in_body else who)\n',
        new="        turn = request.state.turn = await self._turns.begin(None)\n",
        catchers=(
            "tests/unit/api/test_access_ends.py::test_a_tenant_that_asks_what_is_long_in_being_answered_leaves_threads_to_others",
        ),
    ),
    Mutant(
        name="hostile-a-line-without-end",
        invariants=(23,),
        breaks="however many requests of a tenant wait, one more may",
        file=TURNS,
        old="        if len(line.waiting) >= self._waiting_max:\n",
        new="        if len(line.waiting) < 0:\n",
        catchers=(IN_TURN + "test_who_would_be_too_many_in_line_is_told_to_come_again",),
    ),
    Mutant(
        name="hostile-a-turn-of-who-has-gone-is-lost",
        invariants=(21,),
        breaks="a turn that was given to a request that is gone is nobody's for ever",
        file=TURNS,
        old="            if mine.done() and not mine.cancelled():\n",
        new="            if mine.done() and mine.cancelled():\n",
        catchers=(IN_TURN + "test_a_turn_of_who_has_gone_is_the_next_ones",),
    ),
    Mutant(
        name="hostile-one-tenant-has-all-threads-that-pulls-leave",
        invariants=(17,),
        breaks="with its pulls and its requests a tenant holds every thread of a server",
        file=TURNS,
        old="    return Turns(max(1, left // 4), max(1, left - PROBES))\n",
        new="    return Turns(max(1, left), max(1, left))\n",
        catchers=(IN_TURN + "test_with_all_its_turns_and_all_pulls_a_tenant_leaves_threads_to_others",),
    ),
    Mutant(
        name="hostile-one-tenants-pulls-take-all-work",
        invariants=(17,),
        breaks="pulls of one tenant may be all that a server works at",
        file=WORKING,
        old="        self._alone, self._beside = max(1, at_once - max(1, at_once // 4)),",
        new="        self._alone, self._beside = at_once,",
        catchers=(AT_WORK + "test_one_tenant_leaves_room_and_waits_behind_no_other",),
    ),
    Mutant(
        name="hostile-who-follows-is-forgotten-between-two-rows",
        invariants=(17,),
        breaks="as soon as a tenant works at nothing another's pulls take its place, and it finds all of them there",
        file=WORKING,
        old="            self._worked_ms[who] = self._clock.monotonic_ms()\n",
        new="            self._worked_ms[who] = -BESIDE_MS\n",
        catchers=(AT_WORK + "test_beside_others_one_works_at_less_until_they_are_gone",),
    ),
    Mutant(
        name="hostile-half-a-request-held-for-ever",
        invariants=(17, 23),
        breaks="a connection on which half a request has come stays open, however many there are",
        file="shared/tistream/service/request_deadline.py",
        old="_NOT_WHOLE = (h11.IDLE, h11.SEND_BODY)\n",
        new="_NOT_WHOLE = (h11.SEND_BODY,)\n",
        catchers=(
            "tests/unit/service/test_request_deadline.py::test_what_is_not_whole_in_time_is_closed[half-a-head]",
        ),
    ),
    Mutant(
        name="hostile-what-a-revoked-key-showed-is-kept",
        invariants=(20,),
        breaks="events that were made of rows with a key are told after the rows themselves may not be any more",
        file="services/api/tistream_api/group_cache.py",
        old="        return min(found, default=None)\n",
        new="        return None\n",
        catchers=("tests/unit/api/test_shared_work.py::test_what_was_made_with_a_key_goes_when_its_rows_go",),
    ),
    Mutant(
        name="hostile-who-waits-longest-works-next",
        invariants=(17,),
        breaks="a tenant with one pull waits behind all that another has begun before",
        file=WORKING,
        old="            *_, who = min(may, key=lambda one: one[:2])\n",
        new="            *_, who = min(may, key=lambda one: one[1])\n",
        catchers=(AT_WORK + "test_who_has_the_fewest_at_work_is_next_however_many_have_waited_longer",),
    ),
    Mutant(
        name="hostile-announcements-of-a-flood-kept",
        invariants=(23,),
        breaks="a dispatcher keeps announcements however many come, and asks for each",
        file="services/dispatcher/tistream_dispatcher/announced.py",
        old="        if self._count >= ANNOUNCED_MAX:\n",
        new="        if self._count < 0:\n",
        catchers=(
            "tests/unit/dispatcher/test_tenant_feed.py::test_a_flood_of_announcements_is_not_kept_and_what_was_true_of_it_is_found",
        ),
    ),
    Mutant(
        name="hostile-announcements-of-a-flood-forgotten",
        invariants=(21,),
        breaks="what was announced beyond the bound is not LISTed for either",
        file=FEED,
        old="            self._hurried |= not self._announced.add(store_id, ts)\n",
        new="            self._announced.add(store_id, ts)\n",
        catchers=(
            "tests/unit/dispatcher/test_tenant_feed.py::test_what_a_flood_of_old_announcements_left_no_room_for_is_looked_for_at_once",
        ),
    ),
    Mutant(
        name="hostile-junk-listed-with-every-poll",
        invariants=(17,),
        breaks="whatever lies in a store's folder is LISTed with every poll",
        file="services/dispatcher/tistream_dispatcher/store_feed.py",
        old="        prefix = layout.change_file_prefix(self._tenant, self.store_id)\n",
        new="        prefix = layout.store_prefix(self._tenant, self.store_id)\n",
        catchers=(
            "tests/unit/dispatcher/test_store_feed.py::test_what_lies_beside_a_stores_files_is_not_listed_again_and_again",
        ),
    ),
    Mutant(
        name="hostile-stores-without-end",
        invariants=(17, 23),
        breaks="every prefix that looks like a store's is read, told and kept, however many a tenant makes",
        file="services/dispatcher/tistream_dispatcher/discovery.py",
        old="            new = frozenset(sorted(unknown)[: max(0, STORES_MAX - self._named - len(self._found))])\n",
        new="            new = frozenset(sorted(unknown)[: max(0, STORES_MAX * 9)])\n",
        catchers=(
            "tests/unit/dispatcher/test_discovery.py::test_thousands_of_prefixes_that_look_like_stores_are_not_all_read",
        ),
    ),
    Mutant(
        name="hostile-dictionaries-written-out-unseen",
        invariants=(23,),
        breaks="a value that a dictionary holds once is written out for every row, however much that is",
        file=UNPACKING,
        old="    if size > expected + added_max:\n",
        new="    if size > (1 << 60):\n",
        catchers=(SIZES + "test_what_dictionaries_add_is_bounded_over_all_row_groups",),
    ),
    Mutant(
        name="hostile-dictionaries-bounded-row-group-by-row-group",
        invariants=(23,),
        breaks="what dictionaries add to a file is bounded for each row group, not for all that are held at once",
        file=READER,
        old="        added_max -= added_bytes(table, [footer.groups[index]])\n",
        new="        added_max -= 0 * added_bytes(table, [footer.groups[index]])\n",
        catchers=(SIZES + "test_what_dictionaries_add_is_bounded_over_all_row_groups",),
    ),
    Mutant(
        name="hostile-pages-believed-above-the-footer",
        invariants=(23,),
        breaks="a page is unpacked to whatever it says, though the footer, by which work is counted, states less",
        file=UNPACKING,
        old="    if unpacked > chunk.unpacked:\n",
        new="    if unpacked > (1 << 60):\n",
        catchers=(SIZES + "test_pages_that_unpack_to_more_than_the_footer_states_are_not_unpacked",),
    ),
)
