"""Pages of a restore: no transaction becomes too large, and small rows come many at once."""

from __future__ import annotations

import pytest

from tistream_cli.restore.page_size import FIRST_ROWS, PAGE_BYTES, next_rows


@pytest.mark.parametrize(
    ("most", "rows", "size", "expected"),
    [
        (10_000, 0, 0, FIRST_ROWS),
        (7, 0, 0, 7),
        (10_000, 1_000, 100_000, 10_000),
        (100_000, 1_000, 100_000, 10_000),
        (10_000, 1_000, 1_000 * (1 << 20), PAGE_BYTES >> 20),
        (10_000, 1, 2 * PAGE_BYTES, 1),
        (10_000, 5, 0, 50),
    ],
)
def test_the_next_page(most: int, rows: int, size: int, expected: int) -> None:
    assert next_rows(most, rows, size) == expected
