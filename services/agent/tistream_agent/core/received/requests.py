"""Finds the subscription that a received event belongs to. Pure.

In TiKV's messages a subscription is identified by stream, request_id and region (upstream-formats 6.4). Registrations
at one store whose log ids come from one call are sent with the same request_id, because TiKV then sends one ResolvedTs
for many regions. Inside the agent each registration has a number of its own; the rest of the agent calls that number
its request_id.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tistream.arrays import Int64s
from tistream_agent.core import kernels as k

_MIN_PAIRS = 64


@dataclass(slots=True)
class SentRequests:
    """The registrations that were sent, by (request_id that was sent, region).

    The registrations of one request_id are dropped together, because a late event of an ended registration must not
    look like an event of a region that was never registered.
    """

    _pairs: Int64s = field(default_factory=lambda: np.zeros((k.PAIR_COLUMNS, _MIN_PAIRS), np.int64))
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    def add(self, sent_as: int, region_id: int, stream: int, number: int) -> None:
        """Record that registration `number` was sent. `sent_as` is the request_id that is sent; it equals that of the
        previous registration, or is higher."""
        assert not self._count or self._pairs[k.SENT_AS, self._count - 1] <= sent_as, (
            f"request {sent_as} comes too late"
        )
        if self._count == self._pairs.shape[1]:
            wider = np.zeros((k.PAIR_COLUMNS, 2 * self._count), np.int64)
            wider[:, : self._count] = self._pairs
            self._pairs = wider
        self._pairs[:, self._count] = sent_as, region_id, stream, number
        self._count += 1

    def numbers(self, items: Int64s, stream: int) -> Int64s:
        """Find the number of the registration that each item belongs to. NO_REQUEST if this stream has no such
        request_id, OTHER_REGION if the request_id was never sent for this region."""
        out = np.empty(items.shape[1], np.int64)
        k.numbers_of(items, stream, self._pairs, self._count, out)
        return out

    def forget(self, live: int, is_known: Int64s) -> None:
        """Drop the request_ids all of whose registrations have ended, once they take more than half of the memory.
        `live` is the number of registrations that the agent still knows, and `is_known` has their numbers, in any
        order."""
        if self._count <= max(_MIN_PAIRS, 2 * live):
            return
        there = self._pairs[:, : self._count]
        used = np.unique(there[k.SENT_AS, np.isin(there[k.NUMBER], is_known)])
        kept = there[:, np.isin(there[k.SENT_AS], used)]
        self._count = kept.shape[1]
        self._pairs = np.zeros((k.PAIR_COLUMNS, max(_MIN_PAIRS, 2 * self._count)), np.int64)
        self._pairs[:, : self._count] = kept
