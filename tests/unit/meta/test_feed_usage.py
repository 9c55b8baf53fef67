"""What changefeeds delivered, by hour: it adds up to what the sinks have, whatever is reported twice, late or never."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from support.audit_world import World
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import FeedReport, FeedShard
from tistream.wire.usage import HOUR_MS, Amounts, HourOfUsage, Usage
from tistream_meta.decide.feed_policy import Feed
from tistream_meta.feeds import feed_usage
from tistream_meta.feeds.feed_usage import FeedUsageBook, with_feeds

ACME, OTHER = TenantKey("7", "acme"), TenantKey("7", "other")
URI = "kafka://broker:9092/orders?partition-num=3"


def feed(uri: str = URI, name: str = "orders", generation: int = 1, tenant: TenantKey = ACME) -> Feed:
    return Feed(tenant, name, "running", uri, "{}", 100, None, generation)


class Books:
    """The book, and reports that are noted."""

    def __init__(self, world: World) -> None:
        self.world, self.book = world, world.repository.part(FeedUsageBook)

    def note(self, hour: int, rows: int, of: Feed | None = None, shard: int = 0) -> None:
        """A report of `rows` events of ten bytes each, in an hour."""
        of = of or feed()
        names = FeedShard(
            cluster_id=of.tenant.cluster_id,
            tenant_id=of.tenant.tenant_id,
            changefeed_id=of.feed_id,
            shard=shard,
            generation=of.generation,
        )
        report = FeedReport(
            shard=names, epoch=1, phase="running", checkpoint_ts=1, resolved_ts=1, rows=rows, bytes=10 * rows
        )
        self.world.repository._write(lambda connection: feed_usage.note(connection, hour * HOUR_MS, of, report))

    def hours(self, tenant: TenantKey = ACME, name: str = "orders") -> dict[int, int]:
        """Rows by hour."""
        used = self.book.of_tenant(tenant, 0, 1_000 * HOUR_MS)
        assert all(size == 10 * rows for feeds in used.values() for rows, size in feeds.values())
        return {hour // HOUR_MS: feeds[name][0] for hour, feeds in sorted(used.items()) if name in feeds}


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(World(tmp_path))


def test_hours_add_up_to_what_the_sink_has_whatever_is_reported_twice_or_never(books: Books) -> None:
    rng, acknowledged = Random(3), 0
    for hour in range(1, 6):
        for _ in range(rng.randrange(1, 5)):
            acknowledged += rng.randrange(100)
            for _ in range(rng.randrange(3)):  # or the worker was killed before it told
                books.note(hour, acknowledged)
    books.note(6, acknowledged)
    assert sum(books.hours().values()) == acknowledged
    books.note(7, acknowledged - 5)  # a holder that was slow
    books.note(7, acknowledged)
    assert 7 not in books.hours()


def test_each_feed_shard_and_creation_counts_by_itself(books: Books) -> None:
    books.note(1, 5)
    books.note(1, 7, shard=1)
    books.note(2, 3, feed(generation=2))
    books.note(2, 11, feed(name="audit"))
    books.note(2, 13, feed(tenant=OTHER))
    assert books.hours() == {1: 12, 2: 3}
    assert (books.hours(name="audit"), books.hours(OTHER)) == ({2: 11}, {2: 13})


def test_a_feed_that_moves_to_another_sink_and_back_counts_what_is_new_in_each(books: Books) -> None:
    books.note(1, 100)
    books.note(2, 40, feed("kafka://user:secret@broker:9092/other"))
    books.note(3, 120, feed("kafka://broker:9092/orders?partition-num=9"))
    assert books.hours() == {1: 100, 2: 40, 3: 20}


def test_old_hours_are_forgotten_and_nothing_is_counted_again(books: Books) -> None:
    for hour in (1, 2, 3):
        books.note(hour, 10 * hour)
    books.note(1, 4, feed(name="idle"))
    assert books.book.forget(10 * HOUR_MS) == 2
    assert (books.hours(), books.hours(name="idle")) == ({3: 10}, {1: 4})
    books.note(20, 35)
    books.note(20, 4, feed(name="idle"))
    assert (books.hours(), books.hours(name="idle")) == ({3: 10, 20: 5}, {1: 4})
    assert books.book.forget(10 * HOUR_MS) == 1


def test_usage_shows_feeds_in_hours_that_have_nothing_else() -> None:
    none = Amounts(bytes_in="0", bytes_stored=None, bytes_served="0", rows_served="0", requests={})
    known = HourOfUsage(**none.model_dump() | {"hour": "h", "hour_ms": str(HOUR_MS), "bytes_in": "9"})
    usage = Usage(cluster_id="7", tenant_id="acme", from_ms="0", to_ms="9", hours=[known], total=none)
    found = with_feeds(usage, {HOUR_MS: {"a": (1, 10)}, 2 * HOUR_MS: {"a": (2, 20), "b": (3, 30)}})
    assert [(one.hour_ms, one.bytes_in, one.feed_rows) for one in found.hours] == [
        (str(HOUR_MS), "9", "1"),
        (str(2 * HOUR_MS), "0", "5"),
    ]
    assert (found.total.feed_rows, found.total.feed_bytes) == ("6", "60")
    assert {name: (one.rows, one.bytes) for name, one in found.total.feeds.items()} == {
        "a": ("3", "30"),
        "b": ("3", "30"),
    }
