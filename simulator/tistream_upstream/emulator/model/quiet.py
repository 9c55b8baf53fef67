"""A cluster in which nothing is written except by clients: the target of a replication of raw keys (API V2). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from tistream.model.ts import from_physical_ms, physical_ms
from tistream_upstream.emulator.model.region import Region, encoded_bound
from tistream_upstream.emulator.model.store import QUOTA, StoreConfig
from tistream_upstream.emulator.model.timeline import Item
from tistream_upstream.emulator.model.upstream import Options, Upstream


class QuietSource:
    """A timeline with only the given `happenings`, which occur in the order of `at_us`. `begin_ms` is in Unix
    milliseconds."""

    def __init__(self, begin_ms: int, happenings: Sequence[Item] = ()) -> None:
        self._happenings = list(happenings)
        self.base_ts = from_physical_ms(begin_ms)
        self._last = self.base_ts

    def items(self, to_us: int) -> Iterator[Item]:
        """Return the items that happen up to `to_us`, in order; each item is returned once."""
        while self._happenings and self._happenings[0].at_us <= to_us:
            yield self._happenings.pop(0)

    def tso(self, now_us: int, count: int) -> int:
        """Take `count` timestamps. Returns the last one."""
        now = from_physical_ms(physical_ms(self.base_ts) + now_us // 1_000)
        self._last = max(self._last, now) + count
        return self._last

    def resolved_limit(self, store_id: int, now_us: int) -> int:  # noqa: ARG002  # one clock for all
        """Implement TimelineSource.resolved_limit: the present timestamp, because raw writes get their timestamps when
        they are applied."""
        return self.tso(now_us, 1)


def quiet_upstream(
    cluster_id: int,
    begin_ms: int,
    stores: int,
    cuts: Sequence[bytes] = (),
    busy_rate: float = 0.0,
    version: str = "8.5.4",
    quota: int = QUOTA,
    happenings: Callable[[Sequence[Region]], Sequence[Item]] = lambda _: (),
) -> Upstream:
    """Make an empty cluster of API V2 whose regions are cut at the raw keys `cuts`. `happenings` is called with the
    initial regions, and returns the timeline's items."""
    edges = [b"", *(encoded_bound(cut) for cut in sorted(set(cuts))), b""]
    numbers = range(1, stores + 1)
    regions = [
        Region(at + 2, low, high, 1, 1, 1 + at % stores, {store: (at + 2) * 1_000 + store for store in numbers})
        for at, (low, high) in enumerate(pairwise(edges))
    ]
    config = StoreConfig(cluster_id, api=2, busy_rate=busy_rate, quota=quota)
    return Upstream(
        QuietSource(begin_ms, happenings(regions)),
        config,
        regions,
        {store: (version, {}) for store in numbers},
        (),
        Options(),
    )
