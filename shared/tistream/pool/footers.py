"""Footers of segments that are read again and again, kept up to a number of bytes in memory."""

from __future__ import annotations

from collections import OrderedDict

from tistream.concurrency import new_lock
from tistream.format.parquet_footer import ParquetFooter

DEFAULT_BYTES = 64 << 20
FOOTER_BYTES, TIMES = 16 << 10, 4  # taken apart, a footer is 4 times what it is in the object, and small ones 22 times


class FooterCache:
    """Least recently used out first. Safe for many threads. Segments never change, so nothing grows stale."""

    def __init__(self, capacity_bytes: int = DEFAULT_BYTES) -> None:
        self._capacity = capacity_bytes
        self._lock = new_lock()
        self._held: OrderedDict[str, ParquetFooter] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> ParquetFooter | None:
        """The footer of segment `key`, if it is held."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: str, footer: ParquetFooter) -> None:
        """Keep a footer."""
        with self._lock:
            if key in self._held:
                return
            self._held[key] = footer
            self._bytes += _weight(footer)
            while self._bytes > self._capacity and len(self._held) > 1:
                _, dropped = self._held.popitem(last=False)
                self._bytes -= _weight(dropped)


def _weight(footer: ParquetFooter) -> int:
    """About what it takes in memory."""
    return TIMES * footer.size + FOOTER_BYTES
