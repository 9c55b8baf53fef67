"""How many rows the next page of a restore has: a page is one transaction of the target, and rows differ in size."""

from __future__ import annotations

FIRST_ROWS = 1_000
PAGE_BYTES = 32 << 20  # in Arrow; TiDB refuses transactions above some 100 MB by default
_GROWTH = 10  # so that a few small rows are not followed by very many large ones


def next_rows(most: int, rows: int, size: int) -> int:
    """The number of rows to ask for, from 1 to `most`, after a page of `rows` rows and `size` bytes; 0 rows: before the
    first page."""
    if not rows:
        return min(most, FIRST_ROWS)
    fitting = PAGE_BYTES * rows // max(1, size)
    return max(1, min(most, rows * _GROWTH, fitting))
