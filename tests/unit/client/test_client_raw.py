"""Pulls of RawKV in the client: what is asked for, and what the answers are."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tistream_client import RawEvent, RawPage, TiStream, WrongArgument
from tistream_client.core import ndjson
from tistream_client.core.asking import CutOff, Patience
from tistream_client.core.calls import raw_call
from tistream_client.core.pull import NDJSON, RawQuery, pull
from tistream_client.core.scope import Scope
from tistream_client.core.steps import Answer, Fetch

LINES: list[dict[str, Any]] = [
    {"type": "raw", "op": "put", "commit_ts": "5", "keyspace": "1", "key": "azE=", "value": "dg==",
     "expire_at": "2026-12-01T00:00:00Z"},
    {"type": "raw", "op": "delete", "commit_ts": "6", "keyspace": "1", "key": "azE=", "value": None,
     "expire_at": None},
    {"type": "resolved", "resolved_ts": "9", "cursor": "c9"},
]  # fmt: skip
EVENTS = [
    RawEvent("put", 5, 1, b"k1", b"v", datetime(2026, 12, 1, tzinfo=UTC)),
    RawEvent("delete", 6, 1, b"k1", None, None),
]


def answer(*lines: dict[str, Any]) -> Answer:
    return Answer(200, {}, b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def test_an_answer_is_its_writes_and_a_position() -> None:
    assert ndjson.raw_page_of(answer(*LINES), "c1", None) == RawPage("c9", 9, "c1", EVENTS)
    with pytest.raises(CutOff):
        ndjson.raw_page_of(answer(*LINES[:2]), None, None)


def test_a_pull_asks_for_the_range_up_to_what_is_resolved() -> None:
    call = raw_call(
        Scope("7", "raw"), lambda: datetime.now(UTC), since=3, until=None, cursor=None, keyspace=0,
        start_key=b"k", end_key=b"l", page_size=7,
    )  # fmt: skip
    reading = pull(call.of(1_000, follow=False), NDJSON, ndjson.raw_page_of, Patience("u", 0, lambda: 1), follow=False)
    assert next(reading) == Fetch("/v1/clusters/7/tenants/raw/status", {})
    asked = reading.send(answer({"resolved_ts": "9"}))
    params = {"start_ts": "3", "limit": "7", "keyspace": "0", "start_key": "6b", "end_key": "6c", "format": "ndjson"}
    assert asked == Fetch("/v1/clusters/7/tenants/raw/raw/changes", {**params, "wait_ms": "10000", "end_ts": "9"})
    page = reading.send(answer(*LINES))
    assert isinstance(page, RawPage)
    assert page.events == EVENTS
    with pytest.raises(StopIteration):
        next(reading)


def test_every_keyspace_is_the_default() -> None:
    assert RawQuery(Scope("7", "raw"), None, None, None, None, b"", b"", 1).filter == {}


@pytest.mark.parametrize(
    ("how", "argument", "right"),
    [
        ({"keyspace": -1}, "keyspace", "keyspace=0"),
        ({"keyspace": 1 << 24}, "keyspace", "at most 16777215"),
        ({"start_key": b"a"}, "keyspace", 'keyspace=0, start_key=b"a"'),
        ({"keyspace": 0, "start_key": "a"}, "start_key", 'start_key=b"user/"'),
        ({"keyspace": 0, "start_key": b"b", "end_key": b"a"}, "end_key", 'end_key=b"b"'),
        ({"since": "x"}, "since", '"10m"'),
        ({"since": "1h", "until": "2h"}, "until", 'since="2h"'),
        ({"cursor": ""}, "cursor", "the cursor of a page"),
        ({"page_size": 0}, "page_size", "page_size=10_000"),
    ],
)
def test_a_wrong_argument_is_named_beside_a_right_one(how: dict[str, Any], argument: str, right: str) -> None:
    with pytest.raises(WrongArgument, match=f"^{argument} ") as refused:
        TiStream("http://127.0.0.1:8000").tenant("7", "raw").raw_changes(**how)
    assert right in str(refused.value)


def test_what_follows_has_no_end() -> None:
    with pytest.raises(WrongArgument, match="until"):
        next(TiStream("http://127.0.0.1:8000").tenant("7", "raw").raw_changes(until="1h").follow())
