"""A set of integers that only grows. A large set takes about eight bytes of memory for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

_RECENT_MIN = 1_024


class IdSet:
    """A set of signed 64-bit integers. Recently added ones are in a Python set, all others in a sorted array."""

    def __init__(self) -> None:
        self._packed: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._recent: set[int] = set()

    def update(self, ids: Iterable[int]) -> None:
        """Add ids. Ids that are present already are ignored."""
        self._recent.update(ids)
        # The limit is a fraction of the array's length, so that the amortized cost of an id does not grow with the set.
        if len(self._recent) >= max(_RECENT_MIN, len(self._packed) // 4):
            self._packed = np.union1d(self._packed, np.fromiter(self._recent, np.int64, len(self._recent)))
            self._recent.clear()

    def __contains__(self, one: int) -> bool:
        if one in self._recent:
            return True
        at = int(np.searchsorted(self._packed, one))
        return at < len(self._packed) and int(self._packed[at]) == one

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ids in ascending order."""
        recent = np.fromiter(self._recent, np.int64, len(self._recent))
        yield from np.union1d(self._packed, recent).tolist()
