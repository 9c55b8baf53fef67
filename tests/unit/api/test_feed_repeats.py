"""A request to create a changefeed that exists, and one to change a changefeed that runs, decided before its sink is
asked."""

from __future__ import annotations

from typing import Any

import pytest

from tistream.errors import AlreadyDiffers, InvalidRequest
from tistream.wire.bulk.changefeeds import ChangefeedInfo, CreateChangefeed
from tistream.wire.bulk.feed_changes import UpdateChangefeed
from tistream_api.feeds.feed_body import merged, start_again, start_of

GIVEN: dict[str, Any] = {"changefeed_id": "orders", "sink_uri": "kafka://broker:9092/orders", "end_ts": "90"}


def feed(state: str = "finished") -> ChangefeedInfo:
    return ChangefeedInfo(**GIVEN, state=state, config={}, start_ts="50", created_ms="1", checkpoint_ts="90")  # type: ignore[arg-type]


def test_the_same_request_again_is_the_same_when_the_tenant_has_passed_the_end() -> None:
    ask, later_ts = CreateChangefeed(**GIVEN), 100
    with pytest.raises(InvalidRequest, match="nothing would be sent"):
        start_of(ask, later_ts)  # as a new feed
    assert start_again(ask, feed()) == 50
    assert start_again(CreateChangefeed(**GIVEN, start_ts="40"), feed()) == 40, "the meta server compares it"


@pytest.mark.parametrize("state", ["running", "retrying"])
def test_a_feed_that_runs_is_not_changed_whatever_its_sink_answers(state: str) -> None:
    with pytest.raises(AlreadyDiffers, match="pause it, update it, and resume it") as refused:
        merged(feed(state), UpdateChangefeed(end_ts="95"))
    assert refused.value.http_status == 409


@pytest.mark.parametrize("state", ["paused", "failed", "finished"])
def test_a_feed_that_stands_is_changed(state: str) -> None:
    assert merged(feed(state), UpdateChangefeed(end_ts="95")).end_ts == "95"
