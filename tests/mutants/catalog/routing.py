"""From the bucket to the sorters: chains, reading, routing, delivery, the schema's followers (design.md 2 and 4)."""

# ruff: noqa: E501 - quoted code keeps its length
from mutants.mutant import Mutant

CHAIN = "services/dispatcher/tistream_dispatcher/chain.py"
RECEIVERS = "services/dispatcher/tistream_dispatcher/receivers.py"
WINDOW = "services/dispatcher/tistream_dispatcher/window.py"
FEED = "services/dispatcher/tistream_dispatcher/tenant_feed.py"
STORE_FEED = "services/dispatcher/tistream_dispatcher/store_feed.py"
ROUTER = "services/dispatcher/tistream_dispatcher/router.py"
DELIVERY = "services/dispatcher/tistream_dispatcher/delivery.py"
CHANGE_FILE = "shared/tistream/format/change_file.py"

MUTANTS = (
    Mutant(
        name="missing-file-skipped",
        invariants=(2,),
        breaks="the next file that is there is taken though the one before it is missing",
        file=CHAIN,
        old="        found = [file for file in self._with_prev(chain.at_ts) if file.ts < self._end(place)]\n",
        new="        found = [self._waiting[ts] for ts in self._waiting.irange(chain.at_ts + 1, self._end(place) - 1)][:1]\n",
        catchers=(
            "tests/unit/dispatcher/test_chain.py::test_any_arrival_order_takes_every_file_once_and_in_chain_order",
        ),
    ),
    Mutant(
        name="broken-chain-skipped",
        invariants=(2,),
        breaks="two files that name one as the one before do not quarantine: the first is taken",
        file=CHAIN,
        old="        if len(found) != 1 or self._broken(place) is not None:\n",
        new="        if not found:\n",
        catchers=("tests/unit/dispatcher/test_chain.py::test_a_prev_ts_below_the_position_breaks_the_chain",),
    ),
    Mutant(
        name="damaged-file-skipped",
        invariants=(2, 17),
        breaks="a file is taken though one before it is damaged",
        file=CHAIN,
        old="        return found[0] if self._first_damaged(chain.at_ts, found[0].ts) is None else None\n",
        new="        return found[0]\n",
        catchers=("tests/unit/dispatcher/test_store_feed.py::test_no_file_is_taken_past_a_damaged_one",),
    ),
    Mutant(
        name="stale-chain-restarts",
        invariants=(2,),
        breaks="any file with prev_ts 0 begins a new chain, its watermarks being no scans",
        file=CHAIN,
        old="            return file.fresh and file.ts > self._chains[place].at_ts\n",
        new="            return file.ts > self._chains[place].at_ts\n",
        catchers=("tests/unit/dispatcher/test_chain.py::test_a_prev_ts_below_the_position_breaks_the_chain",),
    ),
    Mutant(
        name="older-chain-closed-at-once",
        invariants=(1, 21),
        breaks="an older chain is given up as soon as a new one begins: its late files are lost",
        file=CHAIN,
        old="        while len(self._chains) > 1 and self._chains[1].first_ts <= flushed_ts:\n",
        new="        while len(self._chains) > 1:\n",
        catchers=(
            "tests/unit/dispatcher/test_chain.py::test_a_waiting_chain_stays_open_beside_a_fresh_one_until_the_tenant_is_past_it",
        ),
    ),
    Mutant(
        name="damaged-before-the-grace",
        invariants=(17, 21),
        breaks="a file that is still being written quarantines its store",
        file=CHAIN,
        old="        if unchanged_ms < GRACE_MS:\n            return\n",
        new="",
        catchers=(
            "tests/unit/dispatcher/test_chain.py::test_a_file_that_cannot_be_read_is_not_there_before_the_grace_has_passed",
        ),
    ),
    Mutant(
        name="announcement-trusted-without-the-chain",
        invariants=(2,),
        breaks="an announced file is taken at once, whatever file it follows",
        file=STORE_FEED,
        old="        self.chains.see(file.seen)\n        return file\n",
        new="        seen = file.seen\n"
        "        if self.chains._chains and seen.ts > self.chains._chains[-1].at_ts:\n"
        "            self.chains._chains[-1].at_ts = seen.prev_ts\n"
        "        self.chains.see(seen)\n"
        "        return file\n",
        catchers=("tests/unit/dispatcher/test_store_feed.py::test_an_announced_file_waits_for_those_before_it",),
    ),
    Mutant(
        name="row-group-of-the-boundary-left-out",
        invariants=(7,),
        breaks="a row group whose highest key is a task's first key is not routed to it",
        file=ROUTER,
        old="        last = bisect_right(self._bounds, group.key_max)\n",
        new="        last = bisect_right(self._bounds, group.key_max) - (group.key_max in self._bounds)\n",
        catchers=(
            "tests/unit/dispatcher/test_tenant_feed.py::test_a_row_group_that_ends_at_a_tasks_very_first_key_goes_to_it_too",
        ),
    ),
    Mutant(
        name="unknown-keys-to-nobody",
        invariants=(7,),
        breaks="a row group without key statistics is routed to no task",
        file=ROUTER,
        old="        if group.key_min is None or group.key_max is None:\n            return self.task_ids\n",
        new="        if group.key_min is None or group.key_max is None:\n            return ()\n",
        catchers=("tests/unit/dispatcher/test_router.py::test_a_row_group_without_statistics_goes_to_all",),
    ),
    Mutant(
        name="receipt-of-one-task-for-all",
        invariants=(13, 14),
        breaks="a file is forgotten once one of its tasks has received it",
        file=WINDOW,
        old="        self._keep([file for file in self._files if any(receivers.lacks(task, file.place) for task in tasks)])\n",
        new="        self._keep([file for file in self._files if all(receivers.lacks(task, file.place) for task in tasks)])\n",
        catchers=("tests/unit/dispatcher/test_window.py::test_what_everybody_has_is_forgotten",),
    ),
    Mutant(
        name="positions-of-the-fastest-task",
        invariants=(13, 14),
        breaks="a restarted dispatcher goes on where the fastest task is",
        file=RECEIVERS,
        old="                out.append(ChainPosition(first_ts, min(known)))\n",
        new="                out.append(ChainPosition(first_ts, max(known)))\n",
        catchers=(
            "tests/unit/dispatcher/test_window.py::test_the_common_position_is_the_least_and_leaves_out_what_some_task_has_not_begun",
        ),
    ),
    Mutant(
        name="positions-over-those-that-began",
        invariants=(13, 14),
        breaks="a chain's common position leaves out the tasks that have not begun it",
        file=RECEIVERS,
        old="            if len(known) == len(self.received):\n",
        new="            if known:\n",
        catchers=(
            "tests/unit/dispatcher/test_window.py::test_the_common_position_is_the_least_and_leaves_out_what_some_task_has_not_begun",
        ),
    ),
    Mutant(
        name="flushed-of-the-fastest-task",
        invariants=(14,),
        breaks="old chains are closed by what the fastest task has flushed",
        file=RECEIVERS,
        old="        return min((self.flushed.get(task, 0) for task in self.received), default=0)\n",
        new="        return max((self.flushed.get(task, 0) for task in self.received), default=0)\n",
        catchers=(
            "tests/unit/dispatcher/test_store_feed.py::test_an_older_chain_stays_open_until_the_slowest_task_has_flushed_past_the_newer_ones_beginning",
        ),
    ),
    Mutant(
        name="tasks-of-an-old-epoch-heard",
        invariants=(15,),
        breaks="a sorter that holds a task under an older epoch tells what it has received",
        file=DELIVERY,
        old="                if epoch is not None and status.task_epoch >= epoch:\n",
        new="                if epoch is not None:\n",
        catchers=(
            "tests/unit/dispatcher/test_delivery.py::test_what_an_earlier_holder_has_received_is_not_what_the_task_has",
        ),
    ),
    Mutant(
        name="lost-files-not-sent-again",
        invariants=(13, 21),
        breaks="what a restarted sorter has lost is not read again",
        file=WINDOW,
        old="                if at_ts < reach:\n                    return True\n",
        new="",
        catchers=("tests/unit/dispatcher/test_window.py::test_a_task_that_lost_what_is_not_here_any_more_is_behind",),
    ),
    Mutant(
        name="missing-file-looked-for-ever-less",
        invariants=(21,),
        breaks="a file that is missing is looked for as seldom as those of a tenant that is silent",
        file="services/dispatcher/tistream_dispatcher/pacing.py",
        old="        if self._expecting:\n            return busy_ms\n",
        new="",
        catchers=(
            "tests/unit/dispatcher/test_pacing.py::test_a_missing_file_is_looked_for_however_long_it_is_missing",
        ),
    ),
    Mutant(
        name="announcements-trusted-though-none-come-through",
        invariants=(21, 22),
        breaks="while no meta server answers, an idle tenant is looked at as seldom as if announcements came",
        file="services/dispatcher/tistream_dispatcher/pacing.py",
        old="        self._announced = False\n        self.hurry()\n",
        new="        self.hurry()\n",
        catchers=(
            "tests/unit/dispatcher/test_pacing.py::test_where_files_are_announced_an_idle_tenant_costs_next_to_nothing",
        ),
    ),
    Mutant(
        name="received-taken-for-durable",
        invariants=(13, 21),
        breaks="a sorter is asked ever less what it has received though it may still lose some of it",
        file=DELIVERY,
        old="    return status.received == status.durable and all(",
        new="    return all(",
        catchers=(
            "tests/unit/dispatcher/test_delivery.py::test_what_is_in_manifests_is_asked_about_ever_less_until_something_is_sent",
        ),
    ),
    Mutant(
        name="version-of-another-process-believed",
        invariants=(15, 21),
        breaks="a sorter that started again tells nothing until its numbers have come to those of the one before",
        file="services/sorter/tistream_sorter/progress.py",
        old="        known = version if boot == self._boot else 0\n",
        new="        known = version\n",
        catchers=(
            "tests/unit/schema_registry/test_sorter_progress.py::test_a_sorter_that_started_again_tells_everything",
        ),
    ),
    Mutant(
        name="window-unbounded",
        invariants=(23,),
        breaks="the dispatcher reads on however far the slowest task is behind",
        file=WINDOW,
        old="        return len(self._files) >= self._limits.window_files or self._bytes >= self._limits.window_bytes\n",
        new="        return False\n",
        catchers=("tests/unit/dispatcher/test_window.py::test_batches_and_the_window_are_bounded",),
    ),
    Mutant(
        name="one-stores-trouble-stops-all",
        invariants=(17,),
        breaks="trouble with one store's objects ends the step of all",
        file=FEED,
        old="        except (RetryableError, InvalidRequest) as error:  # InvalidRequest: a link out of the store\n",
        new="        except ZeroDivisionError as error:\n",
        catchers=("tests/unit/dispatcher/test_tenant_feed.py::test_trouble_with_one_store_leaves_the_others_alone",),
    ),
    Mutant(
        name="stores-trouble-not-told",
        invariants=(21,),
        breaks="a store that cannot be LISTed is told only until something else is tried",
        file=FEED,
        old="        self._store_problems.pop(tried, None)\n",
        new="        for known in [known for known in self._store_problems if known[0] == store.store_id]:\n"
        "            del self._store_problems[known]\n",
        catchers=("tests/unit/dispatcher/test_tenant_feed.py::test_trouble_with_one_store_leaves_the_others_alone",),
    ),
    Mutant(
        name="silence-in-trouble-lengthens-the-pause",
        invariants=(21,),
        breaks="a LIST that failed in a time of silence is tried again minutes later",
        file=FEED,
        old="        expecting |= bool(self._store_problems) or self._discovery.troubled\n",
        new="",
        catchers=(
            "tests/unit/dispatcher/test_tenant_feed.py::test_a_list_that_failed_is_tried_again_soon_and_not_told_any_longer[files]",
            "tests/unit/dispatcher/test_tenant_feed.py::test_a_list_that_failed_is_tried_again_soon_and_not_told_any_longer[stores]",
            "tests/unit/dispatcher/test_tenant_feed.py::test_an_announced_store_that_cannot_be_looked_at_at_once_is_found_soon[False]",
        ),
    ),
    Mutant(
        name="told-while-listing-lost",
        invariants=(21,),
        breaks="that announcements were lost is not heard while files are LISTed",
        file=FEED,
        old="            self._hurried = True\n",
        new="            self._hurried = False\n",
        catchers=(
            "tests/unit/dispatcher/test_tenant_feed.py::test_what_is_told_while_files_are_listed_is_not_lost[look_everywhere]",
        ),
    ),
    Mutant(
        name="crc-not-checked",
        invariants=(10, 17),
        breaks="a row group's bytes are decoded without a look at their CRC-32",
        file="shared/tistream/storage/change_reader.py",
        old="        change_file.check_group(key, group, footer, source)\n",
        new="        assert group\n",
        catchers=("tests/unit/storage/test_change_reader.py::test_a_flipped_bit_fails_its_crc",),
    ),
    Mutant(
        name="identity-not-checked",
        invariants=(20,),
        breaks="a file whose footer names another tenant or store is read",
        file=CHANGE_FILE,
        old='            raise CorruptObject(key, f"wrong identity: its footer says {name} {found[:80]!r}, its key {value!r}")\n',
        new="            continue\n",
        catchers=("tests/unit/format/test_change_file.py::test_refuses_wrong_footer_metadata",),
    ),
    Mutant(
        name="unknown-contract-version-read",
        invariants=(17,),
        breaks="a file of a push contract that is not known is read",
        file=CHANGE_FILE,
        old='        raise CorruptObject(key, f"push contract version {version[:20]!r}; this program knows {VERSION}")\n',
        new="        assert version\n",
        catchers=("tests/unit/format/test_change_file.py::test_refuses_wrong_footer_metadata",),
    ),
    Mutant(
        name="announcements-lost-in-silence",
        invariants=(21,),
        breaks="a reader that the ring has overrun is not told that it lost some",
        file="services/meta/tistream_meta/announcements.py",
        old="        lost = not self._first - 1 <= sequence <= self.last\n",
        new="        lost = False\n        sequence = min(max(sequence, self._first - 1), self.last)\n",
        catchers=(
            "tests/unit/meta/test_announcement_ring.py::test_a_reader_gets_everything_once_or_learns_that_it_lost_some",
        ),
    ),
    Mutant(
        name="announcements-unbounded",
        invariants=(23,),
        breaks="announcements are kept for ever",
        file="services/meta/tistream_meta/announcements.py",
        old="        if len(self._kept) > self._capacity:\n",
        new="        if len(self._kept) > self._capacity * 1_000_000:\n",
        catchers=(
            "tests/unit/meta/test_announcement_ring.py::test_a_reader_gets_everything_once_or_learns_that_it_lost_some",
        ),
    ),
    Mutant(
        name="tasks-of-lost-sorters-stay",
        invariants=(21,),
        breaks="the tasks of a sorter that is lost are not given to another",
        file="services/meta/tistream_meta/policies.py",
        old="    return node is None or nodes.get(node, NodeState.LOST) is NodeState.LOST\n",
        new="    return node is None\n",
        catchers=("tests/unit/meta/test_policies.py::test_it_comes_to_rest_with_every_task_at_a_sorter_that_is_there",),
    ),
    Mutant(
        name="ranges-with-a-gap",
        invariants=(1, 14),
        breaks="a new tenant's tasks do not cover the key space",
        file="services/meta/tistream_meta/ranges.py",
        old='    return tuple(KeySpan(start, end) for start, end in zip([b"", *bounds], [*bounds, b""], strict=True))\n',
        new='    return tuple(KeySpan(start, end) for start, end in zip([b"", *(b + b"\\x00" for b in bounds)], [*bounds, b""], strict=True))\n',
        catchers=("tests/unit/meta/test_ranges.py::test_exactly_that_many_ranges_cover_the_key_space_without_overlap",),
    ),
)
