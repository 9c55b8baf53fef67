"""Which keys of a column lie in a span. Pure."""

from __future__ import annotations

import polars as pl


def inside(keys: pl.Series, start: bytes, end: bytes) -> pl.Series:
    """A Boolean per key: `start <= key < end`, an empty end being +infinity."""
    column = pl.col("key")
    condition = column >= pl.lit(start)
    if end:
        condition &= column < pl.lit(end)
    return keys.rename("key").to_frame().select(condition).to_series()
