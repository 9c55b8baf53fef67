"""Who may do what at the API, and how much of it (design.md 5, invariant 20)."""

# ruff: noqa: E501 - quoted code keeps its length
from mutants.mutant import Mutant

ACCESS = "services/api/tistream_api/access.py"
CALLERS = "services/api/tistream_api/callers.py"
JWTS = "services/api/tistream_api/jwt_callers.py"
GATE = "services/api/tistream_api/gate.py"
ROWS = "services/meta/tistream_meta/token_rows.py"
BOARD = "services/meta/tistream_meta/token_board.py"
LIMITS = "services/api/tistream_api/tenant_limits.py"
DECISIONS = "tests/unit/api/test_access_decisions.py::"
WHO = "tests/unit/api/test_callers.py::"

MUTANTS = (
    Mutant(
        name="access-grant-covers-what-is-above",
        invariants=(20,),
        breaks="a token for one table opens its database, and its tenant",
        file=ACCESS,
        old="    return all(granted is None or granted == asked for granted, asked in pairs)\n",
        new="    return all(None in (granted, asked) or granted == asked for granted, asked in pairs)\n",
        catchers=(DECISIONS + "test_a_grant_covers_what_it_names_and_all_below_and_nothing_above",),
    ),
    Mutant(
        name="access-any-action-will-do",
        invariants=(20,),
        breaks="who may push may read",
        file=ACCESS,
        old="    return any(action in grant.actions and _covers(grant, resource) for grant in grants)\n",
        new="    return any(action in ('read', 'push', 'operate') and _covers(grant, resource) for grant in grants)\n",
        catchers=(DECISIONS + "test_an_action_is_not_another",),
    ),
    Mutant(
        name="access-names-compared-by-case",
        invariants=(20,),
        breaks="a table that was granted in another case cannot be read",
        file=ACCESS,
        old="    return None if name is None else fold(name)\n",
        new="    return name\n",
        catchers=(DECISIONS + "test_names_compare_as_tidb_compares_them_and_those_of_tenants_exactly",),
    ),
    Mutant(
        name="access-one-own-grant-gives-all",
        invariants=(20,),
        breaks="a token makes one that may do more, if only one of its grants is its own to give",
        file=ACCESS,
        old='    return all(may(own, "operate", about(one)) for one in given)\n',
        new='    return any(may(own, "operate", about(one)) for one in given)\n',
        catchers=(DECISIONS + "test_what_is_given_opens_nothing_that_the_giver_may_not_operate",),
    ),
    Mutant(
        name="access-id-without-secret",
        invariants=(20,),
        breaks="who knows the id of a token, which lists show, is let in",
        file=CALLERS,
        old="        if token is None or not hmac.compare_digest(token.secret_hash, hash_of(secret)):\n",
        new="        if token is None or not hash_of(secret):\n",
        catchers=(WHO + "test_the_secret_must_be_the_one_that_was_kept",),
    ),
    Mutant(
        name="access-revoked-in-the-middle-unnoticed",
        invariants=(20,),
        breaks="a stream goes on when its token was revoked",
        file=CALLERS,
        old="        return caller.token_id is None or self._valid(caller.token_id) is not None\n",
        new="        return True\n",
        catchers=(WHO + "test_a_token_ends_when_it_expires_or_is_told_no_more",),
    ),
    Mutant(
        name="access-jwt-for-ever",
        invariants=(20,),
        breaks="a JSON Web Token is valid after its exp",
        file=JWTS,
        old="        if expires_ms is None or now_ms >= expires_ms + LEEWAY_MS:\n",
        new="        if expires_ms is None:\n",
        catchers=(WHO + "test_a_jwt_is_valid_from_its_beginning_to_its_end",),
    ),
    Mutant(
        name="access-keys-read-at-will",
        invariants=(23,),
        breaks="whoever sends tokens of unknown keys makes the API ask the issuer each time",
        file=JWTS,
        old="        if passed_ms < REFRESH_LEAST_MS or (passed_ms < REFRESH_MS and self._keys is not None and not self._wanted):\n",
        new="        if passed_ms < REFRESH_MS and self._keys is not None and not self._wanted:\n",
        catchers=(WHO + "test_the_keys_are_read_now_and_then_and_sooner_when_one_is_missing_but_not_at_will",),
    ),
    Mutant(
        name="access-undeclared-route-served",
        invariants=(20,),
        breaks="a route beside the gate is served to everybody",
        file=GATE,
        old='        elif getattr(route, "path", None) not in OPEN:\n',
        new='        elif getattr(route, "path", None) is None:\n',
        catchers=(
            "tests/unit/api/test_gate_declared.py::test_a_route_beside_the_gate_is_refused_though_it_says_who_may_call_it",
        ),
    ),
    Mutant(
        name="access-revoked-tokens-told",
        invariants=(20,),
        breaks="the APIs are told revoked tokens as valid ones",
        file=ROWS,
        old="and_(_TOKENS.c.revoked_ms.is_(None), or_(",
        new="and_(or_(",
        catchers=(
            "tests/unit/meta/test_tokens_kept.py::test_a_token_is_kept_without_its_secret_and_revoked_once[sqlite]",
        ),
    ),
    Mutant(
        name="access-stale-tokens-told",
        invariants=(20,),
        breaks="a meta server that lost its database tells the tokens of that time for ever",
        file=BOARD,
        old="                if known is None or now_ms - self._looked_ms > STALE_MS:\n",
        new="                if known is None:\n",
        catchers=(
            "tests/unit/meta/test_tokens_kept.py::test_a_board_that_cannot_read_the_database_any_more_tells_nothing[sqlite]",
        ),
    ),
    Mutant(
        name="access-one-tenant-takes-every-pull",
        invariants=(23,),
        breaks="one tenant may hold every pull that a server answers at once",
        file=LIMITS,
        old="        most = max(1, self.pulls_max - max(1, self.pulls_max // 8))  # never all that there are\n",
        new="        most = self.pulls_max\n",
        catchers=("tests/unit/api/test_rates.py::test_no_tenant_has_every_pull_of_the_server",),
    ),
)
