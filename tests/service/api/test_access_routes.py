"""Every route of the OpenAPI document, with every wrong token: nothing is done, and nothing of another tenant told."""
# Attack: every route with 25 kinds of invalid credentials (none, garbage, wrong secret, expired, revoked; JWTs with
#   wrong key, key id, issuer, audience or time, without `sub`, `alg: none`, HMAC with the public key): 401, and no
#   byte of another tenant
# Attack: every route with valid tokens of another tenant or cluster, for another action, or for narrower names: 403
#   or a filtered list; and with the right token, so that the test can fail
# Attack: `../`, NUL, line breaks, quotes, right-to-left marks, invalid UTF-8, 1 KiB, double encoding in every path
#   parameter: 4xx, and no object of others is requested

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from support.access_calls import LEVELS, Answer, Call, calls, document, send
from support.access_world import Guarded
from support.effort import FULL
from support.waiting import eventually
from tistream.wire.tokens import EVERYTHING, Grant, StoreToken, hash_of

CALLS = {call.name: call for call in calls(document())}
ALL = ["read", "push", "operate", "feed"]
HOSTILE = (
    "..",
    "../",
    "%2e%2e",
    "..%2f..%2f",
    "%2e%2e%2fother",
    "%00",
    "%0d%0aSet-Cookie:%20a=b",
    "*",
    "%2a",
    "%F0%9F%92%A9",
    "%ff%fe",
    "%E2%80%AE",
    "%27%22%3E%3Cscript%3E",
    "a" * 1024,
    "%C3%A9" * 512,
    "-",
    "$(id)",
    "%25%73%6e",
)
KEY = re.compile(
    r"(committed/[0-9a-f]{2}|schema)/cluster-[A-Za-z0-9][A-Za-z0-9_-]{0,62}/Tenant-[A-Za-z0-9][A-Za-z0-9_-]{0,62}/"
    r"((task-\d+/(manifest/\d*|floor|segment/[\w.-]*|pending/[\w.-]*)?)|log/\d*|floor)"
)

# Calls that the paths of access_calls.py send for a time before the tenant's beginning
NAMES_ONE = (
    "ChangefeedEvents",
    "ChangefeedLag",
    "ChangefeedTables",
    "GetBackfill",
    "GetChangefeed",
    "GetRestore",
)  # the tenant has none of this id
REFUSED = ("PullRaw", "RawValue", "SignedChanges")  # the tenant is a TiDB, and objects in memory have no signed URLs
EARLY = ("ListRows", "GetTransaction", "DiffTable", "ChangeParts")


@pytest.fixture(scope="module")
def world(guarded_api: Guarded) -> Guarded:
    # A token of the other tenant, whose id stands in the paths.
    kept = StoreToken(
        token_id=guarded_api.other.token_id,
        secret_hash=hash_of("x" * 43),
        label=f"of-{guarded_api.other.tenant}",
        grants=[Grant(**guarded_api.other.grant(["operate"], "tenant"))],
    )
    guarded_api.tokens.store(kept)
    return guarded_api


@pytest.fixture(scope="module")
def wrong(world: Guarded) -> dict[str, str | None]:
    """Header by what is wrong with it, whatever the route."""
    everything = EVERYTHING.model_dump()
    expired = world.token(everything, expires_ms=int(time.time() * 1000) - 1000)
    revoked = world.token(everything)
    world.tokens.revoke(revoked.split("_")[1])
    valid = world.token(everything)
    issuer, grants = world.issuer, [everything]
    stranger = ec.generate_private_key(ec.SECP256R1())
    now = int(time.time())
    found: dict[str, str | None] = {
        "none": None,
        "empty": "",
        "no bearer": "Bearer",
        "basic": "Basic dXNlcjpwYXNz",
        "garbage": "Bearer garbage",
        "huge": f"Bearer {'a' * 8000}",
        "unknown": f"Bearer {'tst_' + '0' * 16 + '_' + 'A' * 43}",
        "wrong secret": f"Bearer {valid[:-43]}{'A' * 43}",
        "shortened": f"Bearer {valid[:-1]}",
        "lengthened": f"Bearer {valid}A",
        "only the hash": f"Bearer {valid[:21]}{hash_of(valid[21:])[:43]}",
        "expired": f"Bearer {expired}",
        "revoked": f"Bearer {revoked}",
        "jwt of a wrong key": f"Bearer {issuer.sign(grants, key=stranger)}",
        "jwt of an unknown key": f"Bearer {issuer.sign(grants, kid='k2')}",
        "jwt of another issuer": f"Bearer {issuer.sign(grants, iss='https://else.example')}",
        "jwt for another audience": f"Bearer {issuer.sign(grants, aud='else')}",
        "jwt without audience": f"Bearer {issuer.sign(grants, aud=None)}",
        "jwt of nobody": f"Bearer {issuer.sign(grants, sub=None)}",
        "jwt expired": f"Bearer {issuer.sign(grants, exp=now - 120)}",
        "jwt for ever": f"Bearer {issuer.sign(grants, exp=None)}",
        "jwt of later": f"Bearer {issuer.sign(grants, nbf=now + 600)}",
        "jwt unsigned": f"Bearer {issuer.unsigned(grants)}",
        "jwt by hmac": f"Bearer {issuer.sign(grants, key=issuer.path.read_text() * 2, alg='HS256')}",
        "jwt with a bad claim": f"Bearer {issuer.sign([{'actions': ['everything']}])}",
    }
    world.known(valid)
    return found


@pytest.fixture(scope="module")
def narrow(world: Guarded) -> dict[str, str]:
    """Header by what the token grants: valid ones, that are for something else."""
    made = {
        "mine": world.token(world.mine.grant(ALL, "tenant")),
        "elsewhere": world.token(world.elsewhere.grant(ALL, "cluster")),
    }
    for scope in LEVELS:
        for action in ALL:
            made[f"{action} {scope}"] = world.token(world.other.grant([action], scope))
    beside = {**world.other.grant(ALL, "table"), "table": "large"}
    made["another table"] = world.token(beside)
    header = ""
    for token in made.values():
        header = token
    world.known(header)
    return {name: f"Bearer {token}" for name, token in made.items()}


def hostile_names(parameter: str, name: str) -> tuple[str, ...]:
    """All of them in the soak. Else a third, another one in each call that has the parameter, so that each parameter
    meets all."""
    having = [call.name for call in CALLS.values() if parameter in call.parameters]
    return HOSTILE if FULL or len(having) < 3 else HOSTILE[having.index(name) % 3 :: 3]


def told_nothing_of(world: Guarded, answer: Answer) -> None:
    raw = answer.raw
    for name in (world.other.tenant, world.other.token_id, "wide", '"type":"row"', "store-", "task-"):
        assert name.encode() not in raw, (name, raw[:2000])


@pytest.mark.parametrize("name", CALLS)
def test_who_is_nobody_gets_401_and_is_told_nothing(world: Guarded, wrong: dict[str, str | None], name: str) -> None:
    call = CALLS[name]
    for why, header in wrong.items():
        answer = send(world.url, call.method, call.path(world.other), header, call.content(world.other))
        assert answer.status == 401, (why, answer)
        assert "www-authenticate: bearer" in answer.headers
        told_nothing_of(world, answer)


def _foreign(call: Call) -> list[str]:
    """The names of valid tokens that do not open the call."""
    others = [action for action in ALL if action not in call.actions]
    found = ["mine", "elsewhere", *(f"{action} {scope}" for action in others for scope in LEVELS)]
    if not call.partly:
        below = LEVELS[LEVELS.index(call.scope) + 1 :]
        found += [f"{action} {scope}" for action in call.actions for scope in below]
        found += ["another table"]
    return found


@pytest.mark.parametrize("name", CALLS)
def test_a_token_for_something_else_opens_nothing(world: Guarded, narrow: dict[str, str], name: str) -> None:
    call = CALLS[name]
    for why in _foreign(call):
        answer = send(world.url, call.method, call.path(world.other), narrow[why], call.content(world.other))
        # In part: who may something in it is answered, with what is his own, which is nothing of the other's.
        allowed = {403, 200, 404} if call.partly and why in ("mine", "elsewhere") else {403}
        assert answer.status in allowed, (why, answer)
        told_nothing_of(world, answer)


@pytest.mark.parametrize("path", ["/v1/tenants", "/v1/clusters/{}/tenants"])
@pytest.mark.parametrize("scope", ["database", "table"])
def test_a_part_of_a_tenant_shows_no_tenant(world: Guarded, narrow: dict[str, str], path: str, scope: str) -> None:
    asked = path.format(world.other.cluster)
    for action in ALL:
        answer = send(world.url, "GET", asked, narrow[f"{action} {scope}"])
        assert answer.status in (200, 403)
        if path == "/v1/tenants" and action == "read":
            told = json.loads(answer.raw.split(b"\r\n\r\n")[-1])
            (part,) = told["parts"]  # what the token names itself
            assert part["tenant_id"] == world.other.tenant
            assert (part["table"] is None) == (scope == "database")
            assert told["tenants"] == []
        else:
            told_nothing_of(world, answer)
    shown = send(world.url, "GET", asked, narrow["read tenant"])
    assert world.other.tenant.encode() in shown.raw


@pytest.mark.parametrize("name", CALLS)
def test_what_is_there_and_what_is_not_are_refused_alike(world: Guarded, narrow: dict[str, str], name: str) -> None:
    call = CALLS[name]
    if call.partly or call.scope == "platform":
        return
    there = send(world.url, call.method, call.path(world.other), narrow["mine"], call.content(world.other))
    nowhere = world.elsewhere
    missing = send(world.url, call.method, call.path(nowhere), narrow["mine"], call.content(nowhere))
    assert there.status == missing.status == 403
    assert there.raw.split(b"\r\n\r\n")[-1] == missing.raw.split(b"\r\n\r\n")[-1]


@pytest.mark.parametrize("name", sorted(CALLS, key=lambda name: name == "RevokeToken"))
def test_the_right_token_opens_it(world: Guarded, narrow: dict[str, str], name: str) -> None:
    """Else the tests above would pass with every door walled up."""
    call = CALLS[name]
    for action in call.actions:
        header = narrow[f"{action} {call.scope}"]
        answer = send(world.url, call.method, call.path(world.other), header, call.content(world.other))
        assert answer.status not in (401, 403, 429, 500, 502), answer
        if call.method == "GET" and call.scope != "platform":
            early = call.name.startswith("Pull") or call.name in EARLY
            found = 410 if early else 404 if call.name in NAMES_ONE else 200
            assert answer.status == (400 if call.name in REFUSED else found), answer


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.parameters])
def test_hostile_names_reach_no_object_and_break_nothing(world: Guarded, narrow: dict[str, str], name: str) -> None:
    call = CALLS[name]
    for parameter in call.parameters:
        for hostile in hostile_names(parameter, name):
            for why in (f"{call.actions[0]} platform", "mine"):
                path = call.path(world.other, **{parameter: hostile})
                answer = send(world.url, call.method, path, narrow[why], call.content(world.other))
                assert 400 <= answer.status < 500, (hostile, why, answer)
                assert "set-cookie" not in answer.headers
                if why == "mine":
                    told_nothing_of(world, answer)
    strange = [key for key in world.objects.asked if not KEY.fullmatch(key)]
    assert strange == []


def test_lists_show_what_the_token_may_read_and_nothing_else(world: Guarded) -> None:
    target = world.other
    path = f"/v1/clusters/{target.cluster}/tenants"
    one_table = world.known(world.token(target.grant(["read"], "table")))

    def got(path: str, header: str) -> Any:
        answer = send(world.url, "GET", path, header)
        assert answer.status == 200, answer
        return json.loads(answer.raw.split(b"\r\n\r\n")[-1])

    assert got(f"{path}/{target.tenant}/databases", one_table)["databases"] == ["wide"]
    tables = got(f"{path}/{target.tenant}/databases/WIDE/tables", one_table)["tables"]
    assert [table["name"] for table in tables] == ["small"]
    assert got(path, one_table)["tenants"] == []
    whole = world.known(world.token(target.grant(["read"], "tenant")))
    assert {"small", "large"} <= {
        table["name"] for table in got(f"{path}/{target.tenant}/databases/wide/tables", whole)["tables"]
    }
    assert [tenant["tenant_id"] for tenant in got(path, whole)["tenants"]] == [target.tenant]


def test_a_table_is_pulled_by_any_case_of_its_name_and_no_other_is(world: Guarded) -> None:
    target = world.other
    header = world.known(world.token({**target.grant(["read"], "table"), "table": "SMALL", "database": "Wide"}))
    base = f"/v1/clusters/{target.cluster}/tenants/{target.tenant}/databases/wIDe"
    assert send(world.url, "GET", f"{base}/tables/sMall/changes?start_ts=0", header).status in (200, 410)
    for path in (f"{base}/tables/large/changes", f"{base}/changes"):
        assert send(world.url, "GET", f"{path}?start_ts=0", header).status == 403


def test_a_jwt_may_what_its_claim_says(world: Guarded) -> None:
    target = world.other
    path = f"/v1/clusters/{target.cluster}/tenants/{target.tenant}/status"
    for claim in (
        [target.grant(["read"], "tenant")],
        json.dumps([target.grant(["read"], "tenant")]),
    ):
        header = f"Bearer {world.issuer.sign(claim)}"
        assert send(world.url, "GET", path, header).status == 200
        assert send(world.url, "GET", "/v1/owner", header).status == 403
    none = world.issuer.sign(None)
    assert send(world.url, "GET", path, f"Bearer {none}").status == 403


def test_a_token_makes_no_token_beyond_itself(world: Guarded) -> None:
    target = world.mine
    own = world.known(world.token(target.grant(["operate"], "tenant")))

    def make(*grants: dict[str, Any]) -> Answer:
        return send(world.url, "POST", "/v1/tokens", own, json.dumps({"grants": list(grants)}).encode())

    made = make(target.grant(ALL, "tenant"))
    assert made.status == 201
    assert "cache-control: no-store" in made.headers
    body = json.loads(made.raw.split(b"\r\n\r\n")[-1])
    for beyond in (
        target.grant(["read"], "cluster"),
        target.grant(["read"], "platform"),
        world.other.grant(["read"], "table"),
    ):
        assert make(target.grant(["read"], "table"), beyond).status == 403
    child = world.known(body["token"])
    listed = send(world.url, "GET", "/v1/tokens", own)
    assert body["token_id"].encode() in listed.raw
    assert body["token"][21:].encode() not in listed.raw
    assert b"hash" not in listed.raw
    told_nothing_of(world, listed)
    assert send(world.url, "DELETE", f"/v1/tokens/{body['token_id']}", own).status == 200
    path = f"/v1/clusters/{target.cluster}/tenants/{target.tenant}/status"
    eventually(lambda: send(world.url, "GET", path, child).status == 401)


def test_metrics_are_for_who_operates_the_platform_and_probes_for_everybody(
    world: Guarded, narrow: dict[str, str]
) -> None:
    for header, status in ((None, 401), (narrow["mine"], 403)):
        refused = send(world.url, "GET", "/metrics", header)
        assert refused.status == status
        assert "tistream-cause: same" in refused.headers
        assert b'"cause_id": "same"' in refused.raw
    told = json.loads(send(world.url, "GET", "/openapi.json", None).raw.partition(b"\r\n\r\n")[2])["paths"]
    assert "security" in told["/metrics"]["get"]
    assert "security" not in told["/healthz"]["get"]
    shown = send(world.url, "GET", "/metrics", narrow["operate platform"])
    assert shown.status == 200
    for probe in ("/healthz", "/readyz", "/openapi.json"):
        answer = send(world.url, "GET", probe, None)
        assert answer.status == 200
        assert world.other.tenant.encode() not in answer.raw
    assert world.other.tenant.encode() not in shown.raw
    assert world.other.cluster.encode() not in shown.raw
