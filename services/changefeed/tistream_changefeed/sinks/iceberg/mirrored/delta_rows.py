"""The rows of a delta table. Pure.

A delta has the columns of its table and `_deleted`. Each row has the newest state of one key, or says by `_deleted`
that the key is gone; then its other columns are null.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream_changefeed.rows.net import TableNet
from tistream_changefeed.sinks.iceberg.lake_rows import arrow_schema, deleted_keys, table_rows
from tistream_changefeed.sinks.iceberg.table_schema import DELETED_NAME, LakeSchema


def delta_rows(nets: Sequence[TableNet], keys: Sequence[str], lake: LakeSchema) -> pa.Table:
    """The rows that a net change adds to a delta with the schema `lake`, one for each key. `keys`: the names of the key
    columns."""
    parts = [table_rows(one.columns, rows, lake) for one in nets for rows in (one.updates, one.inserts)]
    puts = _marked(pa.concat_tables(parts), deleted=False)
    gone = [one for each in nets for one in deleted_keys(each)]
    if not gone:
        return puts
    alone = without(pa.concat_tables(gone), keys, puts)
    kind = arrow_schema(lake.schema)
    columns = [
        alone[one.name].cast(one.type) if one.name in keys else pa.nulls(alone.num_rows, one.type) for one in kind
    ]
    return pa.concat_tables([puts, _marked(pa.Table.from_arrays(columns, schema=kind), deleted=True)])


def live(rows: pa.Table) -> pa.Table:
    """Those of a delta's rows that are not deleted, without the mark."""
    return rows.filter(pc.invert(rows[DELETED_NAME])).drop_columns([DELETED_NAME])


def without(rows: pa.Table, keys: Sequence[str], others: pa.Table) -> pa.Table:
    """The rows whose key is not among those of `others`."""
    if not (rows.num_rows and others.num_rows):
        return rows
    place = "".join((*keys, "#"))  # longer than the name of each key column
    frame = pl.DataFrame(pl.from_arrow(rows.select(list(keys)))).with_row_index(place)
    gone = pl.DataFrame(pl.from_arrow(others.select(list(keys))))
    kept = frame.join(gone, on=list(keys), how="anti", nulls_equal=True)[place].sort()
    return rows.take(kept.to_arrow())


def _marked(rows: pa.Table, *, deleted: bool) -> pa.Table:
    place = rows.schema.get_field_index(DELETED_NAME)
    return rows.set_column(place, rows.schema.field(place), pa.repeat(pa.scalar(deleted), rows.num_rows))
