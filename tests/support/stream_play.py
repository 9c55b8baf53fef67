"""A test client that follows an emulated cluster on a virtual clock, without gRPC."""

from __future__ import annotations

from support.puller import Puller
from tistream_upstream.emulator.model.feed import Feed
from tistream_upstream.emulator.model.upstream import Upstream

STEP_US = 10_000


def play(upstream: Upstream, puller: Puller, until_ts: int, end_us: int, multiplexing: bool = True) -> None:
    """Let the client follow the cluster until it is resolved above `until_ts`."""
    feeds: dict[int, Feed] = {}
    while puller.resolved < until_ts:
        assert upstream.now_us < 10 * end_us, f"resolved {puller.resolved} after {upstream.now_us} us"
        upstream.advance(upstream.now_us + STEP_US)
        for number, feed in list(feeds.items()):
            for message in feed.take():
                puller.receive(number, message)
            if feed.closed:
                del feeds[number]
                puller.lost(number)
        for number, request in puller.requests():
            store = upstream.stores[number]
            if not store.up:
                puller.lost(number)
                continue
            feed = feeds.setdefault(number, feeds.get(number) or store.open(multiplexing))
            store.request(feed, request, upstream.tso(), upstream.gc.safe_point)
