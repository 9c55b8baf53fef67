"""What `tistream tail`, `tistream diff --key`, `tistream doctor` and documents show."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tistream_client.cli.doctor import (
    OK,
    UNKNOWN,
    WARNING,
    WRONG,
    Finding,
    api_finding,
    clock_finding,
    node_finding,
    refused_finding,
    role_findings,
    silent_findings,
    tenant_finding,
    version_finding,
)
from tistream_client.cli.documents import facts, show
from tistream_client.cli.errors import CliError, failed
from tistream_client.cli.output import colored
from tistream_client.cli.points.reads import key_text
from tistream_client.cli.points.show import WIDTH_ROWS, row_diff, show_events, show_rows
from tistream_client.cli.pull.tail import line_of
from tistream_client.core.errors import api_error
from tistream_client.core.steps import Answer

Line = dict[str, Any]
NOW_MS = 1_795_183_380_000  # 2026-11-20T14:03:00Z
TS = str(NOW_MS << 18)


def row(op: str, new: dict[str, Any] | None, old: dict[str, Any] | None) -> dict[str, Any]:
    names = {"database": "shop", "table": "orders", "key": {"id": "1"}, "commit_ts": TS, "start_ts": TS}
    return {"type": "row", "op": op, "row": new, "old_row": old, **names}


NEW = row("put", {"id": "1", "total": "10"}, None)
CHANGED = row("put", {"id": "1", "total": "12"}, {"id": "1", "total": "10"})
RAW = {"type": "raw", "commit_ts": TS, "keyspace": "0", "key": "azE="}
GONE = row("delete", None, {"id": "1", "total": "12"})


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (NEW, "+ shop.orders  id=1, total=10"),
        (CHANGED, "~ shop.orders  id=1  total: 10 -> 12"),
        (GONE, "- shop.orders  id=1"),
        ({"type": "ddl", "commit_ts": TS, "query": "drop\x1b table t"}, "! drop\\u001b table t"),
        (
            {"type": "raw", "op": "put", "commit_ts": TS, "keyspace": "0", "key": "azE=", "value": "dg=="},
            "+ 0 azE= = dg==",
        ),
        ({"type": "raw", "op": "delete", "commit_ts": TS, "keyspace": "0", "key": "azE=", "value": None}, "- 0 azE="),
    ],
)
def test_each_event_is_one_line(event: dict[str, Any], line: str) -> None:
    assert line_of(event, color=False) == f"2026-11-20 14:03:00.000 {line}"


def test_a_resolved_line_is_not_shown_and_colours_tell_events_apart() -> None:
    assert line_of({"type": "resolved", "resolved_ts": TS}, color=True) is None
    lines = [line_of(event, color=True) or "" for event in (NEW, CHANGED, GONE)]
    assert [line.split("\x1b[")[3][:2] for line in lines] == ["32", "33", "31"]


@pytest.mark.parametrize("terminal", [False, True])
def test_names_control_no_terminal(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    hostile = "a\x1b]0;b\x07"
    event = {**NEW, "database": hostile, "table": hostile}
    show_events([event, {"type": "end"}])
    show_rows([{"type": "row", "row": {hostile: "1"}, "commit_ts": TS}, {"type": "end"}])
    if terminal:
        show({hostile: hostile})
    shown = capsys.readouterr().out
    assert shown.count("a\\u001b]0;b\\u0007") >= 3
    assert "\x1b]" not in shown
    assert "\x07" not in shown


# Attack: the API server refuses every page after the first one, whose rows do not fill a table
@pytest.mark.parametrize("number", [37, WIDTH_ROWS, WIDTH_ROWS + 37])
@pytest.mark.parametrize("show_lines", [show_rows, show_events])
def test_rows_that_have_arrived_are_shown_before_the_error(
    show_lines: Callable[[Iterable[Line]], None], number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def cut_off() -> Iterator[Line]:
        for at in range(number):
            yield row("put", {"id": str(at)}, None)
        raise CliError("busy; to continue: --cursor c1")

    with pytest.raises(CliError, match="--cursor c1"):
        show_lines(cut_off())
    shown = capsys.readouterr().out.splitlines()
    tables = -(-number // WIDTH_ROWS)
    assert len([line for line in shown if "change" not in line]) == number
    assert len(shown) == number + tables


def test_colours_are_for_terminals_that_want_them() -> None:
    assert not colored(None, io.StringIO(), {})
    assert colored(True, io.StringIO(), {"NO_COLOR": "1"})


def test_a_history_is_shown_change_by_change() -> None:
    assert list(row_diff([NEW, CHANGED, GONE], color=False)) == [
        f"@@ 2026-11-20 14:03:00.000  insert  commit_ts {TS}",
        "+ id: 1",
        "+ total: 10",
        f"@@ 2026-11-20 14:03:00.000  update  commit_ts {TS}",
        "- total: 10",
        "+ total: 12",
        f"@@ 2026-11-20 14:03:00.000  delete  commit_ts {TS}",
        "- id: 1",
        "- total: 12",
    ]


@pytest.mark.parametrize(
    ("text", "key"),
    [("id=1", '{"id": "1"}'), ("a=1,b=x y", '{"a": "1", "b": "x y"}'), ('{"id":"1"}', '{"id":"1"}')],
)
def test_a_key_is_columns_or_json(text: str, key: str) -> None:
    assert key_text(text) == key


@pytest.mark.parametrize("text", ["1", "", "=1", "a=1,2"])
def test_any_other_key_is_refused_with_a_right_one(text: str) -> None:
    with pytest.raises(CliError, match="use id=1"):
        key_text(text)


@pytest.mark.parametrize(
    ("status", "problem", "after", "exits", "text"),
    [
        (400, {"detail": "unknown parameter 'where'; …", "parameter": "where"}, None, 1, "leave out --where"),
        (401, {"detail": "a token is needed"}, None, 1, "--token-file FILE"),
        (403, {"detail": "no"}, None, 1, "tistream token create"),
        (410, {"detail": "too old", "earliest_ts": TS}, None, 1, f"begin at --since {TS} (2026-11-20T14:03:00+00:00)"),
        (429, {"detail": "too many"}, "7", 75, "/x: too many; run the same command again after 7 s"),
        (503, {"detail": "down", "cause_id": "c1"}, None, 75, "run the same command again later [cause c1]"),
        (500, {}, None, 1, "/x: status 500; is --url that of a TiStream API server?"),
        (500, {"type": "tistream:internal"}, None, 1, "status 500"),
    ],
)
def test_a_refusal_says_the_way_out(status: int, problem: Line, after: str | None, exits: int, text: str) -> None:
    error = failed(api_error("/x", status, problem, after))
    assert error.status == exits
    assert text in str(error)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("/v1/x/tables/orders/rows?ts=1", f"too old; read --at {TS} (2026-11-20T14:03:00+00:00) or later"),
        ("/v1/x/changes", f"too old; begin at --since {TS} (2026-11-20T14:03:00+00:00) or later"),
        ("/v1/x/tables/orders/history?key=1", f"too old; begin at --since {TS} (2026-11-20T14:03:00+00:00) or later"),
        ("/v1/x/undos", f"too old; undo what was committed at {TS} (2026-11-20T14:03:00+00:00) or later"),
        ("/v1/x/transactions/5", "too old, which is 2026-11-20T14:03:00+00:00"),
    ],
)
def test_what_is_below_retention_is_answered_with_the_option_of_the_command(where: str, text: str) -> None:
    problem = {"type": "tistream:gone", "detail": "too old", "earliest_ts": TS}
    assert str(failed(api_error(where, 410, problem, None))) == text


def test_a_document_has_times_beside_its_tso() -> None:
    found = {"resolved_ts": TS, "held_by": None, "tasks": [{"task_id": 1, "waits": "x"}], "sums": {"a": 1}}
    assert list(facts(found)) == [
        ("resolved_ts", f"{TS} (2026-11-20 14:03:00.000)"),
        ("held_by", "null"),
        ("tasks[0].task_id", "1"),
        ("tasks[0].waits", "x"),
        ("sums.a", "1"),
    ]


def test_a_doctor_compares_clocks_and_versions() -> None:
    date = "Fri, 20 Nov 2026 14:03:00 GMT"
    assert clock_finding("clock", date, NOW_MS + 500).state == OK
    late = clock_finding("clock", date, NOW_MS + 60_500)
    assert (late.state, late.seen) == (WARNING, "60.0 s behind this machine's")
    assert "NTP" in late.do
    assert version_finding("sorter-1", "1.0", "1.0").state == OK
    older = version_finding("sorter-1", "0.9", "1.0")
    assert "finish the upgrade: install the newer version" in older.do
    assert "docs/" not in older.do


def test_a_doctor_says_what_holds_a_tenant() -> None:
    held = {"stage": "push", "store_id": "4", "region_id": None, "object": None, "reason": "no file for 61 s"}
    found = tenant_finding("tenant 7/acme", {"lag_seconds": 61.2, "held_by": held})
    assert (found.state, found.seen) == (WRONG, "held by push (store_id 4): no file for 61 s")
    assert "tistream store retire" in found.do
    stages = ("push", "dispatch", "sort", "schema", "damaged", "node", "one of a newer server")
    found_by = [tenant_finding("t", {"lag_seconds": 9, "held_by": {**held, "stage": stage}}).do for stage in stages]
    assert len(set(found_by)) == len(stages)
    assert all("tistream " in do for do in found_by)
    assert "docs/" not in str(found_by), "pages that an installed client does not have"
    assert tenant_finding("t", {"lag_seconds": None, "held_by": None}).state == WRONG
    assert tenant_finding("t", {"lag_seconds": 0.8, "held_by": None}).state == OK


def test_a_doctor_names_services_that_are_missing_and_nodes_that_are_not_heard() -> None:
    nodes = [
        {"node_id": f"{role}-1", "role": role, "state": state, "url": "http://n"}
        for role, state in (("api", "alive"), ("schema", "alive"), ("sorter", "lost"), ("dispatcher", "draining"))
    ]
    assert [(one.what, one.state) for one in role_findings(nodes)] == [("sorter", WRONG), ("sorter-1", WRONG)]


def test_a_doctor_tells_a_node_that_is_down_from_a_network_that_is_not_reached() -> None:
    nodes: list[Any] = [{"node_id": name, "url": f"http://{name}"} for name in ("sorter-1", "schema-1")]
    [unknown] = silent_findings(nodes, 2)
    assert (unknown.state, "kubectl exec" in unknown.do) == ("unknown", True)
    [down] = silent_findings(nodes[1:], 2)
    assert (down.what, down.state, down.seen) == (
        "schema-1", WRONG, "no answer from http://schema-1, and other nodes answer",
    )  # fmt: skip
    assert list(silent_findings([], 2)) == []


def test_a_doctor_says_why_a_node_is_not_ready() -> None:
    health = Answer(200, {}, b'{"version": "1.0"}')
    assert node_finding("api-1", health, Answer(200, {}, b"{}"), "1.0").state == OK
    found = node_finding("api-1", health, Answer(503, {}, b'{"detail": "no sorter has registered"}'), "1.0")
    assert (found.state, found.seen) == (WRONG, "503: no sorter has registered")


PAGE = Answer(200, {"content-type": "text/html"}, b"<html>log in\x1b</html>")


def test_a_doctor_takes_no_page_of_a_proxy_for_an_answer() -> None:
    found = api_finding("http://h", PAGE)
    assert (found.state, found.seen) == (
        WRONG,
        "http://h answers, but not as TiStream does: <html>log in\\u001b</html>",
    )
    assert "is --url that of a TiStream API server" in found.do
    assert api_finding("http://h", Answer(200, {}, b'{"status":"UP"}')).state == WRONG
    assert api_finding("http://h", Answer(200, {}, b'{"version":"1.0"}')) == Finding(
        "api", OK, "http://h answers, version 1.0"
    )
    assert node_finding("api-1", PAGE, Answer(200, {}, b"{}"), "1.0").state == UNKNOWN
    assert node_finding("api-1", PAGE, Answer(200, {}, b"[]"), "1.0").state == UNKNOWN
    found = node_finding("api-1", PAGE, Answer(502, {}, b"<html>Bad Gateway</html>"), "1.0")
    assert (found.state, found.seen) == (WRONG, "502: <html>Bad Gateway</html>")


def test_a_doctor_says_nothing_of_what_its_token_may_not_see() -> None:
    forbidden = failed(api_error("/v1/owner", 403, {"type": "tistream:forbidden", "detail": "no"}, None))
    assert refused_finding("meta", forbidden, "look at it").state == UNKNOWN
    missing = failed(api_error("/v1/x", 404, {"detail": "there is no token in this text"}, None))
    assert refused_finding("tenant 7/acme", missing, "see the list") == Finding(
        "tenant 7/acme", WRONG, str(missing), "see the list"
    )
