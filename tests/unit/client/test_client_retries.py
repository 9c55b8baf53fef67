"""What the client does with an answer: which failures it repeats, when it gives up, and what its errors say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tistream_client import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    NoAnswer,
    NotSupported,
    Page,
    ServerError,
    TiStreamError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    Undecodable,
    UnknownName,
)
from tistream_client.core import ndjson
from tistream_client.core.asking import Patience
from tistream_client.core.pull import NDJSON, PullQuery, pull
from tistream_client.core.scope import Scope
from tistream_client.core.steps import Answer, Fetch, Lost, Wait

SCOPE = Scope("7", "acme", "shop", "orders")
UP = Lost("the connection was closed", connected=True)
DOWN = Lost("connection refused", connected=False)


def refusal(status: int, retry_after: str | None = None, **problem: Any) -> Answer:
    body = {"type": "tistream:some", "status": status, "detail": "no", **problem}
    return Answer(status, {} if retry_after is None else {"retry-after": retry_after}, json.dumps(body).encode())


def page(cursor: str, resolved_ts: int | None, *commits: int) -> Answer:
    same = {"type": "row", "op": "put", "start_ts": "1", "database": "shop", "table": "orders", "table_id": "104"}
    rest = {"schema_version": "57", "key": {"id": "1"}, "row": {"id": "1", "total": "5"}, "old_row": None}
    lines: list[dict[str, Any]] = [{**same, "commit_ts": str(ts), **rest} for ts in commits]
    if resolved_ts is None:
        lines.append({"type": "continue", "cursor": cursor})
    else:
        lines.append({"type": "resolved", "resolved_ts": str(resolved_ts), "cursor": cursor})
    return Answer(200, {}, b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def cut(answer: Answer, at: int) -> Answer:
    return Answer(200, {}, answer.body[:at])


class Played:
    """A pull that gets these answers, one after the other: its pages, its waits, and the queries that it sent."""

    def __init__(self, replies: Sequence[Answer | Lost], *, retry_for: float | None = 60, **how: Any) -> None:
        self.pages: list[Page] = []
        self.waits: list[float] = []
        self.queries: list[dict[str, str]] = []
        self.error: TiStreamError | None = None
        follow = how.pop("follow", False)
        query = PullQuery(
            SCOPE, **{"since": 1, "until": 100, "cursor": None, "columns": None, **how}, events="all", page_size=10
        )
        patience = Patience("http://api", retry_for, lambda: 1.0)
        left: Iterator[Answer | Lost] = iter(replies)
        reading = pull(query, NDJSON, ndjson.page_of, patience, follow=follow)
        reply: Answer | Lost | None = None
        try:
            while True:
                step = reading.send(reply)
                reply = None
                if isinstance(step, Fetch):
                    self.queries.append(dict(step.params))
                    reply = next(left, None)
                    if reply is None:
                        return
                elif isinstance(step, Wait):
                    self.waits.append(step.seconds)
                else:
                    self.pages.append(step)
        except StopIteration:
            return
        except TiStreamError as error:
            self.error = error

    @property
    def commits(self) -> list[int]:
        return [event.commit_ts for page in self.pages for event in page.events]


def test_pages_follow_cursors_to_the_end() -> None:
    played = Played([page("a", None, 5, 5), page("b", 50, 5, 7), page("c", 100, 99)])
    assert played.commits == [5, 5, 5, 7, 99]
    assert [(one.after, one.cursor, one.resolved_ts) for one in played.pages] == [
        (None, "a", None), ("a", "b", 50), ("b", "c", 100),
    ]  # fmt: skip
    assert [query.get("cursor", query.get("start_ts")) for query in played.queries] == ["1", "a", "b"]
    assert {query["end_ts"] for query in played.queries} == {"100"}


@pytest.mark.parametrize("at", [0, 1, 200, -30, -1])
def test_of_an_answer_that_was_cut_off_nothing_is_delivered(at: int) -> None:
    second = page("b", 100, 7, 8)
    played = Played([page("a", 6, 5), cut(second, at), UP, second])
    assert played.commits == [5, 7, 8]
    assert [query.get("cursor") for query in played.queries] == [None, "a", "a", "a"]
    assert played.waits == [0.2, 0.4]


def test_an_answer_cut_off_between_two_lines_is_not_complete() -> None:
    whole = page("b", 100, 7, 8)
    played = Played([cut(whole, whole.body.index(b"\n") + 1), whole])
    assert played.commits == [7, 8]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_the_time_that_an_answer_names_is_waited_for(status: int) -> None:
    played = Played([refusal(status, "7"), refusal(status), page("a", 100, 5)])
    assert played.waits == [7.2, 0.4]
    assert played.commits == [5]


def test_patience_ends_and_begins_anew_with_each_page() -> None:
    played = Played([refusal(503, "4"), page("a", 6, 5), refusal(503, "4"), refusal(503, "4")], retry_for=5)
    assert isinstance(played.error, Unavailable)
    assert played.error.retry_after_s == 4
    assert played.commits == [5]
    assert "raise retry_for=" in str(played.error)


def test_who_follows_never_gives_up() -> None:
    played = Played([page("a", 6, 5)] + [refusal(503, "60"), UP, DOWN] * 500, until=None, follow=True)
    assert played.error is None
    assert len(played.waits) == 1_500
    assert {query["wait_ms"] for query in played.queries} == {"30000"}
    assert max(played.waits) == pytest.approx(60.2)


def test_a_server_that_was_never_there_is_reported_at_once() -> None:
    for follow in (False, True):
        played = Played([DOWN, DOWN], until=None if follow else 100, follow=follow)
        assert isinstance(played.error, NoAnswer)
        assert played.waits == []
        assert "no answer from http://api: connection refused. Is the URL right, and the server up?" in str(
            played.error
        )


def test_without_an_end_a_pull_reads_what_was_resolved_when_it_began() -> None:
    newest = Answer(200, {}, b'{"ts":"80","databases":[]}')
    played = Played([newest, page("a", 60, 5), page("b", 80)], until=None)
    assert [query.get("end_ts") for query in played.queries] == [None, "80", "80"]
    assert len(played.pages) == 2


def test_the_earliest_time_is_what_the_server_names() -> None:
    gone = refusal(410, type="tistream:gone", earliest_ts="40")
    played = Played([gone, page("a", 100, 50)], since=None)
    assert [query["start_ts"] for query in played.queries] == ["0", "40"]
    assert played.commits == [50]
    assert isinstance(Played([gone], since=3).error, Gone)
    moved = refusal(410, type="tistream:gone", earliest_ts="45")
    played = Played([gone, moved, page("a", 100, 50)], since=None)
    assert [query["start_ts"] for query in played.queries] == ["0", "40", "45"]
    assert (played.commits, played.error) == ([50], None)
    assert isinstance(Played([gone, gone], since=None).error, Gone)


def test_a_cursor_above_the_end_has_everything() -> None:
    above = refusal(400, type="tistream:bad-request", parameter="end_ts")
    assert Played([above], cursor="c").error is None
    assert isinstance(Played([above]).error, BadRequest)


def test_chosen_columns_are_those_of_rows() -> None:
    newest = Answer(200, {}, b'{"columns":[{"name":"id"},{"name":"total"},{"name":"new"}]}')
    [one] = Played([newest, page("a", 100, 5)], columns=("new", "total")).pages
    [event] = one.events
    assert event.row == {"total": "5"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (refusal(400, parameter="since"), BadRequest, "change the argument"),
        (refusal(401), Unauthenticated, "token_file="),
        (refusal(403), Forbidden, "tistream token create --grant"),
        (refusal(404), UnknownName, "tenant.databases()"),
        (refusal(409), Conflict, "backfill"),
        (refusal(410, earliest_ts=str(5 << 18)), Gone, "since=1310720 (1970-01-01T00:00:00.005000+00:00)"),
        (refusal(422), Undecodable, "since="),
        (refusal(429, "100"), TooManyRequests, "retry_for="),
        (refusal(503, "100"), Unavailable, "retry_for="),
        (refusal(500), ServerError, "Its log has the cause"),
        (Answer(302, {}, b"<html>elsewhere</html>"), ServerError, "<html>elsewhere</html>"),
        (Answer(500, {}, b""), ServerError, "status 500"),
        (Answer(200, {"content-type": "text/html"}, b"<html>log in</html>"), ServerError, "<html>log in</html>"),
    ],
)  # fmt: skip
def test_each_refusal_is_an_exception_with_what_to_do(answer: Answer, kind: type[ApiError], text: str) -> None:
    error = Played([answer]).error
    assert type(error) is kind
    assert error.status == answer.status
    assert text in str(error)
    assert "/v1/clusters/7/tenants/acme/databases/shop/tables/orders/changes" in str(error)


def test_an_exception_names_the_cause_and_the_code() -> None:
    error = Played([refusal(409, type="tistream:not-complete", cause_id="01J", base_ts="5")]).error
    assert isinstance(error, Conflict)
    assert (error.code, error.cause_id, error.problem["base_ts"]) == ("not-complete", "01J", "5")
    assert "[cause 01J]" in str(error)


def test_a_filter_is_sent_with_each_page_and_a_server_without_filters_is_named() -> None:
    of = {"tables": ("shop.*", "!shop.x"), "operations": ("insert", "update"), "where": "total > 1"}
    played = Played([page("a", 50, 7), page("b", 100, 8)], **of)
    sent = {"tables": "shop.*,!shop.x", "operations": "insert,update", "where": "total > 1"}
    assert [{name: query[name] for name in sent} for query in played.queries] == [sent, sent]
    refused = refusal(400, detail="unknown parameter 'where'; this call takes limit", parameter="where")
    found = Played([refused], where="total > 1").error
    assert isinstance(found, NotSupported)
    assert "where='total > 1': this server is of a version without filters" in str(found)
    wrong = refusal(400, detail="where: no column 'totl'", parameter="where")
    assert isinstance(Played([wrong], where="totl > 1").error, BadRequest)


@pytest.mark.parametrize(
    ("listed", "more"),
    [
        (b'{"tenants":[{"tenant_id":"acme2"}]}', "; did you mean acme2?"),
        (b'{"tenants":[{"tenant_id":"zzz"},{}]}', "; the cluster has zzz"),
        (b"<html>log in</html>", ""),
        (b'{"tenants":null}', ""),
        (b"[1]", ""),
    ],
)
def test_an_unknown_tenant_is_named_beside_a_near_one_if_there_is_a_list(listed: bytes, more: str) -> None:
    found = Played([refusal(404, detail="no tenant 7/acme"), Answer(200, {}, listed)]).error
    assert isinstance(found, UnknownName)
    assert found.detail == f"no tenant 7/acme{more}"


def test_the_server_drops_the_other_columns_unless_it_refuses_their_names() -> None:
    shape = Answer(200, {}, b'{"columns":[{"name":"id"},{"name":"total"},{"name":"a*"}]}')
    whole = page("a", 100, 5)
    played = Played([shape, whole], columns=("total",))
    assert [query.get("columns") for query in played.queries] == [None, "total"]
    for detail in ("unknown parameter 'columns'", "columns: no table of this call has a column 'total'"):
        refused = refusal(400, detail=detail, parameter="columns")
        played = Played([shape, refused, whole], columns=("total",), where="id > 0")
        assert [query.get("columns") for query in played.queries] == [None, "total", None]
        assert played.queries[-1]["where"] == "id > 0"
        assert [event.row for one in played.pages for event in one.events] == [{"total": "5"}]  # type: ignore[union-attr]
    played = Played([shape, whole], columns=("a*",))
    assert "columns" not in played.queries[-1], "the server would read it as a pattern"
