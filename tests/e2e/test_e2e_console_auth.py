"""The web console of a platform that wants tokens: each sees in it what it grants, for as long as it holds."""
# Attack: the console in a browser without a token, with a wrong one, with one of a tenant, and with one that is
#   revoked during a tail

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support import browser, golden, plain_http
from support.browser import Sight, until
from support.platform import Platform
from support.waiting import eventually
from tistream.model.ids import TenantKey

SET = golden.load("everything")  # of tenant 7/acme
OTHER = TenantKey("7", "somebody-elses")


class Tokens:
    """Made with the first one."""

    def __init__(self, platform: Platform) -> None:
        self.first = (platform.data_dir / "secrets" / "first.token").read_text().strip()
        self.client = plain_http.patient_client(
            base_url=platform.url, headers={"authorization": f"Bearer {self.first}"}
        )

    def made(self, *actions: str, **scope: str) -> str:
        return self.made_of([{"actions": list(actions), **scope}])

    def made_of(self, grants: list[dict[str, Any]]) -> str:
        """A token, once the API server knows it: it waits two seconds for that before it answers."""
        answer = self.client.post("/v1/tokens", json={"grants": grants})
        assert answer.status_code == 201, answer.text
        token = str(answer.json()["token"])
        shown = {"authorization": f"Bearer {token}"}
        eventually(lambda: self.client.get("/v1/tenants", headers=shown).status_code == 200)
        return token

    def revoke(self, token: str) -> None:
        assert self.client.delete(f"/v1/tokens/{token.split('_')[1]}").is_success


@pytest.fixture(scope="module")
def tokens(guarded: Platform) -> Tokens:
    """Of two tenants, of which one has the recorded rows."""
    made = Tokens(guarded)
    eventually(lambda: made.client.get("/v1/owner").status_code == 200)
    for tenant in (SET.tenant, OTHER):
        told = made.client.post(f"/v1/clusters/{tenant.cluster_id}/tenants", json={"tenant_id": tenant.tenant_id})
        assert told.status_code == 201, told.text
    golden.push(SET.deliveries, guarded.objects)
    status = f"/v1/clusters/{SET.tenant.cluster_id}/tenants/{SET.tenant.tenant_id}/status"

    def caught_up() -> bool:
        answer = made.client.get(status)
        return answer.status_code == 200 and int(answer.json()["resolved_ts"]) >= SET.end_ts

    eventually(caught_up)
    return made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as one:
        yield one


@pytest.fixture
def seen(chromium: Any, guarded: Platform) -> Iterator[Sight]:
    with browser.sight(chromium, guarded.url) as one:
        yield one


def entered(seen: Sight, path: str, token: str) -> Any:
    """The page at `path`, after it has asked for a token and got this one."""
    page = seen.open(path)
    page.wait_for_selector("dialog[open]")
    page.fill("#token", token)
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog:not([open])", state="attached")
    return page


def answers(seen: Sight) -> list[str]:
    """Bodies of everything the API tells this page from here on, but endless ones."""
    told: list[str] = []

    def keep(response: Any) -> None:
        if "/v1/" in response.url and "follow=" not in response.url:
            told.append(response.text())

    seen.page.on("requestfinished", lambda request: keep(request.response()))
    return told


def has_come(page: Any, told: list[str], count: int) -> bool:
    """Whether so many answers have come. Playwright tells of them only while it waits itself."""
    page.wait_for_timeout(20)
    return len(told) >= count


def test_nothing_is_shown_without_a_token_or_with_a_wrong_one(seen: Sight, tokens: Tokens) -> None:
    told = answers(seen)
    page = seen.open("#/tenants")
    page.wait_for_selector("dialog[open]")
    assert "token" in page.locator("#ask-why").inner_text()
    _, id_of_another, secret = tokens.made("read", cluster="7", tenant="nobody").split("_", 2)
    for tries, wrong in enumerate(("wrong", f"tst_{id_of_another}_{secret[::-1]}"), 1):
        page.fill("#token", wrong)
        page.keyboard.press("Enter")
        eventually(lambda tries=tries: has_come(page, told, tries))  # type: ignore[misc]
        page.wait_for_selector("dialog[open]")
    eventually(lambda: has_come(page, told, 3))
    assert page.locator("tbody tr a").count() == 0
    assert not any(SET.tenant.tenant_id in body or OTHER.tenant_id in body for body in told)


def test_the_first_token_sees_every_tenant_and_the_platform(seen: Sight, tokens: Tokens) -> None:
    page = entered(seen, "#/tenants", tokens.first)
    page.wait_for_selector("tbody tr a:has-text('acme')")
    page.wait_for_selector(f"tbody tr a:has-text('{OTHER.tenant_id}')")
    page.locator("#nav a", has_text="Platform").click()
    page.wait_for_selector(".node")
    page.wait_for_selector("table[aria-label=Tasks] tbody tr")


def test_a_token_of_a_tenant_sees_that_tenant_alone(seen: Sight, tokens: Tokens) -> None:
    told = answers(seen)
    page = entered(seen, "#/tenants", tokens.made("read", cluster="7", tenant=SET.tenant.tenant_id))
    page.wait_for_selector("tbody tr a:has-text('acme')")
    assert page.locator("tbody tr a").all_inner_texts() == ["7/acme"]
    page.locator("tbody tr a").click()
    page.wait_for_selector(".hold")
    page.wait_for_selector(".lag")
    for section, sign in (("DDL history", ".ddl"), ("Placement", "table[aria-label=Stores] tbody tr")):
        page.locator("#sections a", has_text=section).click()
        page.wait_for_selector(sign)
    page.locator("#nav a", has_text="Platform").click()
    page.wait_for_selector(".trouble:has-text('This token may not see this')")
    seen.open(f"#/t/7/{OTHER.tenant_id}")
    page.wait_for_selector(".trouble:has-text('This token may not see this')")
    assert page.locator(".hold").count() == 0
    bodies = [body for body in told if OTHER.tenant_id in body]
    assert all("does not grant" in body for body in bodies), bodies  # it is told back what it asked for, and no more


def test_the_tail_of_a_table_needs_a_token_for_that_table_and_ends_with_it(seen: Sight, tokens: Tokens) -> None:
    token = tokens.made("read", cluster="7", tenant=SET.tenant.tenant_id, database="shop", table="orders")
    page = entered(seen, "#/t/7/acme/tables/shop/orders", token)
    page.select_option("select", "all")
    page.wait_for_selector(".tail tbody tr")
    page.wait_for_selector(".names a")  # the names and the events come by themselves
    assert page.locator(".names a").all_inner_texts() == ["orders"]
    assert "sees a part of the tenant" in page.locator(".title .note").first.inner_text()
    tokens.revoke(token)
    page.wait_for_selector("dialog[open]")
    assert "not valid" in page.locator("#ask-why").inner_text()
    page.fill("#token", tokens.made("read", cluster="7", tenant=SET.tenant.tenant_id))
    page.keyboard.press("Enter")
    page.wait_for_selector(".tail")
    page.select_option("select", "all")
    page.wait_for_selector(".tail tbody tr")
    page.locator(".names a").nth(1).wait_for()


def test_points_in_time_show_what_a_token_grants(seen: Sight, tokens: Tokens) -> None:
    tenant = {"cluster": "7", "tenant": SET.tenant.tenant_id}
    pull = "/v1/clusters/7/tenants/acme/databases/shop/tables/orders/changes"
    answer = tokens.client.get(f"{pull}?start_ts={SET.snapshot_ts}&limit=100000")
    newest = json.loads(answer.text.splitlines()[-2])
    page = entered(
        seen, "#/t/7/acme/tables/shop/orders/at", tokens.made("read", **tenant, database="shop", table="orders")
    )
    page.wait_for_selector(".sheet tbody tr")
    page.get_by_role("button", name="Previous change").click()
    until(page, f"location.hash.includes('{newest['commit_ts']}')")
    page.get_by_role("link", name="History of the row").first.click()
    page.wait_for_selector(".tail tbody a.key")
    page.locator(".tail tbody a.key").first.click()
    page.wait_for_selector(".txn tbody tr")
    assert set(page.locator(".txn tbody td:first-child").all_inner_texts()) == {"shop.orders"}
    page.wait_for_selector(".note:has-text('only rows of shop.orders are shown')")
    assert page.locator(".undo").count() == 0
    told = answers(seen)
    for view in ("at", "diff"):
        seen.open(f"#/t/7/acme/tables/shop/items/{view}")
        page.wait_for_selector(".detail .lost:has-text('This token may not see this')")
    assert all("does not grant" in body for body in told if '"items"' in body)


@pytest.mark.parametrize("table", ["orders", None])
def test_a_token_of_a_part_of_a_tenant_lands_on_what_it_grants(seen: Sight, tokens: Tokens, table: str | None) -> None:
    more = {} if table is None else {"table": table}
    page = entered(
        seen, "#/tenants", tokens.made("read", cluster="7", tenant=SET.tenant.tenant_id, database="shop", **more)
    )
    page.wait_for_selector(".names a:has-text('orders')")
    assert page.url.endswith(f"#/t/7/acme/tables/shop{'' if table is None else '/orders'}")
    assert page.locator(".names h3").all_inner_texts() == ["shop"]
    if table is not None:
        page.wait_for_selector(".tail tbody tr")


def test_a_token_of_several_parts_lists_them(seen: Sight, tokens: Tokens) -> None:
    named = {"cluster": "7", "tenant": SET.tenant.tenant_id, "database": "shop"}
    grants = [{"actions": ["read"], **named, "table": table} for table in ("orders", "busy")]
    token = tokens.made_of(grants)
    page = entered(seen, "#/tenants", token)
    page.wait_for_selector(".parts a")
    assert page.locator(".parts a").all_inner_texts() == ["7/acme: shop.busy", "7/acme: shop.orders"]
    page.locator(".parts a").last.click()
    page.wait_for_selector(".tail tbody tr")
