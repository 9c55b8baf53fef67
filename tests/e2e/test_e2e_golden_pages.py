"""`limit=1` and `limit=7` from the first event to the last: every cursor that exists is used once."""

from __future__ import annotations

import pytest

from support.compare import concerns, content
from support.effort import cases
from support.pull import Event
from support.pulled import Pulled


@pytest.mark.parametrize(
    ("limit", "scope"), cases([(1, ("types",))], [(7, ()), (7, ("shop",)), (1, ("other",)), (1, ("shop", "busy"))])
)
def test_every_cursor_from_the_first_event_to_the_last(whole: Pulled, limit: int, scope: tuple[str, ...]) -> None:
    got: list[Event] = []
    query = {"start_ts": whole.golden.snapshot_ts, "limit": limit}
    for page in whole.consumer.pages(*scope, until_ts=whole.golden.end_ts, query=query):
        got += page.events
    assert content(got) == content(event for event in whole.events if not scope or concerns(event, *scope))
