"""Parameters of reads at a point in time: what is accepted, and that each refusal names its parameter."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.model.ts import MAX_TS
from tistream.read import cursor as cursors
from tistream.read.cursor import Position, Scope
from tistream.read.cursor import encode as pull_cursor
from tistream_api.points import point_cursor
from tistream_api.points.point_cursor import Kind, PointPosition
from tistream_api.request.point_queries import (
    ChangePartsQuery,
    RowPartsQuery,
    diff_request,
    history_request,
    rows_request,
    squash_request,
    when,
)

KEY = quote('{"id":"1"}')


@pytest.mark.parametrize(
    ("text", "ts"),
    [
        ("0", 0),
        (str(MAX_TS), MAX_TS),
        ("now", "now"),
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-20T14:03:00Z", 1_795_183_380_000 << 18),
        ("2026-11-20t14:03:00z", 1_795_183_380_000 << 18),
        ("2026-11-20T14:03:00.25+00:00", 1_795_183_380_250 << 18),
        ("2026-11-20T16:03:00.250999+02:00", 1_795_183_380_250 << 18),
    ],
)
def test_a_time_is_a_tso_or_an_rfc_3339_time_or_now(text: str, ts: object) -> None:
    assert when("ts", text) == ts


@pytest.mark.parametrize(
    "text",
    [
        *("-1", "+1", "1.0", "1e3", "0x10", "٣", str(MAX_TS + 1), "9" * 60, "yesterday", "NOW", "now ", ""),
        *("2026-11-20", "2026-11-20T14:03:00", "2026-13-20T14:03:00Z", "2026-11-20 14:03:00Z"),
        *("2026-11-20T14:03:00 02:00", "2026-11-20T25:03:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59+24:00"),
        *("0000-01-01T00:00:00Z", "2026-11-20T14:03:00Z\n", "2026-11-20T14:03:60Z"),
    ],
)
def test_any_other_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        when("to", text)
    assert caught.value.extra == {"parameter": "to"}


ROWS_REFUSED = [
    ("", "ts"),
    ("ts=1&cursor=a", "ts"),
    ("ts=", "ts"),
    ("ts=1&ts=1", "ts"),
    ("ts=a", "ts"),
    ("cursor=", "cursor"),
    ("ts=1&limit=0", "limit"),
    ("ts=1&limit=1000001", "limit"),
    ("ts=1&limit=1_0", "limit"),
    ("ts=1&limit=" + "9" * 5000, "limit"),
    ("ts=1&format=csv", "format"),
    ("ts=1&columns=", "columns"),
    ("ts=1&columns=a,,b", "columns"),
    ("ts=1&columns=a,a", "columns"),
    ("ts=1&key=1", "key"),
    ("ts=1&key=%7B%7D", "key"),
    ("ts=1&key=%7B", "key"),
    ("ts=1&key=" + quote('{"id":null}'), "key"),
    ("ts=1&key=" + quote('{"id":true}'), "key"),
    ("ts=1&key=" + quote('{"id":[1]}'), "key"),
    ("ts=1&key=" + "%5B" * 20_000, "key"),
    ("ts=1&key=" + "%5B" * 9_000, "key"),
    (f"ts=1&key={KEY}&from_key={KEY}", "from_key"),
    (f"ts=1&key={KEY}&to_key={KEY}", "to_key"),
    ("ts=1&from_key=x", "from_key"),
    ("ts=1&colour=red", "colour"),
    ("ts=1&follow=true", "follow"),
]


@pytest.mark.parametrize(("query", "parameter"), ROWS_REFUSED)
def test_rows_refuse_what_they_do_not_know(query: str, parameter: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rows_request(query.encode())
    assert caught.value.extra == {"parameter": parameter}
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("query", [b"\xff=1", b"ts=%FF", b"ts=\xc3\xa9"])
def test_a_query_is_utf_8(query: bytes) -> None:
    with pytest.raises(InvalidRequest, match="UTF-8"):
        rows_request(query)


def test_rows_take_a_key_or_a_range() -> None:
    query = f"ts=now&from_key={KEY}&to_key=%7B%22id%22:9%7D&columns=b,a&limit=7&format=parquet"
    asked = rows_request(query.encode())
    assert (asked.ts, asked.cursor, asked.key) == ("now", None, None)
    assert (asked.from_key, asked.to_key, asked.columns) == ({"id": "1"}, {"id": 9}, ("b", "a"))
    assert (asked.limit, asked.format) == (7, "parquet")
    assert rows_request(b"cursor=abc").cursor == "abc"


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("", "key"),
        (f"key={KEY}&from=5&to=4", "to"),
        (f"key={KEY}&limit=10001", "limit"),
        (f"key={KEY}&ts=5", "ts"),
        (f"key={KEY}&from=x", "from"),
    ],
)
def test_a_history_wants_a_key(query: str, parameter: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        history_request(query.encode())
    assert caught.value.extra == {"parameter": parameter}


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("parts=0", "parts"),
        ("parts=10001", "parts"),
        ("ts=5&ts=6", "ts"),
        ("ts=now&cursor=a", "cursor"),
        ("from_key=1", "from_key"),
        ("end_ts=5", "start_ts"),
        ("start_ts=5&end_ts=4", "end_ts"),
        ("start_ts=5&limit=4", "limit"),
    ],
)
def test_parts_refuse_what_they_do_not_know(query: str, parameter: str) -> None:
    kind = ChangePartsQuery if "start_ts" in query or parameter == "start_ts" else RowPartsQuery
    with pytest.raises(InvalidRequest) as caught:
        kind().parsed(query.encode())
    assert caught.value.extra == {"parameter": parameter}


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("", "from"),
        ("to=5", "from"),
        ("from=5&to=4", "to"),
        ("from=5&cursor=a", "from"),
        ("cursor=a&to=5", "to"),
        ("from=1&events=rows", "events"),
        ("from=1&format=tar", "format"),
    ],
)
def test_a_diff_is_between_two_times(query: str, parameter: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        diff_request(query.encode())
    assert caught.value.extra == {"parameter": parameter}


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("squash=true", "start_ts"),
        ("squash=true&start_ts=1&follow=true", "follow"),
        ("squash=true&start_ts=1&wait_ms=5", "wait_ms"),
        ("squash=true&start_ts=5&end_ts=4", "end_ts"),
        ("squash=true&start_ts=1&events=ddl", "events"),
        ("squash=true&start_ts=1&format=arrow", "events"),
        ("squash=true&squash=true&start_ts=1", "squash"),
        ("squash=true&start_ts=1&colour=red", "colour"),
    ],
)
def test_a_squashed_pull_is_between_two_times(query: str, parameter: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        squash_request(query.encode())
    assert caught.value.extra == {"parameter": parameter}


def test_a_squashed_pull() -> None:
    asked = squash_request(b"squash=true&start_ts=1&end_ts=2&events=rows")
    assert (asked.low, asked.high, asked.events) == (1, 2, "rows")


SCOPE = Scope(TenantKey("7", "acme"), "shop", "orders")


def test_a_cursor_is_of_its_call_and_table() -> None:
    at = PointPosition(3, 9, 37, 104, b"t\x80key")
    text = point_cursor.encode(Kind.SQUASH, SCOPE, at)
    assert point_cursor.decode(Kind.SQUASH, SCOPE, text) == at
    others = [
        (Kind.DIFF, SCOPE),
        (Kind.ROWS, SCOPE),
        (Kind.SQUASH, Scope(SCOPE.tenant, "shop", "other")),
        (Kind.SQUASH, Scope(TenantKey("7", "evil"), "shop", "orders")),
    ]
    for kind, scope in others:
        with pytest.raises(InvalidRequest) as caught:
            point_cursor.decode(kind, scope, text)
        assert caught.value.extra == {"parameter": "cursor"}


@pytest.mark.parametrize("text", ["", "abc", "A" * 70_000, pull_cursor(SCOPE, Position(5)), "é", "====", "A" * 80])
def test_a_text_that_is_no_cursor_of_this_call_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        point_cursor.decode(Kind.ROWS, SCOPE, text)
    assert caught.value.extra == {"parameter": "cursor"}


def test_a_changed_letter_is_noticed() -> None:
    text = point_cursor.encode(Kind.ROWS, SCOPE, PointPosition(0, 9, key=b"t\x80key"))
    for at in range(len(text)):
        other = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        with pytest.raises(InvalidRequest):
            point_cursor.decode(Kind.ROWS, SCOPE, other)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_plain_pull_names_the_calls_that_a_cursor_may_be_of(kind: Kind) -> None:
    text = point_cursor.encode(kind, SCOPE, PointPosition(3, 9, 37, 104, b"t\x80key"))
    with pytest.raises(InvalidRequest, match="squash=true"):
        cursors.decode(SCOPE, text)
