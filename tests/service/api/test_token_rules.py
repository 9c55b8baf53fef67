"""What tokens may be made, and when one is gone: on a meta server and API servers over HTTP."""
# Attack: tokens created while auth is off (409); tokens that would outlive their creator

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support import plain_http
from support.token_world import READ, Platform, platform_in
from support.waiting import eventually
from tistream import cause
from tistream.wire.tokens import EVERYTHING
from tistream_api.auth.jwt_callers import LEEWAY_MS
from tistream_cli.commands.token import create_token
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError

DAY_S = 86_400


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("tokens")) as one:
        yield one


@pytest.mark.parametrize("more", [{}, {"expires_in_s": None}, {"expires_in_s": 10 * DAY_S}])
def test_a_token_does_not_outlive_the_one_that_made_it(platform: Platform, more: dict[str, Any]) -> None:
    until_ms = int(time.time() * 1000) + DAY_S * 1000
    assert platform.made(platform.token(until_ms), **more)["expires_ms"] == until_ms
    exp = int(time.time()) + DAY_S
    eventually(lambda: platform.ask(platform.issuer.sign([]), "GET", "/v1/tokens").status_code == 403)
    signed = platform.issuer.sign([EVERYTHING.model_dump()], exp=exp)
    assert platform.made(signed, **more)["expires_ms"] == exp * 1000 + LEEWAY_MS


def test_a_token_may_end_sooner_than_the_one_that_made_it_and_one_without_end_makes_such(platform: Platform) -> None:
    until_ms = int(time.time() * 1000) + DAY_S * 1000
    soon = platform.made(platform.token(until_ms), expires_in_s=60)["expires_ms"]
    assert soon < until_ms
    endless = platform.token()
    assert platform.made(endless)["expires_ms"] is None
    assert platform.made(endless, expires_in_s=10 * DAY_S)["expires_ms"] > until_ms


def test_no_token_is_made_while_auth_is_off(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reaches an open API would have planted one that is valid once auth is on."""
    before = platform.tokens.every()
    api = platform.start_api(auth="off")
    try:
        answer = plain_http.post(f"{api.url}/v1/tokens", json={"grants": [READ]})
        assert (answer.status_code, answer.json()["type"]) == (409, "tistream:auth-off")
        for name in [name for name in os.environ if name.startswith("TISTREAM_TOKEN")]:
            monkeypatch.delenv(name)
        with pytest.raises(CliError, match=r"TISTREAM_API__AUTH=off.*set it to on.*first token"):
            create_token(ApiClient(api.url), ["read:7/acme"], "", None, None)
    finally:
        api.stop()
    assert platform.tokens.every() == before


def test_a_revoked_token_is_refused_from_the_answer_on(platform: Platform) -> None:
    first = platform.token()
    mine, path = platform.made(first), "/v1/clusters/7/tenants/acme/status"
    assert platform.ask(mine["token"], "GET", path).status_code != 401
    assert platform.ask(first, "DELETE", f"/v1/tokens/{mine['token_id']}").status_code == 200
    assert platform.ask(mine["token"], "GET", path).status_code == 401


def test_the_access_log_says_who_asked_and_under_which_cause(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    token = platform.token()
    eventually(lambda: platform.ask(platform.issuer.sign([]), "GET", "/v1/tokens").status_code == 403)
    caplog.set_level(logging.INFO, "tistream_api")
    wanted = {}
    for who, header in (
        (f"token {token.split('_')[1]}", token),
        ("subject somebody", platform.issuer.sign([EVERYTHING.model_dump()])),
        (None, "nobody"),
    ):
        wanted[platform.ask(header, "GET", "/v1/tokens").headers[cause.HEADER]] = who
    headers = {"authorization": f"Bearer {token}", cause.HEADER: "mine-1"}
    plain_http.get(f"{platform.api.url}/v1/nowhere", headers=headers)
    wanted["mine-1"] = None  # there is no such route, and before none is the gate
    assert len(wanted) == 4
    told: dict[str, str | None] = {}

    def every_line() -> bool:
        lines = [record.__dict__ for record in caplog.records if record.getMessage() == "answered"]
        told.update({line["cause_id"]: line["caller"] for line in lines})
        return wanted.keys() <= told.keys()

    eventually(every_line)  # each comes after its answer
    assert {cause_id: told[cause_id] for cause_id in wanted} == wanted
    secret = token.split("_", 2)[2]
    assert not any(secret in repr(record.__dict__) for record in caplog.records)


def test_a_tenants_key_is_named_by_who_operates_its_cluster(platform: Platform) -> None:
    """Else a tenant's operator could name the key of another tenant."""
    first = platform.token()
    assert platform.ask(first, "POST", "/v1/clusters/7/tenants", {"tenant_id": "keyed"}).status_code == 201
    path = "/v1/clusters/7/tenants/keyed"
    of_tenant, of_cluster = (
        platform.made(first, grants=[{"actions": ["operate"], "cluster": "7", **more}])["token"]
        for more in ({"tenant": "keyed"}, {})
    )
    assert platform.ask(of_tenant, "PUT", f"{path}/retention", {"retention_ms": None}).status_code == 200
    refused = platform.ask(of_tenant, "PUT", f"{path}/encryption", {"kms_key_id": None})
    assert (refused.status_code, refused.json()["detail"]) == (
        403,
        "the token does not grant operate of this cluster: use a token that does (`tistream token create`)",
    )
    assert platform.ask(of_cluster, "PUT", f"{path}/encryption", {"kms_key_id": None}).status_code == 200


@pytest.mark.parametrize("label", ["=1+1", "+1", "-1", "@sum(a1)", "\t=1", "\r=1", "  =1"])
def test_a_label_that_a_spreadsheet_would_run_is_refused(platform: Platform, label: str) -> None:
    body = {"label": label, "grants": [READ]}
    answer = platform.ask(platform.token(), "POST", "/v1/tokens", body)
    assert answer.status_code == 400
    detail = answer.json()["detail"]
    assert "label" in detail
    assert "a spreadsheet that lists tokens would run it as a formula" in detail
    assert "begin with a letter or a digit" in detail
