"""The fingerprints of row events as they were committed, for a sink that keeps rows, not events. Pure.

The hash of an event (hashes.py) is that of its raw key, of its kind (insert, update, delete), and of the values of the
old row and of the new one, with the names of their columns. ROWS_VERSION, which is stored with the windows, changes if
the hash does, for example because values are decoded in another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s, UInt64s
from tistream.schema.visible import Name
from tistream_changefeed.fingerprints.fingerprint import Fingerprints, by_table, summed
from tistream_changefeed.fingerprints.hashes import event_hashes
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import kinds

ROWS_VERSION = 1


def row_fingerprints(batches: Iterable[RowBatch]) -> Fingerprints:
    """The Fingerprint of each table that has events in `batches`."""
    return summed(by_table(hashes, np.zeros(len(hashes), np.int64), (name,)) for name, _, hashes in event_rows(batches))


def event_rows(batches: Iterable[RowBatch]) -> Iterator[tuple[Name, Int64s, UInt64s]]:
    """The events of each batch that has any: the table's name, and the commit_ts and the hash of each event."""
    for batch in batches:
        if len(batch):
            images = [*_values(batch.old, batch.old_at), *_values(batch.new, batch.new_at)]
            names = [column.name for column in batch.columns]
            columns = (batch.raw, pa.array(kinds(batch)), *images)
            yield batch.version.name, batch.commit_ts, event_hashes(batch.commit_ts, columns, names)


def _values(columns: Sequence[pa.Array], at: Int64s) -> list[pa.Array]:
    """The values of the rows with the indexes `at`; nulls for those that are absent (-1)."""
    chosen = pa.array(at, mask=at < 0)
    return [column.take(chosen) for column in columns]
