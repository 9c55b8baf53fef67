"""Points in time in the web console, in headless Chromium: a table as it was, histories, transactions, differences."""
# Attack: markup in the values of rows, keys and columns of reads at a point in time

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from support import browser
from support.browser import CONTRASTS, PATIENCE_MS, Sight, answered, picture, text, until
from support.pulled import Pulled
from tistream.model.ts import from_physical_ms
from tistream_cli.app import app

STEPS = 1_000  # of the slider
HOME = "#/t/8/whole/tables/shop"
Line = dict[str, Any]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as one:
        yield one


@pytest.fixture
def seen(chromium: Any, whole: Pulled) -> Iterator[Sight]:
    options: dict[str, Any] = {"permissions": ["clipboard-read", "clipboard-write"], "timezone_id": "Asia/Kolkata"}
    with browser.sight(chromium, whole.consumer.url, **options) as one:
        yield one


def lines(whole: Pulled, path: str) -> list[Line]:
    answer = whole.consumer.client.get(whole.consumer.base + path)
    assert answer.status_code == 200, answer.text[:500]
    return [json.loads(line) for line in answer.text.splitlines()]


def rows_of(whole: Pulled, table: str, ts: object) -> list[Line]:
    return lines(whole, f"/databases/shop/tables/{table}/rows?ts={ts}")[:-1]


def events_of(whole: Pulled, table: str) -> list[Line]:
    """Every event of a pull of the table, in order."""
    return lines(whole, f"/databases/shop/tables/{table}/changes?start_ts={whole.golden.snapshot_ts}&limit=100000")[:-1]


def stamps(whole: Pulled, table: str) -> list[int]:
    """The commit_ts of every event of the table, each once, in order."""
    return sorted({int(event["commit_ts"]) for event in events_of(whole, table)})


def changed_alone(whole: Pulled, table: str) -> Line:
    """The newest update of a row of the table that comes some time after the change before it."""
    every = stamps(whole, table)
    before = dict(zip(every[1:], every, strict=False))
    updates = [one for one in events_of(whole, table) if one["type"] == "row" and one["old_row"]]
    millis = from_physical_ms(40)
    return next(one for one in reversed(updates) if int(one["commit_ts"]) - before[int(one["commit_ts"])] > millis)


def shown_ts(page: Any) -> int:
    """The ts of the rows that are shown, once they are."""
    until(page, "document.querySelector('[data-reading]')?.dataset.reading === 'false'")
    found = page.locator(".past .at time").get_attribute("title")
    assert found in page.url.replace("ts=", "ts "), "the address says what is shown"
    return int(found.removeprefix("ts "))


def shown_rows(page: Any) -> list[list[str]]:
    """The cells of the rows that are shown, without those of links and times."""
    return list(
        answered(
            page,
            "[...document.querySelectorAll('.sheet tbody tr')].map((row) => "
            "[...row.cells].slice(2).map((cell) => cell.textContent))",
        )
    )


def as_shown(rows: list[Line]) -> list[list[str]]:
    """Rows of an answer as the page shows them."""

    def said(value: Any) -> str:
        if value is None:
            return "NULL"
        found = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return found if len(found) <= 120 else f"{found[:120]}…"

    return [[said(value) for value in row["row"].values()] for row in rows]


def copied(page: Any, name: str) -> list[str]:
    """The words of the command that the button copies."""
    return shlex.split(browser.copied(page, name))


def run(words: list[str]) -> str:
    """What a copied `tistream` command prints."""
    assert words[0] == "tistream"
    found = CliRunner().invoke(app, words[1:])
    assert found.exit_code == 0, (words, found.output, found.exception)
    return found.stdout


def before_it(versions: list[Line], ts: int) -> int:
    """The commit_ts of the newest version below `ts`."""
    return max(int(one["commit_ts"]) for one in versions if int(one["commit_ts"]) < ts)


def test_a_user_finds_the_row_before_a_change_its_history_the_transaction_and_the_undo(
    seen: Sight, whole: Pulled
) -> None:
    wanted = changed_alone(whole, "orders")
    commit_ts, key = int(wanted["commit_ts"]), wanted["key"]
    (key_text,) = key.values()
    page = seen.open(f"{HOME}/orders")
    page.get_by_role("link", name="As it was").click()
    newest = shown_ts(page)
    assert newest >= whole.golden.end_ts
    assert shown_rows(page) == as_shown(rows_of(whole, "orders", newest)[:100])

    # The slider: to the last of its steps before the change.
    page.wait_for_selector("input[type=range]:not([disabled])")
    low, high = (
        int(one.removeprefix("ts "))
        for one in answered(page, "[...document.querySelectorAll('.ends time')].map((one) => one.title)")
    )
    step = (commit_ts - low) * STEPS // (high - low) - 1
    page.locator("input[type=range]").fill(str(step))
    until(page, f"!document.querySelector('.past .at time').title.endsWith('{newest}')")
    before = shown_ts(page)
    assert low < before < commit_ts
    old = rows_of(whole, "orders", before)
    assert shown_rows(page) == as_shown(old[:100])
    assert wanted["old_row"] in [row["row"] for row in old]
    assert wanted["row"] not in [row["row"] for row in old]
    picture(page, "as-it-was")
    for press, wanted_step in (("ArrowLeft", step - 1), ("ArrowRight", step)):
        page.keyboard.press(press)
        until(page, f"document.querySelector('input[type=range]').value === '{wanted_step}'")
        assert (shown_ts(page) == before) is (wanted_step == step)

    # A link shows the same, and so do the commands.
    page.reload()
    assert shown_ts(page) == before
    assert shown_rows(page) == as_shown(old[:100])
    curl = copied(page, "Copy a curl command that reads these rows")
    assert curl[0] == "curl"
    answer = whole.consumer.client.get(curl[-1]).text.splitlines()
    assert [json.loads(line) for line in answer[:-1]] == old[:100]
    command = copied(page, "Copy a tistream command that reads these rows")
    assert [json.loads(line) for line in run([*command, "--json"]).splitlines()[:-1]] == old[:100]

    # Step by step through the changes, then by a typed time and a key.
    every = stamps(whole, "orders")
    page.get_by_role("button", name="Previous change").click()
    until(page, f"!location.hash.includes('{before}')")
    assert shown_ts(page) == max(one for one in every if one < before)
    page.get_by_role("button", name="Next change").click()
    after = min(one for one in every if one > before)
    until(page, f"location.hash.includes('{after}')")
    assert shown_ts(page) == after
    page.get_by_label("Time", exact=True).fill(str(commit_ts))
    page.keyboard.press("Enter")
    until(page, f"location.hash.includes('{commit_ts}')")
    assert shown_ts(page) == commit_ts
    page.get_by_label("Key", exact=True).fill(str(key_text))
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('.sheet tbody tr').length === 1")
    assert shown_rows(page) == as_shown([wanted])
    assert page.locator(".sheet .is-fresh").count() == 1
    asked = f"/databases/shop/tables/orders/history?key={quote(json.dumps(key))}"
    versions = lines(whole, asked)[0]["versions"]
    for title, wanted_ts in (("Previous change", before_it(versions, commit_ts)), ("Next change", commit_ts)):
        page.get_by_role("button", name=title).click()
        until(page, f"location.hash.includes('{wanted_ts}')")
        assert shown_ts(page) == wanted_ts

    # The history of the row.
    page.get_by_role("link", name="History of the row").click()
    page.wait_for_selector(".tail tbody tr")
    titles = answered(page, "[...document.querySelectorAll('.tail tbody time')].map((one) => one.title)")
    assert titles == [f"commit_ts {one['commit_ts']}" for one in versions]
    row = page.locator(".tail tbody tr", has=page.locator(f"time[title='commit_ts {commit_ts}']")).first
    changed = [name for name, value in wanted["row"].items() if value != wanted["old_row"][name]]
    assert row.locator("mark i").all_inner_texts() == changed
    assert (
        row.locator("mark s").first.inner_text()
        == as_shown([{"row": wanted["old_row"]}])[0][list(wanted["row"]).index(changed[0])]
    )
    words = copied(page, "Copy a tistream command that reads this history")
    assert [json.loads(line) for line in run([*words, "--json"]).splitlines()] == versions

    # The whole transaction, and the undo.
    row.locator(f"a:has-text('{wanted['start_ts']}')").click()
    page.wait_for_selector(".txn tbody tr")
    *events, _ = lines(whole, f"/transactions/{wanted['start_ts']}")
    assert page.locator(".txn tbody tr").count() == len(events)
    tables = [f"{one['database']}.{one['table']}" for one in events]
    assert page.locator(".txn tbody td:first-child").all_inner_texts() == tables
    undo = shlex.split(text(page, ".undo pre"))
    assert undo == copied(page, "Copy the undo command")
    assert undo[:4] == ["tistream", "undo", "--txn", wanted["start_ts"]]
    plan = json.loads(run([*undo, "-o", "json"]))
    assert plan, "the copied command shows a plan"
    page.go_back()
    page.wait_for_selector(".tail mark")


def test_an_event_leads_to_the_history_of_its_row(seen: Sight, whole: Pulled) -> None:
    page = seen.open(f"{HOME}/orders")
    page.wait_for_selector(".tail tbody tr td.key a")
    newest = [one for one in events_of(whole, "orders") if one["type"] == "row"][-1]
    page.locator(".tail tbody tr td.key a").first.click()
    page.wait_for_selector("h3:has-text('History of the row')")
    page.wait_for_selector(".tail tbody tr")
    assert page.locator(".tail tbody time").first.get_attribute("title") == f"commit_ts {newest['commit_ts']}"


def test_pages_and_columns_are_chosen_and_are_in_the_address(seen: Sight, whole: Pulled) -> None:
    ts = fullest(whole, "busy")
    rows = rows_of(whole, "busy", ts)
    assert len(rows) > 100, "more than a page"
    page = seen.open(f"{HOME}/busy/at?ts={ts}")
    assert shown_ts(page) == ts
    assert shown_rows(page) == as_shown(rows[:100])
    page.get_by_role("button", name="Next page").click()
    until(page, "location.hash.includes('cursor=')")
    shown_ts(page)
    assert shown_rows(page) == as_shown(rows[100:200])
    name = list(rows[0]["row"])[1]
    page.locator(".choice summary").click()
    page.locator(f".choice input[value='{name}']").uncheck()
    until(page, "location.hash.includes('column=')")
    page.reload()
    shown_ts(page)
    fewer = [{"row": {one: value for one, value in row["row"].items() if one != name}} for row in rows[100:200]]
    assert shown_rows(page) == as_shown(fewer)
    page.get_by_role("button", name="First page").click()
    until(page, "!location.hash.includes('cursor=')")
    shown_ts(page)
    assert shown_rows(page)[0] == as_shown([{"row": {k: v for k, v in rows[0]["row"].items() if k != name}}])[0]


def fullest(whole: Pulled, table: str) -> int:
    """The commit_ts at which the table has the most rows."""
    keys: set[str] = set()
    sizes: dict[int, int] = {}
    for event in events_of(whole, table):
        if event["type"] == "row":
            (keys.discard if event["op"] == "delete" else keys.add)(json.dumps(event["key"]))
            sizes[int(event["commit_ts"])] = len(keys)
        elif event["action"] == "truncate table":
            keys.clear()
    return max(sizes, key=lambda ts: sizes[ts])


def test_times_that_cannot_be_read_are_explained_with_the_nearest_that_can(seen: Sight, whole: Pulled) -> None:
    page = seen.open(f"{HOME}/orders/at")
    shown_ts(page)
    for typed, title in (
        ("2020-01-01T00:00:00Z", "Earlier than what is kept"),
        (str(whole.golden.end_ts + from_physical_ms(3_600_000)), "Not readable yet"),
    ):
        page.get_by_label("Time", exact=True).fill(typed)
        page.keyboard.press("Enter")
        page.wait_for_selector(f".detail .lost h2:has-text('{title}')")
    page.get_by_role("button", name="Newest time").click()
    page.wait_for_selector(".sheet tbody tr")
    page.get_by_label("Time", exact=True).fill("2020-01-01T00:00:00Z")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Earliest time").click()
    page.wait_for_selector(".detail .lost h2:has-text('Not there')")  # the table came later
    assert shown_ts(page) == whole.golden.snapshot_ts
    page.get_by_role("button", name="Next change").click()
    until(page, f"location.hash.includes('{stamps(whole, 'orders')[0]}')")
    page.wait_for_selector(".detail .empty h2:has-text('No rows')")  # made, and empty
    page.get_by_label("Time", exact=True).fill("2026-11-20 14:03:00")
    page.keyboard.press("Enter")
    page.wait_for_selector(".past .trouble:has-text('lacks its zone')")
    assert text(page, ".past .at").endswith("UTC+05:30")
    page = seen.open("#/t/8/whole/tables/shop/busy")  # dropped since
    page.locator(".detail a", has_text="as it was").click()
    page.get_by_role("button", name="Previous change").click()
    until(page, f"location.hash.includes('{stamps(whole, 'busy')[-1]}')")


def test_what_differs_between_two_times(seen: Sight, whole: Pulled) -> None:
    every = stamps(whole, "orders")
    low, high = every[len(every) // 2], every[-1]
    page = seen.open(f"{HOME}/orders/diff?from={low}&to={high}")
    page.wait_for_selector(".tail tbody tr")
    *events, _ = lines(whole, f"/databases/shop/tables/orders/diff?from={low}&to={high}")
    assert page.locator(".tail tbody tr").count() == min(len(events), 200)
    titles = answered(page, "[...document.querySelectorAll('.tail tbody time')].map((one) => one.title)")
    assert titles == [f"commit_ts {one['commit_ts']}" for one in events[:200]]
    command = copied(page, "Copy a tistream command that reads these differences")
    assert [json.loads(line) for line in run([*command, "--json"]).splitlines()[:-1]] == events
    page.get_by_label("To", exact=True).fill(str(low))
    page.keyboard.press("Enter")
    page.wait_for_selector(".empty:has-text('No differences')")


def test_markup_in_rows_stays_text(seen: Sight) -> None:
    """Real answers with hostile names and values put into them: what is tried is what the page makes of them."""
    markup = "<img src=x onerror=alert(1)>"

    def hostile(route: Any) -> None:
        answer = route.fetch(timeout=PATIENCE_MS)
        found = []
        for line in map(json.loads, answer.text().splitlines()):
            for member in ("key", "row", "old_row"):
                if line.get(member):
                    line[member] |= {markup: markup}
            found += [json.dumps(line)]
            for version in line.get("versions", ()):
                version["row"] = {**(version["row"] or {}), markup: markup}
                found[-1] = json.dumps(line)
        route.fulfill(response=answer, body="\n".join(found))

    def column(route: Any) -> None:
        answer = route.fetch(timeout=PATIENCE_MS)
        found = answer.json()
        if answer.ok:
            found["columns"] += [{**found["columns"][0], "name": markup, "key": False}]
        route.fulfill(response=answer, json=found)

    seen.page.route(re.compile(r"/(rows|history|diff)\?|/transactions/"), hostile)
    seen.page.route(re.compile(r"/schema"), column)
    page = seen.open(f"{HOME}/orders/at")
    shown_ts(page)
    assert markup in shown_rows(page)[0]
    assert markup in page.locator(".sheet th").all_inner_texts()
    page = seen.open(f"{HOME}/orders/row?key={quote(json.dumps({'id': markup, markup: 1}))}")
    page.wait_for_selector(".detail .lost")
    assert text(page, ".detail h3").count(markup) == 2
    page = seen.open(f"{HOME}/orders/row?key={quote(json.dumps({'id': '1'}))}")
    page.wait_for_selector(".tail tbody tr")
    assert markup in text(page, ".tail tbody tr td:last-child")
    page.locator(".tail tbody a.key").first.click()
    page.wait_for_selector(".txn tbody tr")
    assert markup in text(page, ".txn td.key")
    page = seen.open(f"{HOME}/orders/diff")
    page.wait_for_selector(".tail tbody tr")
    assert markup in text(page, ".tail td.key")
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_them_without_scrolling_sideways_in_both_lights(
    chromium: Any, whole: Pulled, scheme: str
) -> None:
    wanted = changed_alone(whole, "orders")
    phone = {"width": 390, "height": 844}
    with browser.sight(chromium, whole.consumer.url, scheme=scheme, viewport=phone) as one:
        for path, sign in (
            (f"{HOME}/orders/at?ts={wanted['commit_ts']}", ".sheet tbody tr"),
            (f"{HOME}/orders/row?key={quote(json.dumps(wanted['key']))}", ".tail tbody tr"),
            (f"{HOME}/orders/diff?from={whole.golden.snapshot_ts}", ".tail tbody tr"),
            (f"#/t/8/whole/txn/{wanted['start_ts']}", ".txn tbody tr"),
        ):
            page = one.open(path)
            page.wait_for_selector(sign)
            assert answered(page, "document.documentElement.scrollWidth") <= 390, path
            nameless = answered(
                page,
                "[...document.querySelectorAll('a, button, input, select')].filter((one) => "
                "one.checkVisibility() && !(one.textContent.trim() || one.ariaLabel || one.labels?.length)).length",
            )
            assert nameless == 0, path
            browser.settled(page)
            assert answered(page, CONTRASTS) == [], path


# ---- the parts of the scripts that are pure, in the browser that runs them

NOW_MS = 1_763_647_380_000
TYPED = [
    ("now", {"now": True}),
    ("5", {"ts": "5"}),
    ("15m", {"ts": str(from_physical_ms(NOW_MS - 900_000))}),
    ("2026-02-28T00:00:00Z", {"ts": str(from_physical_ms(1_772_236_800_000))}),
    ("2026-02-28T02:00:00.1239+02:00", {"ts": str(from_physical_ms(1_772_236_800_123))}),
    ("9223372036854775807", {"ts": "9223372036854775807"}),
    ("9223372036854775808", "larger than any ts"),
    ("2026-02-30T00:00:00Z", "is not a time"),
    ("2026-02-28 00:00:00", "lacks its zone"),
    ("yesterday", "is not a time"),
    ("", "is not a time"),
]


def call(page: Any, module: str, script: str, *given: Any) -> Any:
    """The value of an expression over `one`, a module of the console, and `given`."""
    name = json.dumps(f"{page.url.split('#')[0]}{module}.js")
    return page.evaluate(f"async (given) => {{ const one = await import({name}); return {script}; }}", list(given))


def test_the_pure_parts_of_the_scripts(seen: Sight) -> None:
    page = seen.open("#/tenants")
    for typed, wanted in TYPED:
        found = call(page, "points", "one.typedTime(given[0], given[1])", typed, NOW_MS)
        assert found == wanted if isinstance(wanted, dict) else wanted in found["wrong"], typed
    line = '{"a":"key\\":{","row":{"key":{"b":2}},"key":{"f":1.0,"s":"}\\"{","d":[1,{}]},"x":1}'
    assert call(page, "points", "one.memberText(given[0], 'key')", line) == '{"f":1.0,"s":"}\\"{","d":[1,{}]}'
    assert call(page, "points", "one.memberText(given[0], 'none')", line) is None
    state: Line = {"ts": "5", "key": '{"a":"/?&#"}', "cursor": "c+/=", "from": None, "to": None}
    state |= {"columns": ["a,b", "ü"], "span": "10000"}
    assert call(page, "points", "one.stateOf(one.addressOf(given[0]))", state) == state
    assert call(page, "points", "one.typedKey(' 7 ', ['id'])") == {"key": '{"id":"7"}'}
    assert "2 columns" in call(page, "points", "one.typedKey('7', ['a', 'b'])")["wrong"]
    assert "not JSON" in call(page, "points", "one.typedKey('{', ['a'])")["wrong"]
    for width, ts, wanted_ends in (
        ("", 50, (0, 100_000)),
        ("10000", 50, (0, 10_000)),
        ("10000", 99_000, (90_000, 100_000)),
        ("10000", 50_000, (45_000, 55_000)),
        ("300000", 50, (0, 100_000)),
    ):
        script = (
            "(({ from, to }) => [from, to].map(String))(one.spanned(0n, BigInt(given[0]), BigInt(given[1]), given[2]))"
        )
        found = call(page, "points", script, str(from_physical_ms(100_000)), str(from_physical_ms(ts)), width)
        assert found == [str(from_physical_ms(end)) for end in wanted_ends], (width, ts)
    steps = "[0, 1, 500, 1000].map((step) => String(one.tsAtStep({ from: 7n, to: BigInt(given[0]) }, step)))"
    assert call(page, "points", steps, str(from_physical_ms(2_000) + 7)) == [
        "7", *(str(from_physical_ms(ms)) for ms in (2, 1_000)), str(from_physical_ms(2_000) + 7),
    ]  # fmt: skip
    assert call(page, "points", "[0n, 5n, 99n].map((ts) => one.stepAtTs({ from: 0n, to: 10n }, ts))") == [0, 500, 1000]
    for word in ("it's", "a b", "$(x)`y`", "-n", "plain.x", "名"):
        assert shlex.split(call(page, "commands", "one.quoted(given[0])", word)) == [word]
    escaped = call(page, "commands", "one.quoted(given[0])", "a\x1b[201~\n'x\x85")
    assert escaped == "$'a\\u001b[201~\\u000a\\'x\\u0085'"
    script = "one.tistream(['rows', '-x.t'], { at: '5', key: null, cluster: '7' }, given[0])"
    command = call(page, "commands", script, "http://h/")
    assert command == "tistream rows --at 5 --cluster 7 --url http://h -- -x.t"
    before, after = call(page, "changes", "one.apart(given[0], given[1])", "x" * 500 + "old", "x" * 500 + "new")
    assert (before, after) == (f"…{'x' * 20}old", f"…{'x' * 20}new")
