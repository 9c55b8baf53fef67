"""Builds INSERT statements of many rows from decoded Arrow columns, a column at a time.

The columns are those of `tistream.decode.rows`: int64, uint64, float32, float64, large_binary, or large_string. Every
text becomes a quoted literal, which the server converts to the column's type (DECIMAL, dates, ENUM, SET, JSON, VECTOR).
The session must first execute undo_sql.SESSION.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from tistream.schema.tidb.quoting import quoted_name
from tistream.schema.tidb.table import Column

STATEMENT_BYTES = 1 << 20  # well below max_allowed_packet, of which 16 MiB is the lowest default

_ESCAPED = (("\\", "\\\\"), ("'", "''"), ("\x00", "\\0"), ("\n", "\\n"), ("\r", "\\r"), ("\x1a", "\\Z"))


def insert_statements(
    batch: pa.RecordBatch,
    columns: Sequence[Column],
    name: tuple[str, str],
    statement_bytes: int = STATEMENT_BYTES,
    verb: str = "INSERT",
    suffix: str = "",
) -> Iterator[str]:
    """Yield statements that insert all rows of the batch. Each has about `statement_bytes` bytes, or more if a single
    row is larger.

    Args:
        batch: decoded rows; its fields are `columns`, in order.
        columns: generated ones are left out, because the server computes them.
        name: (database, table).
        verb: INSERT, or REPLACE.
        suffix: what follows the rows.
    """
    written = [(column, place) for place, column in enumerate(columns) if not column.generated]
    table = ".".join(map(quoted_name, name))
    names = ", ".join(quoted_name(column.name) for column, _ in written)
    if not batch.num_rows:
        return
    texts = [literals(batch.column(place)).alias(str(place)) for _, place in written]
    if not texts:  # a table whose visible columns are all generated
        yield from (f"{verb} INTO {table} () VALUES ()" for _ in range(batch.num_rows))
        return
    rows = pl.DataFrame(texts).select(pl.format("({})", pl.concat_str(pl.all(), separator=", "))).to_series()
    for first, last in _pieces(rows.str.len_bytes().to_numpy(), statement_bytes):
        yield f"{verb} INTO {table} ({names}) VALUES\n" + ",\n".join(rows[first:last]) + suffix


def literals(array: pa.Array) -> pl.Series:
    """Convert a column to SQL literals; NULL for null."""
    series = pl.Series(pl.from_arrow(array))
    if series.dtype == pl.Binary:
        texts = _wrapped("X'{}'", series.bin.encode("hex"))
    elif series.dtype == pl.String:
        texts = _wrapped("'{}'", _escaped(series))
    elif series.dtype in (pl.Float32, pl.Float64):
        texts = _doubles(series)
    else:
        texts = series.cast(pl.String)
    return texts.fill_null("NULL")


def _wrapped(form: str, texts: pl.Series) -> pl.Series:
    return texts.to_frame("text").select(pl.format(form, "text")).to_series()


def _escaped(series: pl.Series) -> pl.Series:
    for character, escape in _ESCAPED:
        series = series.str.replace_all(character, escape, literal=True)
    return series


def _doubles(series: pl.Series) -> pl.Series:
    """Convert floats to SQL literals with the shortest digits and an exponent. Without an exponent, the server would
    parse a DECIMAL."""
    text = pl.col("text")
    exact = pl.when(text.str.contains("e", literal=True)).then(text).otherwise(text + "e0")
    return series.cast(pl.String).to_frame("text").select(exact).to_series()


def _pieces(sizes: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    """Split rows into ranges [first, last) of at most `limit` bytes each. A row that is larger has a range of its own.
    `sizes` has the bytes of each row."""
    ends = np.cumsum(sizes, dtype=np.int64)
    first = 0
    while first < len(ends):
        begin = int(ends[first] - sizes[first])
        last = max(first + 1, int(np.searchsorted(ends, begin + limit, side="right")))
        yield first, last
        first = last
