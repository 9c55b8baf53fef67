"""Hashes of the rows of Iceberg tables. Pure."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from tistream.restore.fingerprint import Hashes


def row_hashes(rows: pa.Table) -> Hashes:
    """Hash each row over all of its values. Equal rows of the same schema have equal hashes."""
    frame = pl.DataFrame(pl.from_arrow(rows))
    values: list[pl.Expr] = []
    for name, kind in frame.schema.items():
        whole = pl.col(name)
        if isinstance(kind, pl.Struct):
            values.append(whole.is_null())
            values += [_plain(whole.struct.field(one.name), one.dtype) for one in kind.fields]
        else:
            values.append(_plain(whole, kind))
    numbered = [one.alias(str(number)) for number, one in enumerate(values)]
    return frame.select(numbered).hash_rows(0).to_numpy()


def _plain(values: pl.Expr, kind: Any) -> pl.Expr:
    return values.cast(pl.List(pl.String)).list.join(",") if isinstance(kind, pl.List) else values
