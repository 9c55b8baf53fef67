"""Caches parsed footers of segments, up to a limit in bytes."""

from __future__ import annotations

from collections import OrderedDict

from tistream.concurrency import new_lock
from tistream.format.parquet_footer import ParquetFooter

DEFAULT_BYTES = 64 << 20
# A parsed footer takes about 4 times its size in the object, and a small one up to 22 times.
FOOTER_BYTES, TIMES = 16 << 10, 4


class FooterCache:
    """An LRU cache of footers, by the key of the segment. Thread-safe. Segments are immutable, so entries never become
    stale."""

    def __init__(self, capacity_bytes: int = DEFAULT_BYTES) -> None:
        self._capacity = capacity_bytes
        self._lock = new_lock()
        self._held: OrderedDict[str, ParquetFooter] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> ParquetFooter | None:
        """The footer of segment `key`; None if it is not cached."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: str, footer: ParquetFooter) -> None:
        """Cache a footer, and evict the least recently used ones if the limit is exceeded."""
        with self._lock:
            if key in self._held:
                return
            self._held[key] = footer
            self._bytes += _weight(footer)
            while self._bytes > self._capacity and len(self._held) > 1:
                _, dropped = self._held.popitem(last=False)
                self._bytes -= _weight(dropped)


def _weight(footer: ParquetFooter) -> int:
    """Estimated memory of a parsed footer, in bytes."""
    return TIMES * footer.size + FOOTER_BYTES
