"""Reproduces an error of TiCDC's open protocol in the old values of `only-output-updated-columns`. Pure.

A column that became NULL is written without its name, which makes an object that readers refuse or misread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tistream.arrays import Bools, Int64s
from tistream.decode.json_lines import LineColumn
from tistream.decode.kernels.arrow_buffers import validity
from tistream.schema.tidb.table import Column
from tistream_changefeed.protocols.members import Forms, Head, changed_parts
from tistream_changefeed.rows.row_batch import RowBatch


def updated_parts(
    batch: RowBatch, columns: Sequence[Column], head: Head, nameless: Head, form: Forms
) -> list[LineColumn]:
    """The old values of the columns that an update changes, as columns of a LineWriter. The old value of a column that
    became NULL follows `nameless` in place of the name."""
    parts: list[LineColumn] = []
    for place, column in enumerate(batch.columns):
        if column not in columns:
            continue
        (named,) = changed_parts(batch, [column], head, form, "}")
        moved = named.shown
        assert moved is not None, "parts of changed columns say where they are shown"
        became_null = moved & _null(batch.new[place], batch.new_at)
        parts.append(replace(named, shown=moved & ~became_null))
        if became_null.any():
            parts.append(replace(named, head=f",{nameless(column)}", tail="", shown=became_null))
    return parts


def _null(array: pa.Array, at: Int64s) -> Bools:
    """For each event, whether element `at` of the array is null. False where `at` is negative."""
    return (at >= 0) & ~validity(array)[at] if len(array) else at >= len(at)
