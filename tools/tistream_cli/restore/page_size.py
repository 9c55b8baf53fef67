"""Decides how many rows a restore requests for its next page. A page is one transaction in the target, and rows differ
in size."""

from __future__ import annotations

FIRST_ROWS = 1_000
PAGE_BYTES = 32 << 20  # bytes in Arrow form; by default, TiDB refuses transactions above some 100 MB
_GROWTH = 10  # highest growth of a page, so that a few small rows are not followed by very many large ones


def next_rows(most: int, rows: int, size: int) -> int:
    """The number of rows to request next, from 1 to `most`. The last page had `rows` rows and `size` bytes. `rows` is 0
    before the first page."""
    if not rows:
        return min(most, FIRST_ROWS)
    fitting = PAGE_BYTES * rows // max(1, size)
    return max(1, min(most, rows * _GROWTH, fitting))
