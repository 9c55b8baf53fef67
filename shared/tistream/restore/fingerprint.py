"""Fingerprints of a table's rows: a count, and a sum of 64-bit hashes that does not depend on the order of rows.

The decoded rows of a table as of a ts, and the rows that a server returns for `select_list`, have equal fingerprints if
every value is the same. Otherwise they differ, unless hashes collide. The hash function is that of this process's
polars: compare fingerprints in one process only, and do not store them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl
import pyarrow as pa

from tistream.schema.tidb import table as t
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.quoting import quoted_name
from tistream.schema.tidb.table import Column

Hashes = npt.NDArray[np.uint64]

_MODULUS = 1 << 64
_WHOLE = (*t.INTEGERS, t.YEAR, t.BIT)
_FLOATS = (t.FLOAT, t.DOUBLE)
_NULL = "-"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The fingerprint of rows: their number, and the sum of their hashes modulo 2^64."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, (self.total + other.total) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.rows} rows, checksum {self.total:016x}"


def select_list(columns: Sequence[Column]) -> str:
    """The list of expressions for a SELECT whose result `of_selected` can take: integers unchanged, binary strings in
    hexadecimal, and everything else as text in utf8mb4."""
    return ", ".join(map(_selected, columns)) or "1"


def hashes_of_selected(rows: Sequence[Sequence[Any]], columns: Sequence[Column], dialect: Dialect) -> Hashes:
    """The hash of each row that a server returned for a SELECT of `select_list`."""
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    return _hashes(len(rows), (_of_server(*one, dialect) for one in zip(columns, values, strict=True)))


def hashes_of_rows(batch: pa.RecordBatch, columns: Sequence[Column], dialect: Dialect) -> Hashes:
    """The hash of each decoded row (tistream.decode.rows), which equals that of the same row of a server with this
    dialect. `columns` are the fields of the batch, in order."""
    return _hashes(batch.num_rows, (_of_arrow(*one, dialect) for one in zip(columns, batch.columns, strict=True)))


def of_selected(rows: Sequence[Sequence[Any]], columns: Sequence[Column], dialect: Dialect) -> Fingerprint:
    """The fingerprint of the rows that a server returned for a SELECT of `select_list`."""
    if not columns:
        return Fingerprint(len(rows), 0)
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    return _of(len(rows), (_of_server(*one, dialect) for one in zip(columns, values, strict=True)))


def of_rows(batch: pa.RecordBatch, columns: Sequence[Column], dialect: Dialect | None) -> Fingerprint:
    """The fingerprint of decoded rows (tistream.decode.rows). `columns` are the fields of the batch, in order.
    `dialect` is that of the server whose fingerprint this one will be compared with; None if it is that of files, which
    keep every value unchanged."""
    if dialect is None:
        return _of_values(batch)
    return _of(batch.num_rows, (_of_arrow(*one, dialect) for one in zip(columns, batch.columns, strict=True)))


def _selected(column: Column) -> str:
    name = quoted_name(column.name)
    if column.binary:
        return f"LOWER(HEX({name}))"
    if column.tp == t.FLOAT:
        return f"CONVERT({name} + 0e0 USING utf8mb4)"  # without this, a FLOAT is shown with six digits only
    if column.tp == t.DECIMAL:
        return f"CONVERT({name} + 0 USING utf8mb4)"  # removes the zeros of ZEROFILL
    if column.tp in _WHOLE:
        return f"{name} + 0" if column.tp == t.BIT else name
    return f"CAST({name} AS CHAR)" if column.tp == t.VECTOR else f"CONVERT({name} USING utf8mb4)"


def _of_server(column: Column, values: Iterable[Any], dialect: Dialect) -> pl.Series:
    if column.tp in _WHOLE:
        unsigned = column.unsigned or column.tp == t.BIT
        return pl.Series(
            [None if one is None else int(one) for one in values], dtype=pl.UInt64 if unsigned else pl.Int64
        )
    texts = pl.Series(list(values), dtype=pl.String)
    return texts.cast(pl.Float64) if column.tp in _FLOATS else _comparable(column, texts, dialect)


def _of_values(batch: pa.RecordBatch) -> Fingerprint:
    """Compute the fingerprint of rows from their typed values, which takes a fifth of the time that hashing their texts
    takes."""
    if not batch.num_columns or not batch.num_rows:
        return Fingerprint(batch.num_rows, 0)
    rows = pl.DataFrame([pl.Series(str(at), pl.from_arrow(one)) for at, one in enumerate(batch.columns)])
    return Fingerprint(batch.num_rows, int(rows.hash_rows(0).to_numpy().sum(dtype=np.uint64)))


def _of_arrow(column: Column, array: pa.Array, dialect: Dialect) -> pl.Series:
    series = pl.Series(pl.from_arrow(array))
    if series.dtype == pl.Binary:
        return series.bin.encode("hex")
    return series if column.tp in (*_WHOLE, *_FLOATS) else _comparable(column, series, dialect)


def _comparable(column: Column, texts: pl.Series, dialect: Dialect) -> pl.Series:
    """Convert JSON documents to one form, because MySQL and TiDB change the text of documents that they store, and
    MariaDB does not."""
    if column.tp != t.JSON or dialect is Dialect.MARIADB:
        return texts
    one_form = [None if one is None else _document(one) for one in texts]
    return pl.Series(one_form, dtype=pl.String)


def _document(text: str) -> str:
    return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()


def _of(count: int, columns: Iterable[pl.Series]) -> Fingerprint:
    return Fingerprint(count, int(_hashes(count, columns).sum(dtype=np.uint64)))


def _hashes(count: int, columns: Iterable[pl.Series]) -> Hashes:
    """The hashes of `count` rows, each computed over its cells with their lengths before them, so that different rows
    are hashed as different bytes; 0 for rows without columns."""
    cells = [_cells(one).alias(str(place)) for place, one in enumerate(columns)]
    if not cells or not count:
        return np.zeros(count, np.uint64)
    return pl.DataFrame(cells).select(pl.concat_str(pl.all())).to_series().hash(0).to_numpy()


def _cells(values: pl.Series) -> pl.Series:
    if values.dtype == pl.Float32:
        values = values.cast(pl.Float64)
    text = values.cast(pl.String).to_frame("text")
    cell = pl.concat_str(pl.col("text").str.len_bytes().cast(pl.String), pl.lit(":"), pl.col("text"))
    return text.select(cell.fill_null(_NULL)).to_series()
