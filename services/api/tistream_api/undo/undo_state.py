"""Reads what the plan of an undo needs: the changed tables that still exist, and their rows, all at one ts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tistream.decode.keys import table_ids
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read.source import TenantSource
from tistream.restore.undo_plan import CurrentRow
from tistream.schema.visible import TableVersion
from tistream_api.undo.changed_rows import ChangedRow, ChangedRows, Place
from tistream_api.undo.rows_now import RowsNow
from tistream_api.undo.undo_answer import UndoAnswer


def undo_at(source: TenantSource, reads: PoolReads, changed: ChangedRows, ts: int) -> UndoAnswer:
    """Read what an undo of these changes needs, as of `ts`, which must be at or above all of them. Raises Undecodable,
    Unavailable, Gone."""
    tables: dict[int, TableVersion] = {}
    standing: dict[Place, CurrentRow] = {}
    for table_id, rows in changed.by_table().items():
        version = _table(source, table_id, rows, ts)
        if version is not None:
            tables[table_id] = version
            found = RowsNow(version, ts, reads).read(rows)
            standing.update({(table_id, row): state for row, state in found.items()})
    return UndoAnswer(ts, changed, tables, standing)


def _table(source: TenantSource, table_id: int, rows: Mapping[str, ChangedRow], ts: int) -> TableVersion | None:
    """The table with this id at `ts`; None if it does not exist any more."""
    raw = pa.array((key for row in rows.values() for key in row.raw), pa.binary())
    version = source.table_of([table_id, *np.unique(table_ids(raw)).tolist()], table_id, ts)
    if version is None:  # the partitions of these rows have been dropped, but perhaps not the table
        version = source.table(ts, *next(iter(rows.values())).version.name)
    return version if version is not None and version.head.id == table_id else None
