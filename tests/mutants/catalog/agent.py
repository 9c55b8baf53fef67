"""The agent's rules R1 to R6, each broken: a log without its predecessor's end, a promise without its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant

HISTORY = "test_no_row_is_lost_in_a_random_history"
DIVIDED = "test_no_row_is_lost_while_territories_are_divided"
SHARED = "test_two_divisions_that_share_a_territory_are_both_finished"
GOLDEN = "test_the_files_of_a_recorded_stream_have_every_change_and_reach_the_end"


@mutant(
    "tistream_agent:TerritoryAgent._take", invariants=(7, 11), catchers=("test_a_foreign_nonce_ends_the_agent", HISTORY)
)
def fenced_agent_goes_on(original: Function) -> Function:
    """R1: an agent that meets a foreign file puts its own at the next number."""

    def broken(self: Any, event: Any, now_ms: int) -> Any:
        from tistream_agent.core import steps

        if not isinstance(event, steps.ForeignFile) or self._under_way is None:
            return original(self, event, now_ms)
        self._under_way = replace(self._under_way, ts=event.ts + 1, prev_ts=event.ts)
        self.prev_ts, self.next_ts = event.ts + 1, event.ts + 2
        return [steps.PutFile(self._under_way)]

    return broken


@mutant(
    "tistream_agent:Planner.timestamps_taken",
    invariants=(1, 7),
    catchers=("test_a_log_id_is_above_its_predecessors", HISTORY),
)
def log_id_is_the_regions_id(original: Function) -> Function:
    """R1: the log id is the region's id, which its next subscription has too."""

    def broken(self: Any, call: int, last: int, above: int, now_ms: int) -> Any:
        from tistream_agent.core.planner import _Batch

        chosen = [self.territory.at(start) for start in self._chosen] if call == self._call else []
        out, batch = [], _Batch()
        if chosen:
            self._release()
        for piece in chosen:
            known = self.territory.at(piece.span.start)
            out += self._register(known, known.state.region.region_id, batch, now_ms)
        return out

    return broken


@mutant("tistream_agent:Planner.ended", invariants=(1, 7), catchers=(HISTORY,))
def registered_above_what_is_durable(original: Function) -> Function:
    """R2: a successor's base_ts is above what its predecessor reached."""

    def broken(self: Any, ended: Any, now_ms: int) -> Any:
        return original(self, replace(ended, reached_ts=ended.reached_ts + (50 << 18)), now_ms)

    return broken


@mutant("tistream_agent:Subscriptions.cut", invariants=(1, 7), catchers=(HISTORY,))
def base_row_before_the_scan_ended(original: Function) -> Function:
    """R3: a subscription has its base row while it scans."""

    def broken(self: Any) -> Any:
        from tistream_agent.core import kernels as k

        state = self._table[k.STATE]
        scanning = state == k.SCANNING
        state[scanning] = k.LIVE
        rows = original(self)
        state[scanning & (state == k.LIVE)] = k.SCANNING
        return rows

    return broken


@mutant("tistream_agent:TerritoryAgent._cut", invariants=(1, 7), catchers=(HISTORY, GOLDEN))
def newest_rows_wait_for_the_next_file(original: Function) -> Function:
    """R4: the rows that came last are in the file after the one whose resolved_ts covers them."""

    def broken(self: Any, now_ms: int) -> Any:
        held, self._open.tables = self._open.tables[-1:], self._open.tables[:-1]
        out = original(self, now_ms)
        self._open.tables = held
        self._open.size = sum(int(table.nbytes) for table in held)
        return out

    return broken


@mutant(
    "tistream_agent:Planner.ended",
    invariants=(1, 7),
    catchers=("test_a_write_below_what_the_leader_before_told_stops_the_territory",),
)
def what_the_leader_before_told_is_forgotten(original: Function) -> Function:
    """A resolved_ts above the next leader's first write of RawKV, which TiKV before 6.2 told, goes unnoticed."""

    def broken(self: Any, ended: Any, now_ms: int) -> Any:
        return original(self, replace(ended, told_ts=0), now_ms)

    return broken


@mutant("tistream_agent:cut_by_regions", invariants=(1, 7), catchers=("test_a_hole_in_pds_answer_waits", HISTORY))
def hole_goes_to_its_neighbour(original: Function) -> Function:
    """R5: keys that PD leaves out are registered at the region beside them, which does not have them."""

    def broken(*arguments: Any, **named: Any) -> Any:
        from tistream.model.span import KeySpan
        from tistream_agent.core.territory import WaitsForRegion

        out: list[Any] = []
        for piece in original(*arguments, **named):
            if out and isinstance(piece.state, WaitsForRegion):
                out[-1] = replace(out[-1], span=KeySpan(out[-1].span.start, piece.span.end))
            else:
                out.append(piece)
        return out

    return broken


@mutant(
    "tistream_agent:Subscriptions.scanning",
    invariants=(1, 7),
    catchers=("test_a_restart_during_a_scan_begins_from_the_base", HISTORY),
)
def scanning_span_left_out_of_the_footer(original: Function) -> Function:
    """A4: the footer does not carry what a subscription that scans rests on."""
    return lambda self: []


@mutant(
    "tistream_agent:PdClock.ts_max",
    invariants=(1, 7),
    catchers=("test_a_timestamp_of_the_far_future_ends_its_stream",),
)
def timestamps_of_the_future(original: Function) -> Function:
    """A resolved_ts that PD cannot have given is a promise of the chain."""
    return lambda self, now_ms: (1 << 63) - 1


@mutant(
    "tistream_agent:reached_of",
    invariants=(6, 7),
    catchers=(
        "test_a_lock_between_what_tikv_told_and_what_it_holds_is_not_dead_while_it_lives",
        "test_a_lock_that_is_late_for_its_region_holds_its_range_log",
    ),
)
def late_locks_hold_nothing(original: Function) -> Function:
    """R6: a lock that is late for its region, or for what TiKV holds of it, does not hold what files promise."""

    def broken(table: Any, slots: Any) -> Any:
        from tistream_agent.core import kernels as k

        return table[k.RESOLVED_TS, slots]

    return broken


@mutant(
    "tistream_agent:SentRequests.numbers",
    invariants=(1, 7),
    catchers=("test_one_message_resolves_all_regions_of_a_request_and_each_ends_alone", HISTORY),
)
def events_go_to_the_first_region_of_their_request(original: Function) -> Function:
    """Registrations share a request_id; an event of a region goes to the subscription of another one of it."""

    def broken(self: Any, items: Any, stream: int) -> Any:
        from tistream_agent.core import kernels as k

        first: dict[int, int] = {}
        for sent_as, _, its, number in self._pairs[:, : len(self)].T.tolist():
            if its == stream:
                first.setdefault(sent_as, number)
        found = original(self, items, stream)
        for at, request in enumerate(items[k.REQUEST].tolist()):
            if found[at] >= 0:
                found[at] = first[request]
        return found

    return broken


@mutant(
    "tistream_agent:KeyMap.gap_on_wire",
    invariants=(1, 7),
    catchers=("test_of_a_tidb_nothing_but_its_keys_is_registered_and_its_logs_stand_for_all_keys",),
)
def gap_with_keys_of_the_tenant(original: Function) -> Function:
    """Regions with the schema's keys are taken for regions without keys of the tenant, and not registered."""

    def broken(self: Any) -> Any:
        from tistream_agent.core.keys import with_prefix

        return None if self.gap is None else with_prefix(replace(self.gap, start=self.scope.start), self.prefix)

    return broken


@mutant(
    "tistream_agent:chain.begins_at",
    invariants=(1, 7, 52),
    catchers=("test_keys_that_are_divided_anew_go_on_in_chains_that_had_others",),
)
def new_territory_promises_more_than_is_known(original: Function) -> Function:
    """The chain of a new territory promises changes that no file has."""
    return lambda position, base_ts: original(position, base_ts + 1)


@mutant(
    "tistream_agent:next_steps",
    invariants=(1, 7, 52),
    catchers=("test_a_split_ends_the_chain_and_then_begins_one_for_each_part", DIVIDED),
)
def new_territories_begin_beside_the_old_one(original: Function) -> Function:
    """R1: the chains of new territories begin before the last file of the one that had their keys."""

    def broken(children: Any, parents: Any, begun: Any, listed: Any) -> Any:
        named = {number: replace(end, children=tuple(children)) for number, end in parents.items()}
        found = list(original(children, named, begun, listed))
        return found or original(children, parents, begun, listed)

    return broken


@mutant(
    "tistream_agent:next_steps",
    invariants=(1, 7, 52),
    catchers=("test_a_split_ends_the_chain_and_then_begins_one_for_each_part",),
)
def new_territories_promise_what_the_newest_key_has(original: Function) -> Function:
    """R2: the first file of a new territory promises for all keys what the old ones promise for some."""

    def broken(children: Any, parents: Any, begun: Any, listed: Any) -> Any:
        top = max(promise.ts for end in parents.values() for promise in end.position.promises)

        def raised(step: Any) -> Any:
            its = tuple(replace(promise, ts=top) for promise in step.position.promises)
            return replace(step, position=replace(step.position, promises=its))

        found = original(children, parents, begun, listed)
        return [raised(step) if type(step).__name__ == "BeginChild" else step for step in found]

    return broken


@mutant(
    "tistream_agent:ReservedIds.reserve",
    invariants=(1, 7, 52),
    catchers=(
        "test_an_id_is_of_one_division_or_of_all_that_name_it",
        "test_divisions_at_once_and_beside_an_assign_leave_no_key_without_its_chain",
    ),
)
def reserved_id_is_chosen_again(original: Function) -> Function:
    """R1: two divisions at once choose the same ids, so the second one takes the chains of the first for its own."""
    return lambda self, wanted: None


@mutant(
    "tistream_agent:next_steps",
    invariants=(1, 7, 52),
    catchers=(
        "test_of_a_merge_the_lowest_parent_gets_its_last_file_alone",
        "test_two_divisions_of_the_same_territories_at_once_become_one_and_the_other_holds_nothing",
    ),
)
def merges_at_once_decide_each_for_some_parents(original: Function) -> Function:
    """All parents get their last files at once, so two merges of the same ones name different children."""

    def broken(children: Any, parents: Any, begun: Any, listed: Any) -> Any:
        found = list(original(children, parents, begun, listed))
        if not found or type(found[0]).__name__ == "BeginChild":
            return found
        of = type(found[0])
        return [of(one, end.position) for one, end in sorted(parents.items()) if not end.children]

    return broken


@mutant(
    "tistream_agent:next_steps",
    invariants=(52,),
    catchers=(
        "test_a_division_of_which_one_begun_territory_was_disconnected_begins_the_others",
        "test_the_keys_beside_a_begun_territory_that_was_disconnected_are_handed_over",
    ),
)
def one_ended_child_completes_a_division(original: Function) -> Function:
    """A begun territory that was disconnected hides that its sibling has no chain."""

    def broken(children: Any, parents: Any, begun: Any, listed: Any) -> Any:
        found = list(original(children, parents, begun, listed))
        ended = any(end.sealed for end in begun.values())
        return [] if ended and found and type(found[0]).__name__ == "BeginChild" else found

    return broken


@mutant(
    "tistream_agent:next_steps",
    invariants=(52,),
    catchers=(
        "test_a_division_that_is_complete_begins_nothing_anew",
        "test_a_division_is_finished_after_a_store_of_its_territories_was_retired",
    ),
)
def retired_territory_is_begun_again(original: Function) -> Function:
    """A repeat begins the chain of a territory whose keys others have, because its store was retired."""
    return lambda children, parents, begun, listed: original(children, parents, begun, {*parents, *listed})


@mutant(
    "tistream_agent:given_up",
    invariants=(52,),
    catchers=("test_of_two_divisions_that_share_a_territory_the_one_left_behind_is_divided_anew", SHARED),
)
def territory_that_is_left_behind_stays_so(original: Function) -> Function:
    """A territory whose partner was divided with another one is read by no agent."""
    return lambda parents, listed: []


@mutant(
    "tistream_agent:unclaimed",
    invariants=(52,),
    catchers=(
        "test_the_new_territories_that_no_agent_has_claimed_are_those_with_one_file",
        "test_a_repeat_holds_back_what_no_agent_has_claimed_before_it_releases_the_rest",
    ),
)
def repeat_holds_nothing_back(original: Function) -> Function:
    """A repeat releases the holds of the old territories, and the new ones have none any more."""
    return lambda parents, begun: {}


@mutant(
    "tistream_agent:check_free",
    invariants=(52,),
    catchers=("test_keys_that_another_territory_has_are_not_handed_over",),
)
def keys_of_another_territory_are_handed_over(original: Function) -> Function:
    """The old territories are removed before the platform refuses the new ones, so no territory has the keys."""
    return lambda heirs, there, parents: None


@mutant(
    "tistream_agent:check_number",
    invariants=(52,),
    catchers=(
        "test_a_division_is_refused_that_leaves_no_room_for_those_under_way",
        "test_of_two_divisions_at_once_one_is_refused_if_the_tenant_has_room_for_one",
    ),
)
def divisions_at_once_share_the_room_for_one(original: Function) -> Function:
    """Of two divisions at once the later ends its chain, and then the platform has no room for its territories."""
    return lambda after, there, others, *more: original(after, there, (), *more)


@mutant("tistream_agent:Divider._hold_back", invariants=(52,), catchers=(SHARED,))
def nothing_is_held_back_for_new_territories(original: Function) -> Function:
    """The holds of the old territories are released before those of the new ones are there."""
    return lambda self, children, lowest_ts, *held_s: None


@mutant(
    "tistream_agent:Divider._release_unused", invariants=(52,), catchers=("test_a_division_that_dies_costs_ids_only",)
)
def holds_of_a_division_that_died_stay(original: Function) -> Function:
    """What a division has reserved and held before it died is held on after its repeat."""
    return lambda self, parents: None


@mutant(
    "tistream_agent:Divider._hold_back",
    invariants=(52,),
    catchers=(
        "test_the_holds_of_a_killed_division_that_no_file_names_end_in_minutes",
        "test_a_division_that_dies_costs_ids_only",
    ),
)
def holds_of_a_plan_last_for_a_day(original: Function) -> Function:
    """A division that dies before it has changed anything holds back garbage collection for a day."""
    return lambda self, children, lowest_ts, *held_s: original(self, children, lowest_ts)


@mutant(
    "tistream_agent:Divider._hold_back",
    invariants=(52,),
    catchers=("test_a_killed_division_holds_what_its_last_file_names_for_a_day",),
)
def holds_of_what_a_last_file_names_end_in_minutes(original: Function) -> Function:
    """The holds of territories that no agent reads yet end while the division may still be finished."""
    return lambda self, children, lowest_ts, *held_s: original(self, children, lowest_ts, 600)


@mutant(
    "tistream_agent:Divider._let_end",
    invariants=(52,),
    catchers=(
        "test_the_holds_of_territories_that_were_handed_over_end_in_minutes",
        "test_a_division_that_dies_is_finished_by_its_agents",
    ),
)
def holds_of_what_was_handed_over_last_for_a_day(original: Function) -> Function:
    """A division that dies while it waits for the agents of the old territories leaves their holds."""
    return lambda self, number, end: None


@mutant(
    "tistream_meta:check_replacement",
    invariants=(52,),
    catchers=(
        "test_territories_are_replaced_as_a_whole_or_not_at_all",
        "test_a_division_does_not_bring_back_a_tenant_that_was_disconnected_meanwhile",
        "test_a_division_that_is_finished_beside_a_disconnect_brings_no_territory_back",
    ),
)
def disconnected_territories_come_back(original: Function) -> Function:
    """A division that is finished brings back what was disconnected after its last look at the platform."""
    return lambda there, gone, wanted: original(there, {one.store_id for one in there} & {*gone}, wanted)


@mutant(
    "tistream_agent:given_up",
    invariants=(52,),
    catchers=(
        "test_the_territory_whose_partner_was_disconnected_is_divided_anew",
        "test_the_agent_of_the_other_territory_reads_its_keys_on",
        "test_the_territory_that_was_to_be_merged_with_a_disconnected_one_is_read_on",
    ),
)
def merge_with_a_disconnected_territory_is_waited_for(original: Function) -> Function:
    """Of two territories with last files one is disconnected, and the keys of the other are read by no agent."""

    def broken(parents: Any, listed: Any) -> Any:
        def waits(its: Any) -> bool:
            return any(end.children == its and one not in listed for one, end in parents.items())

        return [number for number in original(parents, listed) if not waits(parents[number].children)]

    return broken


@mutant(
    "tistream_agent:Divider._still_open",
    invariants=(52,),
    catchers=("test_a_new_territory_that_was_disconnected_while_it_was_held_is_not_handed_over",),
)
def heirs_are_those_that_were_there_before_their_holds(original: Function) -> Function:
    """A new territory that was disconnected before its hold is set again is handed over, and held for a day."""
    return lambda self, children, heirs: heirs


@mutant(
    "tistream_agent:Divider._hold_what_is_there",
    invariants=(52,),
    catchers=(
        "test_a_merge_that_is_refused_holds_what_is_left_for_a_day",
        "test_a_division_does_not_bring_back_a_tenant_that_was_disconnected_meanwhile",
    ),
)
def refused_division_leaves_its_holds(original: Function) -> Function:
    """What a refused division has held again lasts for a day, and the territories that are left for minutes."""
    return lambda self, parents, fresh: None


@mutant(
    "tistream_agent:Divider._end_for_good",
    invariants=(52,),
    catchers=("test_the_agent_of_the_other_territory_reads_its_keys_on",),
)
def new_territory_that_never_will_be_is_waited_for(original: Function) -> Function:
    """`connect --assign` waits for ever for a new territory of a merge whose partner was disconnected."""
    return lambda self, children: None


@mutant(
    "tistream_agent:TerritoryRun._cannot_finish",
    invariants=(52,),
    catchers=("test_the_agent_finishes_a_division_whose_command_was_killed",),
)
def division_that_died_waits_for_its_repeat(original: Function) -> Function:
    """No process reads the keys of a division that died, and they are held until the command is run again."""
    return lambda self, error: False


@mutant(
    "tistream_agent:OwnHold._check",
    invariants=(52,),
    catchers=("test_an_agent_that_slept_does_not_renew_a_hold_that_was_released",),
)
def agent_that_slept_renews_its_hold(original: Function) -> Function:
    """An agent that wakes after its territory was divided or disconnected holds back garbage collection again."""
    return lambda self: None


@mutant(
    "tistream_agent:Connector.check_room",
    invariants=(52,),
    catchers=("test_keys_for_too_many_territories_are_refused_before_anything_is_begun",),
)
def too_many_territories_are_refused_when_some_are_begun(original: Function) -> Function:
    """Chains are begun, and held back, that the platform then has no room for."""
    return lambda self, taken: None
