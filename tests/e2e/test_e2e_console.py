"""The web console in headless Chromium, on a platform that runs: a recorded tenant, and a simulated one that is live.

With TISTREAM_SCREENSHOTS=docs/images the pictures of docs/console.md are taken anew.
"""
# Attack: markup as names; `../`, encoded slashes and NUL as file names of the console

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import browser, golden, plain_http, platform
from support.browser import CONTRASTS, PATIENCE_MS, PICTURES, Sight, answered, picture, text, until
from support.platform import COMMAND, Platform
from support.pull import Consumer
from support.waiting import PATIENCE_S, eventually
from tistream.model.ids import TenantKey

EVERYTHING = golden.load("everything")  # of tenant 7/acme
LIVE = TenantKey("7", "live")
MANY = 1_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as one:
        yield one


@pytest.fixture(scope="module")
def up(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform.running(tmp_path_factory.mktemp("up"), ranges=2) as one:
        loaded = one.create_for(EVERYTHING)
        golden.push(EVERYTHING.deliveries, one.objects)
        loaded.wait_for(EVERYTHING.end_ts)
        with simulated(one) as consumer:
            eventually(lambda: int(consumer.status()["resolved_ts"]) > 0)
            yield one


@contextmanager
def simulated(up: Platform) -> Iterator[Consumer]:
    """`tistream simulate` beside the platform. Without DDL: the tables that tests look at stay."""
    load = ["--rows-per-s", "40", "--txns-per-s", "15", "--tables", "4", "--columns", "5", "--rows-max", "200"]
    told = ["--cluster", LIVE.cluster_id, "--tenant", LIVE.tenant_id, "--url", up.url]
    command = [str(COMMAND), "simulate", "--objects", str(up.objects), *told, *load, "--huge-rows", "0"]
    with (up.data_dir / "simulate.log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            preexec_fn=platform._die_with_us,  # noqa: PLW1509 (as in platform.py)
        )
    try:
        url = f"{up.url}/v1/clusters/{LIVE.cluster_id}/tenants"
        eventually(lambda: f'"{LIVE.tenant_id}"' in plain_http.get(url).text)
        yield up.consumer(LIVE)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


@pytest.fixture
def seen(chromium: Any, up: Platform) -> Iterator[Sight]:
    with browser.sight(chromium, up.url) as one:
        yield one


def test_tenants_are_there_with_what_holds_them_and_are_found_by_the_keyboard(seen: Sight) -> None:
    page = seen.open()
    page.wait_for_selector("tbody tr a:has-text('live')")
    row = page.locator("tbody tr", has=page.locator("a:has-text('acme')"))
    assert row.locator(".pill").inner_text() == "late"
    eventually(lambda: "Push" in row.locator(".why").inner_text())  # once each dispatcher has answered in time
    page.wait_for_selector("tr:has(a:has-text('live')) .pill:is(.pill-live, .pill-late)")  # as busy as the machine is
    picture(page, "tenants")
    page.keyboard.press("/")
    page.keyboard.type("live")
    until(page, "document.querySelectorAll('tbody tr a').length === 1")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('live')")
    assert page.url.endswith("#/t/7/live")


def busiest(consumer: Consumer) -> tuple[str, str]:
    """The table with the most events."""
    eventually(lambda: with_events(consumer))
    return with_events(consumer)[0]


def with_events(consumer: Consumer) -> list[tuple[str, str]]:
    """The tables that have events, those with the most first."""
    earliest = consumer.client.get(f"{consumer.base}/ddl").json()["earliest_ts"]
    lines = consumer.client.get(f"{consumer.base}/changes?start_ts={earliest}&limit=20000").text.splitlines()
    rows = [event for event in map(json.loads, lines) if event["type"] == "row"]
    counted = Counter((event["database"], event["table"]) for event in rows)
    return [name for name, _ in counted.most_common()]


def test_the_overview_of_a_live_tenant_shows_what_each_stage_adds_now_and_lately(seen: Sight) -> None:
    page = seen.open("#/t/7/live")
    page.wait_for_selector(".hold-none" if PICTURES else ".hold")
    assert page.locator(".pipeline li").count() == 5
    until(page, "[...document.querySelectorAll('.pipeline b')].every((one) => one.textContent.startsWith('+'))")
    until(page, "document.querySelectorAll('.lag .band').length === 5")
    paths = answered(page, "[...document.querySelectorAll('.lag .band')].map((one) => one.getAttribute('d').length)")
    assert min(paths) > 0
    page.locator(".lag").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    picture(page, "overview")
    until(page, "/^\\d\\d:\\d\\d:\\d\\d/.test(document.querySelector('.reading').textContent)")
    eventually(lambda: ranges_shown(page))


def ranges_shown(page: Any) -> bool:
    """Whether the key ranges are there, after another question where they are not: it has no answer while a sorter does
    not answer in its time."""
    if not page.locator("table[aria-label='Key ranges'] tbody tr").count():
        page.get_by_role("button", name="Look").click()
    return bool(page.locator("table[aria-label='Key ranges'] tbody tr").count())


def test_what_holds_the_watermark_of_a_recorded_tenant_is_named(seen: Sight, up: Platform) -> None:
    page = seen.open("#/t/7/acme")
    page.wait_for_selector(".hold-late")
    consumer = up.consumer(EVERYTHING.tenant)
    eventually(lambda: shows_hold(page, consumer.status()["held_by"]))


def shows_hold(page: Any, told: dict[str, Any] | None) -> bool:
    """Whether the page says what the API has told, which is that a store pushes nothing. Until the page has asked again
    it may say that a service did not answer in its time."""
    parts = [".hold h2", ".hold", ".hold dl", ".pipeline .held .stage-name"]
    title, whole, details, stage = answered(
        page, f"{json.dumps(parts)}.map((one) => document.querySelector(one)?.innerText ?? '')"
    )
    return (
        told is not None
        and (title, stage) == ("Held at Push", "Push")
        and told["reason"] in whole
        and (told["store_id"] or "none") in details
    )


def test_events_of_a_table_come_by_themselves_and_none_is_lost_or_doubled_by_a_pause(seen: Sight, up: Platform) -> None:
    database, table = busiest(up.consumer(LIVE))
    page = seen.open("#/t/7/live/tables")
    page.locator(f".names section[aria-label='{database}'] a", has_text=re.compile(f"^{table}$")).click()
    page.wait_for_selector(".detail summary")
    page.select_option("select", "all")
    page.wait_for_selector(".tail tbody tr")
    page.locator("summary").click()
    assert page.locator(".columns li").count() > 3
    rows = "document.querySelectorAll('.tail tbody tr').length"
    until(page, f"{rows} > 20")
    if PICTURES:
        until(page, f"{rows} > 60")
        picture(page, "tail")
    page.get_by_role("button", name="Pause").click()
    page.wait_for_selector("[data-running=false]")
    total = "Number(document.querySelector('.detail [role=status]').textContent.replace(/ events.*|,/g, ''))"
    paused = answered(page, total)
    page.get_by_role("button", name="Go on").click()
    until(page, f"{total} > {paused} + 5")
    page.get_by_role("button", name="Pause").click()
    page.wait_for_selector("[data-running=false]")
    shown = answered(
        page,
        "[...document.querySelectorAll('.tail tbody tr')].map((row) => [...row.cells].slice(0, 3).map("
        "(cell) => (cell.querySelector('time')?.title ?? '') + cell.textContent).join('|'))",
    )
    assert len(shown) == min(200, answered(page, total))
    assert len(set(shown)) == len(shown)


def test_rows_of_a_recorded_table_are_shown_as_the_pull_tells_them(seen: Sight, up: Platform) -> None:
    page = seen.open("#/t/7/acme/tables/shop/orders")
    page.select_option("select", "all")
    page.wait_for_selector(".tail tbody tr")
    consumer = up.consumer(EVERYTHING.tenant)
    answer = consumer.client.get(
        consumer.changes_url("shop", "orders") + f"?start_ts={EVERYTHING.snapshot_ts}&limit=100000"
    )
    events = [json.loads(line) for line in answer.text.splitlines()][:-1]
    wanted = f"{len(events):,} events"
    until(page, f"document.querySelector('.detail [role=status]').textContent.startsWith('{wanted}')")
    newest = page.locator(".tail tbody tr").first
    assert newest.locator("time").get_attribute("title") == f"commit_ts {events[-1]['commit_ts']}"


def test_the_history_of_ddl_is_the_tenants(seen: Sight, up: Platform) -> None:
    page = seen.open("#/t/7/acme/ddl")
    page.wait_for_selector(".ddl")
    page.wait_for_selector(".title .pill")
    picture(page, "ddl")
    consumer = up.consumer(EVERYTHING.tenant)
    told = consumer.client.get(f"{consumer.base}/ddl?limit=1000").json()["events"]
    while page.get_by_role("button", name="Older ones").count():
        before = page.locator(".ddl").count()
        page.get_by_role("button", name="Older ones").click()
        until(page, f"document.querySelectorAll('.ddl').length > {before}")
    titles = answered(page, "[...document.querySelectorAll('.ddl time')].map((one) => one.title)")
    assert titles == [f"ts {event['commit_ts']}" for event in told]
    assert page.locator(".ddl pre").first.inner_text() == told[0]["query"]


def test_nodes_tasks_and_who_has_what(seen: Sight) -> None:
    page = seen.open("#/platform")
    page.wait_for_selector(".node")
    names = answered(page, "[...document.querySelectorAll('.node b')].map((one) => one.textContent)")
    assert {"api-1", "dispatcher-1", "sorter-1", "schema-1"} <= set(names)
    assert "decides" in text(page, ".title .note")
    assert page.locator("table[aria-label=Tasks] tbody tr").count() >= 2
    picture(page, "platform")
    page.locator("table[aria-label=Tasks] a:has-text('7/live')").first.click()
    until(page, "document.querySelectorAll('table[aria-label=Stores] tbody tr').length === 3")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_in_both_lights(chromium: Any, up: Platform, scheme: str) -> None:
    """Contrast of at least 4.5 to 1 (WCAG 2.2 AA), measured on what is drawn."""
    with browser.sight(chromium, up.url, scheme=scheme) as one:
        for path in (
            "#/tenants",
            "#/t/7/live",
            "#/t/7/acme",
            "#/t/7/live/ddl",
            "#/t/7/live/placement",
            "#/t/7/live/feeds",
            "#/platform",
        ):
            page = one.open(path)
            page.wait_for_selector(".pill")
            browser.settled(page)
            assert answered(page, CONTRASTS) == [], path
            if scheme == "dark" and path == "#/t/7/acme":
                picture(page, "dark")


def test_everything_can_be_reached_and_has_a_name(seen: Sight) -> None:
    for path in ("#/tenants", "#/t/7/live", "#/t/7/live/tables", "#/t/7/live/feeds", "#/platform"):
        page = seen.open(path)
        page.wait_for_selector("h1")
        nameless = answered(
            page,
            "[...document.querySelectorAll('a, button, input, select')].filter((one) => "
            "one.checkVisibility() && !(one.textContent.trim() || one.ariaLabel || one.labels?.length)).length",
        )
        assert nameless == 0, path
    page = seen.open("#/tenants")
    page.reload()
    page.wait_for_selector("tbody a")
    page.keyboard.press("Tab")
    assert answered(page, "document.activeElement.id") == "skip"
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(answered(page, "document.activeElement.textContent.trim()"))
    assert {"Tenants", "Platform", "7/live", "7/acme", "State", "Lag"} <= reached


def test_what_looks_like_markup_stays_text(seen: Sight) -> None:
    page = seen.open("#/t/7/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    page.wait_for_selector(".lost")
    assert "<img src=x" in text(page, "h1")
    assert page.locator("main img").count() == 0


def test_a_token_is_asked_for_kept_in_the_tab_alone_and_sent_as_bearer(seen: Sight) -> None:
    """The refusals are put before the real API here: what is asked for is the page's part of it."""

    def guard(route: Any) -> None:
        if route.request.headers.get("authorization") == "Bearer right":
            route.continue_()
        else:
            body = json.dumps({"type": "tistream:unauthorized", "title": "", "status": 401, "detail": "no such token"})
            route.fulfill(status=401, content_type="application/problem+json", body=body)

    seen.page.route(re.compile(r"/v1/"), guard)
    page = seen.open("#/tenants")
    page.wait_for_selector("dialog[open]")
    assert "no such token" in text(page, "dialog")
    for token in ("wrong", "right"):
        page.fill("#token", token)
        page.keyboard.press("Enter")
        if token == "wrong":
            page.wait_for_selector("dialog[open]")
    page.wait_for_selector("tbody tr a:has-text('live')")
    assert answered(page, "sessionStorage.getItem('tistream-token')") == "right"
    assert answered(page, "localStorage.length + document.cookie.length") == 0
    assert "right" not in page.url
    page.get_by_role("button", name="Forget token").click()
    page.wait_for_selector("dialog[open]")
    assert answered(page, "sessionStorage.length") == 0


def test_a_thousand_tenants_are_a_list_like_any_other(seen: Sight) -> None:
    """The real answer with a thousand tenants more put into it: what is tried is what the page makes of it."""

    def more(route: Any) -> None:
        answer = route.fetch(timeout=PATIENCE_MS)
        found = answer.json()["tenants"]
        one = next(one for one in found if one["tenant_id"] == LIVE.tenant_id)
        found += [{**one, "cluster_id": "9", "tenant_id": f"customer-{number}"} for number in range(MANY)]
        route.fulfill(response=answer, json={"tenants": found})

    seen.page.route(re.compile(r"/v1/tenants$"), more)
    page = seen.open()
    page.wait_for_selector("tbody a")
    total = int(text(page, ".title [role=status]").split()[0].replace(",", ""))
    assert total > MANY
    assert page.locator("tbody tr").count() < 60
    page.keyboard.press("/")
    page.keyboard.type("customer-777")
    until(page, "document.querySelectorAll('tbody a').length === 1")
    assert page.locator("tbody tr a").inner_text() == "9/customer-777"
    page.fill("[data-search]", "")
    until(page, "document.querySelectorAll('tbody a').length > 10")
    answered(page, "window.scrollTo(0, document.body.scrollHeight)")
    page.wait_for_selector(f"tr[aria-rowindex='{total + 1}']")
    assert page.locator("tbody tr").count() < 60


def test_a_table_shows_its_newest_events_at_first_and_the_beginning_where_none_has_come(
    seen: Sight, up: Platform
) -> None:
    consumer = up.consumer(EVERYTHING.tenant)
    pull = consumer.changes_url("shop", "orders") + f"?start_ts={EVERYTHING.snapshot_ts}&limit=100000"
    events = [json.loads(line) for line in consumer.client.get(pull).text.splitlines()][:-1]
    page = seen.open("#/t/7/acme/tables/shop/orders")
    page.wait_for_selector(".tail tbody tr")
    until(page, "document.querySelectorAll('.tail tbody tr').length >= 50")
    told = [f"commit_ts {event['commit_ts']}" for event in reversed(events)]
    shown = answered(page, "[...document.querySelectorAll('.tail time')].map((one) => one.title)")
    assert shown == told[: len(shown)]
    assert page.locator("select").input_value() == "last"
    page.select_option("select", "now")
    page.wait_for_selector(".detail .empty")
    page.get_by_role("button", name="From the beginning").click()
    until(page, f"document.querySelector('.detail [role=status]').textContent.startsWith('{len(events):,} events')")


@pytest.mark.parametrize(
    ("path", "home"),
    [
        ("#/t/7/nobody", "#/tenants"),
        ("#/t/7/acme/tables/shop/nothing", "#/t/7/acme/tables"),
        ("#/t/7/acme/nowhere", "#/t/7/acme"),
        ("#/nowhere", "#/tenants"),
    ],
)
def test_what_is_not_there_is_one_message_with_a_way_home(seen: Sight, path: str, home: str) -> None:
    page = seen.open(path)
    page.wait_for_selector(".lost")
    page.wait_for_timeout(1_500)  # whatever else would say so has had its time; nothing is waited for
    assert page.locator(".trouble, .empty").count() == 1
    assert page.locator(".lost a").get_attribute("href") == home
    page.locator(".lost a").click()
    page.wait_for_selector("tbody a, .hold, .names a")


PHONE = {"width": 390, "height": 844}
PATHS = [
    "#/tenants",
    "#/t/7/acme",
    "#/t/7/acme/tables/shop/orders",
    "#/t/7/acme/ddl",
    "#/t/7/live/placement",
    "#/t/7/live/feeds",
    "#/platform",
]


def test_a_phone_shows_every_page_without_scrolling_sideways(chromium: Any, up: Platform) -> None:
    with browser.sight(chromium, up.url, viewport=PHONE) as one:
        for path in [*PATHS, "docs.html"]:
            page = one.open(path)
            page.wait_for_selector(
                ".tail tbody tr" if "orders" in path else ".pill" if path.startswith("#") else "details"
            )
            page.wait_for_timeout(300)
            if PICTURES:
                page.screenshot(path=Path(PICTURES) / f"phone-{PATHS.index(path) if path in PATHS else 'docs'}.png")
            wide = answered(page, "document.documentElement.scrollWidth")
            assert wide <= PHONE["width"], path
        page = one.open("#/t/7/live")
        page.wait_for_selector(".lag .tick")
        until(page, "document.querySelector('.lag').viewBox.baseVal.width < 400")
        sizes = answered(
            page, "[...document.querySelectorAll('.lag .tick')].map((t) => t.getBoundingClientRect().height)"
        )
        assert min(sizes) >= 10


def test_times_tell_their_zone(chromium: Any, up: Platform) -> None:
    with browser.sight(chromium, up.url, timezone_id="Asia/Kolkata") as one:
        page = one.open("#/t/7/acme")
        page.wait_for_selector(".title time")
        assert text(page, ".title time").endswith("UTC+05:30")
        page = one.open("#/t/7/acme/ddl")
        page.wait_for_selector(".ddl time")
        assert text(page, ".ddl time").endswith("UTC+05:30")


def test_a_ts_a_cursor_and_a_command_are_copied(chromium: Any, up: Platform) -> None:
    with browser.sight(chromium, up.url, permissions=["clipboard-read", "clipboard-write"]) as one:
        page = one.open("#/t/7/acme/tables/shop/orders")
        page.wait_for_selector(".copies button:not([disabled])")

        consumer = up.consumer(EVERYTHING.tenant)
        assert browser.copied(page, "Copy the ts that is served up to") == consumer.status()["resolved_ts"]
        cursor = browser.copied(page, "Copy the cursor behind the newest event")
        command = shlex.split(browser.copied(page, "Copy a command that goes on"))
        assert command[0] == "curl"
        answer = consumer.client.get(command[-1])
        assert answer.status_code == 200
        assert f"cursor={cursor}" in command[-1]


def test_tab_stops_once_at_the_tables_and_arrows_go_through_them(seen: Sight) -> None:
    page = seen.open("#/t/7/acme/tables/shop/orders")
    page.wait_for_selector(".names a[aria-current]")
    assert page.locator(".names a").count() > 5
    assert answered(page, "[...document.querySelectorAll('.names a')].filter((one) => one.tabIndex >= 0).length") == 1
    page.locator(".names a[aria-current]").focus()
    page.keyboard.press("ArrowDown")
    assert answered(page, "document.activeElement.closest('.names') !== null") is True
    assert answered(page, "document.activeElement.textContent") != "orders"
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    assert answered(page, "document.activeElement.closest('.names')") is None


def test_docs_is_the_openapi_document_as_a_page(seen: Sight, up: Platform) -> None:
    seen.page.goto(f"{up.url}/docs")
    seen.page.wait_for_selector("details:has-text('PullTable')")
    seen.page.locator("summary:has-text('PullTable')").click()
    assert "events" in text(seen.page, "details[open] table")
