"""The flood of unread answers asks what the API answers: a refused question would hold no memory, and prove nothing."""

from __future__ import annotations

import pytest

from support.hostile.unread import query_of
from support.query import parse
from tistream_api.request.params import FORMATS
from tistream_api.request.queries import PullQuery


@pytest.mark.parametrize("form", FORMATS)
def test_a_flood_asks_for_all_events_in_each_format(form: str) -> None:
    parsed = parse(PullQuery, query_of(form, 470_000_000_000).encode()).parsed()
    assert (parsed.format, parsed.events, parsed.start_ts) == (form, "all", 470_000_000_000)
