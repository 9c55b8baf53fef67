"""Sinks that accept connections and answer nothing: the check of a feed ends, and says so."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tistream_changefeed.config.plan import FeedPlan, PlannedTable
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.sinks.feeds import feed_of

PLANNED = FeedPlan((PlannedTable("shop", "orders", "shop.orders", "", ("id",)),), {}, (), ())


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server whose system accepts connections, and that reads and writes nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server


def connections(server: socket.socket) -> int:
    """How many clients have connected."""
    server.setblocking(False)
    count = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


@pytest.mark.parametrize(
    ("uri", "count"),
    [
        ("mysql://root@ADDRESS/", 1),
        ("s3://lake/feed?protocol=csv&access-key=a&secret-access-key=${secret:key}", 1),
        ("iceberg://lake?catalog-type=rest&catalog-uri=http://ADDRESS/&warehouse=file:///lake", 1),
        ("iceberg://lake?catalog-uri=mysql%2Bpymysql://root@ADDRESS/catalog&warehouse=file:///lake", 2),
    ],
)
def test_the_check_of_a_feed_waits_as_long_as_it_may_for_a_sink(silent: socket.socket, uri: str, count: int) -> None:
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    allowed = Allowed(["127.0.0.1"], ["file:///lake", f"s3://lake?endpoint=http://{address}&region=eu"])
    feed = feed_of(uri.replace("ADDRESS", address), {})
    with pytest.raises(FeedFailed) as found:
        feed.look(PLANNED, {"key": "k"}, allowed, 1.0)
    assert found.value.failure.kind == "retry"
    assert connections(silent) == count
