"""Selects the row from which a message's key is made: the new row, or for a delete the old one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.schema.tidb.table import Column
from tistream_changefeed.rows.row_batch import RowBatch


def key_rows(batch: RowBatch, columns: Sequence[Column]) -> tuple[list[Any], Int64s]:
    """The values of message keys. Returns an array for each of `columns`, and for each event the index of its row in
    these arrays. `columns` must be among `batch.columns`."""
    at = [batch.columns.index(column) for column in columns]
    deleted = batch.new_at < 0
    if not deleted.any():
        return [batch.new[place] for place in at], batch.new_at
    if deleted.all():
        return [batch.old[place] for place in at], batch.old_at
    shift = len(batch.new[0]) if len(batch.new) else 0
    arrays = [pa.concat_arrays([batch.new[place], batch.old[place]]) for place in at]
    return arrays, np.where(deleted, batch.old_at + shift, batch.new_at)
