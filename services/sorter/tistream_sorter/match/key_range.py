"""Filters a column of keys by a span. Pure."""

from __future__ import annotations

import polars as pl


def inside(keys: pl.Series, start: bytes, end: bytes) -> pl.Series:
    """For each key whether `start <= key < end`. An empty end is plus infinity."""
    column = pl.col("key")
    condition = column >= pl.lit(start)
    if end:
        condition &= column < pl.lit(end)
    return keys.rename("key").to_frame().select(condition).to_series()
