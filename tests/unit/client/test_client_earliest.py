"""Net changes since the earliest ts: the client begins where retention does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tistream_client.core import points
from tistream_client.core.asking import Patience
from tistream_client.core.points import Range
from tistream_client.core.scope import Scope
from tistream_client.core.steps import Answer, Fetch, Reading

SCOPE = Scope("7", "acme", "shop", "orders")
PATIENCE = Patience("http://api", 60, lambda: 1.0)
GONE = Answer(410, {}, json.dumps({"type": "tistream:gone", "status": 410, "earliest_ts": "77"}).encode())
DIFF = Answer(200, {}, b'{"type":"end","from":"77","to":"80","cursor":null}\n')
NET = Answer(200, {}, b'{"type":"resolved","resolved_ts":"80","cursor":"c"}\n')


def sent(reading: Reading[Any], *replies: Answer) -> list[dict[str, str]]:
    """The queries of a read that gets these answers."""
    queries: list[dict[str, str]] = []
    left: Iterator[Answer] = iter(replies)
    reply: Answer | None = None
    try:
        while True:
            step = reading.send(reply)
            reply = None
            if isinstance(step, Fetch):
                queries.append(dict(step.params))
                reply = next(left)
    except StopIteration:
        assert next(left, None) is None
        return queries


@pytest.mark.parametrize(
    ("read", "low", "answer"),
    [
        (lambda range_: points.diff(SCOPE, range_, 10, PATIENCE), "from", DIFF),
        (lambda range_: points.squashed(SCOPE, range_, None, 10, PATIENCE), "start_ts", NET),
    ],
)
def test_net_changes_since_the_earliest_ts_begin_where_retention_does(
    read: Callable[[Range], Reading[Any]], low: str, answer: Answer
) -> None:
    asked, query = sent(read(Range(None, 80)), GONE, answer)
    assert (asked["start_ts"], asked["end_ts"]) == ("0", "0")
    assert query[low] == "77"
    [query] = sent(read(Range(5, 80)), answer)
    assert query[low] == "5"


def test_a_cursor_replaces_the_earliest_ts() -> None:
    [query] = sent(points.squashed(SCOPE, Range(None, None), "c1", 10, PATIENCE), NET)
    assert query["cursor"] == "c1"
