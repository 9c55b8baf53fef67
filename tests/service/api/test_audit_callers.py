"""Over HTTP, with tokens: the audit log names who has asked, and only who operates the platform may read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.token_world import Platform, platform_in
from support.waiting import eventually
from tistream.wire.tokens import EVERYTHING, hash_of

OPERATE_CLUSTER = {"actions": ["operate"], "cluster": "7"}
OPERATE_TENANT = {"actions": ["operate"], "cluster": "7", "tenant": "acme"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("audit")) as one:
        yield one


def newest(platform: Platform, token: str) -> dict[str, Any]:
    [entry] = platform.ask(token, "GET", "/v1/audit?limit=1").json()["entries"]
    found: dict[str, Any] = entry
    return found


def test_the_log_names_the_token_or_the_subject_that_asked(platform: Platform) -> None:
    token = platform.token()
    answer = platform.ask(token, "POST", "/v1/clusters/7/tenants", {"tenant_id": "acme"})
    assert answer.status_code == 201
    entry = newest(platform, token)
    assert (entry["actor"], entry["address"]) == (f"token {token.split('_')[1]}", "127.0.0.1")
    assert (entry["action"], entry["subject"]) == ("CreateTenant", "tenant 7/acme")
    assert entry["cause"] == answer.headers["tistream-cause"]
    signed = platform.issuer.sign([EVERYTHING.model_dump()], sub="jane@example")
    eventually(lambda: platform.ask(signed, "GET", "/v1/owner").status_code == 200)
    body = {"retention_ms": "604800000"}
    assert platform.ask(signed, "PUT", "/v1/clusters/7/tenants/acme/retention", body).status_code == 200
    entry = newest(platform, token)
    assert (entry["actor"], entry["became"]) == ("subject jane@example", {"retention_ms": 604_800_000})


def test_a_token_is_made_and_revoked_in_the_log_and_its_secret_is_not(platform: Platform) -> None:
    token = platform.token()
    made = platform.made(token, label="billing")
    platform.ask(token, "DELETE", f"/v1/tokens/{made['token_id']}")
    text = platform.ask(token, "GET", "/v1/audit").text
    secret = made["token"].split("_")[2]
    assert secret not in text
    assert hash_of(secret) not in text
    revoked = newest(platform, token)
    assert (revoked["action"], revoked["subject"]) == ("RevokeToken", f"token {made['token_id']}")


@pytest.mark.parametrize("grant", [OPERATE_CLUSTER, OPERATE_TENANT, {"actions": ["read", "push"], "cluster": "*"}])
def test_who_does_not_operate_the_platform_is_told_none_of_it(platform: Platform, grant: dict[str, Any]) -> None:
    made = platform.made(platform.token(), grants=[grant])["token"]
    for query in ("", "?cluster_id=7&tenant_id=acme"):
        assert platform.ask(made, "GET", f"/v1/audit{query}").status_code == 403
