"""A set of ids that only grows, in eight bytes each once they are many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

_RECENT_MIN = 1_024


class IdSet:
    """Signed 64-bit integers. What came lately is a set, the rest a sorted array."""

    def __init__(self) -> None:
        self._packed: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._recent: set[int] = set()

    def update(self, ids: Iterable[int]) -> None:
        """Add ids; those that are there already are no harm."""
        self._recent.update(ids)
        # A share of what is packed, so that packing costs the same for each id however many there are.
        if len(self._recent) >= max(_RECENT_MIN, len(self._packed) // 4):
            self._packed = np.union1d(self._packed, np.fromiter(self._recent, np.int64, len(self._recent)))
            self._recent.clear()

    def __contains__(self, one: int) -> bool:
        if one in self._recent:
            return True
        at = int(np.searchsorted(self._packed, one))
        return at < len(self._packed) and int(self._packed[at]) == one

    def __iter__(self) -> Iterator[int]:
        """In ascending order."""
        recent = np.fromiter(self._recent, np.int64, len(self._recent))
        yield from np.union1d(self._packed, recent).tolist()
