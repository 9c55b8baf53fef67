"""A comparison asks for what the sink has, under the configuration that the feed has now."""

from __future__ import annotations

import json

import pytest

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.model.ts import from_physical_ms
from tistream.wire.bulk.changefeeds import Applied, ChangefeedInfo
from tistream.wire.bulk.feed_verify import VerifyChangefeed, VerifyFeed
from tistream_api.feeds.feed_body import VERIFY_MS, range_of

TENANT = TenantKey("7", "acme")
START, MIDDLE, CHECKPOINT = map(from_physical_ms, (1_000_000, 1_300_000, 1_500_000))
FEED = ChangefeedInfo(
    changefeed_id="orders",
    state="running",
    sink_uri="kafka://broker:9092/orders",
    config={},
    start_ts=str(START),
    end_ts=None,
    created_ms="1",
    checkpoint_ts=str(CHECKPOINT),
)
CHANGED = FEED.model_copy(update={"applied": Applied(revision=1, from_ts=MIDDLE, after_ts=START)})


def test_by_default_the_last_minute_is_compared_but_nothing_before_the_feed() -> None:
    found = range_of(TENANT, FEED, VerifyChangefeed())
    assert (found.from_ts, found.to_ts) == (CHECKPOINT - from_physical_ms(VERIFY_MS), CHECKPOINT)
    keys = range_of(TENANT, FEED, VerifyChangefeed(table="shop.orders", key_from="7", key_to="9"))
    assert (keys.table, keys.key_from, keys.key_to) == ("shop.orders", "7", "9")
    young = FEED.model_copy(update={"start_ts": str(CHECKPOINT - 5)})
    assert range_of(TENANT, young, VerifyChangefeed()).from_ts == CHECKPOINT - 5


# Attack: the API is upgraded before the workers, which reject members that they do not know
def test_a_comparison_without_keys_is_sent_as_before_there_were_keys() -> None:
    sent = json.loads(range_of(TENANT, FEED, VerifyChangefeed(table="shop.orders")).model_dump_json())
    assert sent["table"] == "shop.orders"
    assert not {"key_from", "key_to"} & sent.keys()
    keyed = json.loads(range_of(TENANT, FEED, VerifyChangefeed(table="shop.orders", key_from="7")).model_dump_json())
    assert keyed["key_from"] == "7"
    assert "key_to" not in keyed
    assert VerifyFeed.model_validate(keyed).key_from == "7"


def test_what_was_sent_under_another_configuration_or_twice_is_not_compared() -> None:
    assert range_of(TENANT, CHANGED, VerifyChangefeed(from_ts=str(MIDDLE))).from_ts == MIDDLE
    with pytest.raises(InvalidRequest, match="from which on the feed has its present configuration"):
        range_of(TENANT, CHANGED, VerifyChangefeed(from_ts=str(MIDDLE - 1)))


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        ({"to_ts": str(CHECKPOINT + 1)}, "above the checkpoint"),
        ({"from_ts": str(START - 1)}, "lies below"),
        ({"from_ts": str(CHECKPOINT)}, "is not below to_ts"),
        ({"table": "orders"}, "not of the form database.table"),
        ({"key_to": "7"}, "keys of one table: name it as table"),
    ],
)
def test_a_range_that_the_sink_does_not_have_is_refused(ask: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        range_of(TENANT, FEED, VerifyChangefeed(**ask))


@pytest.mark.parametrize("sink_uri", ["s3://bucket/feed", "file:///data/feed", "iceberg://lake?mode=both"])
def test_files_and_a_lake_are_compared_in_a_range(sink_uri: str) -> None:
    files = FEED.model_copy(update={"sink_uri": sink_uri})
    found = range_of(TENANT, files, VerifyChangefeed(from_ts=str(MIDDLE)))
    assert (found.from_ts, found.to_ts, found.start_ts) == (MIDDLE, CHECKPOINT, START)


def test_a_database_is_compared_as_it_is() -> None:
    tables = FEED.model_copy(update={"sink_uri": "mysql://app@db:3306/", "start_ts": str(CHECKPOINT)})
    assert range_of(TENANT, tables, VerifyChangefeed(table="shop.orders")).table == "shop.orders"
    with pytest.raises(InvalidRequest, match="from_ts is for topics"):
        range_of(TENANT, tables, VerifyChangefeed(from_ts="1"))
    updated = tables.model_copy(update={"revision": 1})
    with pytest.raises(InvalidRequest, match="revision 1 of the feed is not in force yet"):
        range_of(TENANT, updated, VerifyChangefeed())
    in_force = updated.model_copy(update={"applied": CHANGED.applied})
    assert range_of(TENANT, in_force, VerifyChangefeed()).to_ts == CHECKPOINT
