"""Which dispatcher reads which store."""

from mutants.mutant import Mutant

POLICY = "services/meta/tistream_meta/store_policy.py"
KEEPING = "services/meta/tistream_meta/store_keeping.py"
FEED = "services/dispatcher/tistream_dispatcher/tenant_feed.py"
SHARE = "services/dispatcher/tistream_dispatcher/share.py"
STATUSES = "services/api/tistream_api/store_statuses.py"

POLICY_TESTS = "tests/unit/meta/test_store_policy.py"
MOVES_TESTS = "tests/unit/dispatcher/test_store_moves.py"
SHARE_TESTS = "tests/unit/dispatcher/test_share.py"

MUTANTS = (
    Mutant(
        name="stores-of-lost-dispatchers-stay",
        invariants=(21,),
        breaks="the stores of a dispatcher that is lost are not given to another",
        file=POLICY,
        old="    return node is None or nodes.get(node, NodeState.LOST) is NodeState.LOST\n",
        new="    return node is None or node not in nodes\n",
        catchers=(f"{POLICY_TESTS}::test_those_of_a_lost_one_go_to_others_at_once_whatever_the_budget",),
    ),
    Mutant(
        name="store-given-to-two",
        invariants=(21, 24),
        breaks="every dispatcher reads every store that the routes name",
        file=SHARE,
        old="        mine = frozenset(store.store_id for store in route.stores if store.dispatcher_node == node_id)\n",
        new="        mine = frozenset(store.store_id for store in route.stores)\n",
        catchers=(f"{SHARE_TESTS}::test_every_store_is_read_by_the_one_that_the_route_names",),
    ),
    Mutant(
        name="store-taken-away-still-read",
        invariants=(21, 24),
        breaks="a dispatcher goes on with a store that the routes have given to another",
        file=FEED,
        old="            self._leave(store_id)\n",
        new="            log.debug(store_id)\n",
        catchers=(
            f"{MOVES_TESTS}::test_a_store_that_is_taken_away_is_dropped_and_one_that_comes_back_goes_on_where_the_tasks_are",
        ),
    ),
    Mutant(
        name="found-stores-not-reported",
        invariants=(21,),
        breaks="a dispatcher does not tell the meta server which stores it has found",
        file=FEED,
        old="        return dict.fromkeys(self._discovery.found()) | told\n",
        new="        return told\n",
        catchers=(f"{MOVES_TESTS}::test_stores_are_spread_and_each_is_read_by_one",),
    ),
    Mutant(
        name="found-stores-forgotten-by-the-owner",
        invariants=(21,),
        breaks="a store that nobody can take when it is found gets no row",
        file=KEEPING,
        old="        return given + homeless\n",
        new="        return given\n",
        catchers=(f"{POLICY_TESTS}::test_a_store_that_nobody_can_take_is_known_all_the_same",),
    ),
    Mutant(
        name="draining-dispatcher-gets-stores",
        invariants=(21,),
        breaks="a dispatcher that is to go gets stores like the others",
        file=POLICY,
        old="    alive = [node for node, state in nodes.items() if state is NodeState.ALIVE]\n",
        new="    alive = [node for node, state in nodes.items() if state in (NodeState.ALIVE, NodeState.DRAINING)]\n",
        catchers=(f"{POLICY_TESTS}::test_who_is_to_go_is_emptied_within_the_budget_and_gets_none",),
    ),
    Mutant(
        name="stores-to-and-fro",
        invariants=(21,),
        breaks="a store is moved though that brings no two dispatchers nearer to each other",
        file=POLICY,
        old="        if shares.of[source] > enough and shares.of[target] + amount < shares.of[source]:\n",
        new="        if shares.of[target] < shares.of[source]:\n",
        catchers=(f"{POLICY_TESTS}::test_who_comes_gets_its_part_and_no_store_goes_to_and_fro",),
    ),
    Mutant(
        name="stores-moved-before-their-load-is-known",
        invariants=(21,),
        breaks="a new owner balances before it has heard what each dispatcher has to do",
        file=KEEPING,
        old="        return 0 if unheard or paused else MOVES_MAX\n",
        new="        return 0 if paused or len(unheard) < 0 else MOVES_MAX\n",
        catchers=(f"{POLICY_TESTS}::test_a_new_owner_moves_nothing_before_it_has_heard_how_much_each_has_to_do",),
    ),
    Mutant(
        name="moved-store-begins-where-it-was-known",
        invariants=(13, 21),
        breaks="a dispatcher that gets a store begins where its tasks were when it asked last, not where they are",
        file=FEED,
        old="            self._delivery.ask_all()\n",
        new="            log.debug(share)\n",
        catchers=(
            f"{MOVES_TESTS}::test_a_store_that_comes_is_begun_where_its_tasks_are_now_however_long_ago_they_were_asked",
        ),
    ),
    Mutant(
        name="tenant-taken-for-silent-though-others-read-it",
        invariants=(21,),
        breaks="a dispatcher whose own stores are silent looks at them as seldom as if the whole tenant was",
        file=FEED,
        old="            self._pace.elsewhere(now_ms)\n",
        new="            log.debug(stirred)\n",
        catchers=(
            "tests/unit/dispatcher/test_tenant_feed.py::test_a_silent_store_of_a_tenant_whose_other_stores_are_busy_elsewhere_is_looked_at_like_theirs[False]",
            "tests/unit/dispatcher/test_tenant_feed.py::test_a_silent_store_of_a_tenant_whose_other_stores_are_busy_elsewhere_is_looked_at_like_theirs[True]",
        ),
    ),
    Mutant(
        name="unread-store-not-told",
        invariants=(21,),
        breaks="status does not name a store that no dispatcher reads",
        file=STATUSES,
        old="        if store.store_id not in told\n",
        new="        if store.store_id in told\n",
        catchers=("tests/unit/api/test_store_statuses.py::test_a_store_that_nobody_reads_is_named_with_the_reason",),
    ),
    Mutant(
        name="store-told-by-whoever-comes-first",
        invariants=(15,),
        breaks="of two dispatchers that tell of a store the first is believed, whatever the routes say",
        file=STATUSES,
        old="            if own or store.store_id not in found:\n",
        new="            if store.store_id not in found:\n",
        catchers=("tests/unit/api/test_store_statuses.py::test_every_store_is_told_once_by_whom_the_route_names",),
    ),
)
