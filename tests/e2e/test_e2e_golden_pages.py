"""`limit=1` and `limit=7` from the first event to the last: every cursor that exists is used once."""

from __future__ import annotations

import pytest

from support import golden
from support.compare import content
from support.effort import cases
from support.platform import Platform
from support.pull import Consumer, Event

SET = golden.load_as("everything", "8", "page-by-page")


@pytest.fixture(scope="module")
def consumer(up: Platform) -> Consumer:
    golden.push(SET.deliveries, up.objects)
    made = up.create_for(SET)
    made.wait_for(SET.end_ts)  # before that a database may not be there yet
    return made


@pytest.mark.parametrize(
    ("limit", "scope"), cases([(7, ("shop",)), (1, ("types",))], [(7, ()), (1, ("other",)), (1, ("shop", "busy"))])
)
def test_every_cursor_from_the_first_event_to_the_last(consumer: Consumer, limit: int, scope: tuple[str, ...]) -> None:
    whole = consumer.pull(*scope, until_ts=SET.end_ts, start_ts=SET.snapshot_ts, limit=100_000)
    got: list[Event] = []
    for page in consumer.pages(*scope, until_ts=SET.end_ts, query={"start_ts": SET.snapshot_ts, "limit": limit}):
        got += page.events
    assert content(got) == content(whole)
