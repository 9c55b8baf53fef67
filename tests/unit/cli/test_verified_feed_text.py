"""What `tistream changefeed verify` prints."""

from __future__ import annotations

from tistream.wire.bulk.feed_verify import Difference, FeedVerification, LeftOut, VerifiedTable, VerifiedWindow
from tistream_cli.changefeed.verify import VerifyRange, lines_of

TABLE = VerifiedTable(database="shop", table="orders", events=9, messages=8, missing=1, unexpected=0, repeated=0)
LOST = Difference(
    what="missing",
    database="shop",
    table="orders",
    commit_ts="15",
    topic="shop/orders/2026-11-29",
    partition=0,
    offset=None,
    key={"id": "7"},
)
WINDOW = VerifiedWindow(database="shop", table="orders", from_ts="12", to_ts="16", events=4, messages=3)
FOUND = FeedVerification(
    changefeed_id="lake",
    from_ts="10",
    to_ts="20",
    equal=False,
    tables=[TABLE],
    differences=[LOST],
    of="files",
    windows=3,
    window_differences=[WINDOW],
)
RANGE = VerifyRange(None, None, None, None)


def test_rows_and_windows_of_files_that_differ_are_printed() -> None:
    assert lines_of(FOUND.model_dump(), RANGE) == [
        "above 10, up to 20:",
        "  shop.orders: 9 events, 8 in files, 1 missing",
        '  missing: shop.orders {"id": "7"}, commit_ts 15, shop/orders/2026-11-29',
        "  not as it was written: shop.orders above 12, up to 16: 4 events were written, 3 are there",
        "  3 windows compared with the fingerprints of what was written",
        "  different",
    ]


def test_rows_of_iceberg_that_differ_are_printed() -> None:
    row = LOST.model_copy(update={"topic": "shop.orders"})
    gone = LeftOut(database="shop", table="gone", reason="was dropped at commit_ts 12, and in Iceberg too")
    of_lake = FOUND.model_copy(
        update={"of": "lake", "differences": [row], "windows": 0, "window_differences": [], "left_out": [gone]}
    )
    assert lines_of(of_lake.model_dump(), RANGE) == [
        "above 10, up to 20:",
        "  shop.orders: 9 rows, 8 in Iceberg, 1 missing",
        '  missing: shop.orders {"id": "7"}, commit_ts 15, shop.orders',
        "  left out: shop.gone was dropped at commit_ts 12, and in Iceberg too",
        "  different",
    ]


def test_the_place_of_a_message_is_printed() -> None:
    there = LOST.model_copy(update={"what": "repeated", "topic": "orders", "partition": 2, "offset": 5})
    of_topics = FOUND.model_copy(
        update={"of": "topics", "differences": [there], "windows": 0, "window_differences": []}
    )
    assert lines_of(of_topics.model_dump(), RANGE)[1:3] == [
        "  shop.orders: 9 events, 8 messages, 1 missing",
        '  repeated: shop.orders {"id": "7"}, commit_ts 15, orders-2, offset 5',
    ]


def test_windows_of_a_database_are_compared_with_the_pool() -> None:
    row = LOST.model_copy(update={"topic": ""})
    of_tables = FOUND.model_copy(update={"of": "tables", "differences": [row]})
    assert lines_of(of_tables.model_dump(), RANGE) == [
        "as of 20:",
        "  shop.orders: 9 rows, 8 in the database, 1 missing",
        '  missing: shop.orders {"id": "7"}, commit_ts 15',
        "  not as it was written: shop.orders above 12, up to 16: 4 events were written, 3 are in the pool",
        "  3 windows compared with the fingerprints of what was written",
        "  different",
    ]
