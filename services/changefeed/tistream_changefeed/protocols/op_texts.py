"""Constant texts that depend on whether an event is an insert, an update or a delete, as columns of a LineWriter. All
protocols that write lines use them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.decode.json_lines import LineColumn, LineGroup
from tistream.decode.kernels.render_kernel import Form
from tistream_changefeed.rows.row_batch import RowBatch

INSERT, DELETE, UPDATE = range(3)
ABSENT = -1  # the place of a group that a line does not have


def ops_of(batch: RowBatch) -> Int64s:
    """For each event, INSERT, DELETE or UPDATE."""
    return np.where(batch.old_at < 0, INSERT, np.where(batch.new_at < 0, DELETE, UPDATE)).astype(np.int64)


def chosen(texts: Sequence[str], places: Int64s) -> LineGroup:
    """A group of a LineWriter that writes text number `places[i]` of `texts` into line i, and nothing if the number is
    negative."""
    return LineGroup("", [LineColumn("", Form.RAW, pa.array(texts, pa.large_string()))], places, silent=True)
