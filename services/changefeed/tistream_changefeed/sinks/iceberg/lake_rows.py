"""The rows of Iceberg tables, from the events of a feed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from tistream.arrays import Bools, Int64s
from tistream.schema.tidb.table import Column
from tistream_changefeed.protocols.op_texts import DELETE, ops_of
from tistream_changefeed.rows.net import TableNet
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.window import taken
from tistream_changefeed.sinks.iceberg.field_types import converted, has_times, raw_times
from tistream_changefeed.sinks.iceberg.table_schema import (
    COMMIT_TIME,
    COMMIT_TS,
    OLD,
    OLD_FIRST,
    OP,
    RAW,
    SCHEMA_VERSION,
    START_TS,
    LakeSchema,
)

_OPS = ("insert", "delete", "update", "read")
_READ = 3  # the row was there when the feed began: no transaction has a start_ts of 0
_PHYSICAL_SHIFT = 18  # bits of a TSO below its milliseconds
_HOUR_US = 3_600_000_000


def change_rows(batches: Sequence[RowBatch], lake: LakeSchema) -> pa.Table:
    """Convert events to rows of a table of changes, one for each event, in the same order. A delete has the values of
    the deleted row."""
    kind = arrow_schema(lake.schema)
    table = pa.concat_tables([_changes(batch, lake, kind) for batch in batches])
    if len(batches) == 1:
        return table
    order = np.argsort(np.concatenate([batch.at for batch in batches]), kind="stable")
    return table.take(pa.array(order))


def arrow_schema(schema: Schema) -> pa.Schema:
    """The schema of the files of a table, with field ids."""
    return schema_to_pyarrow(schema, include_field_ids=True)


def _changes(batch: RowBatch, lake: LakeSchema, kind: pa.Schema) -> pa.Table:
    ops = ops_of(batch)
    deleted, absent = ops == DELETE, batch.old_at < 0
    found: dict[int, pa.Array] = {}
    old: dict[int, pa.Array] = {}
    times = []
    for column, new, before in zip(batch.columns, batch.new, batch.old, strict=True):
        place = lake.fields.get(column.id)
        if place is None:  # a DDL that the feed leaves out has dropped it
            continue
        values = _shown(new, before, batch, deleted)
        found[place] = converted(column, values)
        old[place] = converted(column, before.take(pa.array(batch.old_at, mask=absent)))
        if has_times(column):
            times.append((column, values, found[place]))
    found[COMMIT_TIME] = pa.array((batch.commit_ts >> _PHYSICAL_SHIFT) * 1_000).cast(pa.timestamp("us", "UTC"))
    found[COMMIT_TS], found[START_TS] = pa.array(batch.commit_ts), pa.array(batch.start_ts)
    shown = np.where(batch.start_ts == 0, _READ, ops)
    found[OP] = pa.array(_OPS, pa.large_string()).take(pa.array(shown))
    found[SCHEMA_VERSION] = pa.array(batch.schema_version)
    found[RAW] = raw_times(times, len(batch))
    arrays = []
    for one in kind:
        if _id(one) == OLD:
            inner = [_as(old.get(_id(part) - OLD_FIRST), part.type, len(batch)) for part in one.type]
            arrays.append(pa.StructArray.from_arrays(inner, fields=list(one.type), mask=pa.array(absent)))
        else:
            arrays.append(_as(found.get(_id(one)), one.type, len(batch)))
    return pa.Table.from_arrays(arrays, schema=kind)


def truncate_row(lake: LakeSchema, commit_ts: int, start_ts: int, schema_version: int) -> pa.Table:
    """Build the row of a table of changes that stands for a TRUNCATE. The columns of TiDB's table are null in
    it."""
    values = {
        COMMIT_TIME: pa.array([(commit_ts >> _PHYSICAL_SHIFT) * 1_000]).cast(pa.timestamp("us", "UTC")),
        COMMIT_TS: pa.array([commit_ts]),
        START_TS: pa.array([start_ts]),
        OP: pa.array(["truncate"]),
        SCHEMA_VERSION: pa.array([schema_version]),
    }
    kind = arrow_schema(lake.schema)
    return pa.Table.from_arrays([_as(values.get(_id(one)), one.type, 1) for one in kind], schema=kind)


def _id(field: pa.Field) -> int:
    return int(field.metadata[b"PARQUET:field_id"])


def table_rows(columns: Sequence[Column], rows: pa.RecordBatch, lake: LakeSchema) -> pa.Table:
    """Convert rows to those of the mirrored table. `rows` has the decoded values of `columns`."""
    kind = arrow_schema(lake.schema)
    found: dict[int, pa.Array] = {}
    times = []
    for column, values in zip(columns, rows.columns, strict=True):
        place = lake.fields.get(column.id)
        if place is None:
            continue
        found[place] = converted(column, values)
        if has_times(column):
            times.append((column, values, found[place]))
    found[RAW] = raw_times(times, rows.num_rows)
    arrays = [_as(found.get(_id(one)), one.type, rows.num_rows) for one in kind]
    return pa.Table.from_arrays(arrays, schema=kind)


@dataclass(frozen=True, slots=True)
class LostKeys:
    """The events of a batch whose key has a date that no calendar has: its value would be null, and two rows might
    have one key. `columns`: the name of the column with this date, by the index of the event. `old`, `new`: for
    each event of the batch, whether its old and its new row have such a key."""

    columns: Mapping[int, str]
    old: Bools
    new: Bools

    def rest(self, batch: RowBatch) -> RowBatch:
        """The events without the rows whose key Iceberg cannot represent, for the mirrored table: an update to such a
        key deletes the old row, and one from such a key inserts the new row."""
        old_at, new_at = np.where(self.old, -1, batch.old_at), np.where(self.new, -1, batch.new_at)
        rest = replace(batch, old_at=old_at, new_at=new_at)
        return taken(rest, np.flatnonzero((old_at >= 0) | (new_at >= 0)))


def lost_keys(batch: RowBatch) -> LostKeys:
    """Find the events of a batch whose row could not be found again in the mirrored table, because of its key."""
    columns: dict[int, str] = {}
    old, new = np.zeros(len(batch), bool), np.zeros(len(batch), bool)
    for column in filter(has_times, batch.handle):
        place = batch.columns.index(column)
        for values, at, mask in ((batch.new[place], batch.new_at, new), (batch.old[place], batch.old_at, old)):
            gone: Int64s = np.flatnonzero(
                pc.and_(values.is_valid(), converted(column, values).is_null()).to_numpy(False)
            )
            found = np.isin(at, gone)
            np.logical_or(mask, found, out=mask)
            columns |= dict.fromkeys(np.flatnonzero(found).tolist(), column.name)
    return LostKeys(dict(sorted(columns.items())), old, new)


def replaced_keys(net: TableNet, *, inserts: bool) -> Iterator[pa.Table]:
    """Yield tables with the keys of the rows that a commit of a net change deletes from the mirrored table: the key
    columns, in the types of the Iceberg table. `inserts`: an earlier release may have written the table, which did
    not delete a row that was updated to a key with a date that no calendar has. A later update from such a key is
    an insert, and may have the key of the row that was left. So if a key column may have such dates, the keys of
    inserts are yielded, too."""
    dated = inserts and any(map(has_times, net.handle))
    for rows in (net.deletes, net.updates, *([net.inserts] if dated else [])):
        if rows.num_rows:
            yield _keys(net, rows)


def deleted_keys(net: TableNet) -> Iterator[pa.Table]:
    """The keys of the rows that a net change deletes, in the types of the Iceberg table."""
    if net.deletes.num_rows:
        yield _keys(net, net.deletes)


def inserted_keys(net: TableNet) -> pa.Table:
    """The keys of the rows that a net change inserts, in the types of the Iceberg table, without those that Iceberg
    cannot represent."""
    return _keys(net, net.inserts).drop_null()


def _keys(net: TableNet, rows: pa.RecordBatch) -> pa.Table:
    names = [column.name for column in net.columns]
    return pa.table({one.name: converted(one, rows.column(names.index(one.name))) for one in net.handle})


def by_hour(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Divide the rows of a table of changes into its partitions. Yields (hour of the commit, in hours since 1970; its
    rows)."""
    hours: Int64s = table["_commit_time"].cast(pa.int64()).to_numpy() // _HOUR_US
    bounds = [0, *(np.flatnonzero(hours[1:] != hours[:-1]) + 1).tolist(), len(hours)]
    for start, end in pairwise(bounds):
        if start < end:
            yield int(hours[start]), table.slice(start, end - start)


def _shown(new: pa.Array, old: pa.Array, batch: RowBatch, deleted: Bools) -> pa.Array:
    """The value of a column for each event: that of the old row for a delete, otherwise that of the new row. `deleted`:
    which events are deletes."""
    if not deleted.any():
        return new.take(pa.array(batch.new_at))
    if deleted.all():
        return old.take(pa.array(batch.old_at))
    both = pa.concat_arrays([new, old])
    return both.take(pa.array(np.where(deleted, len(new) + batch.old_at, batch.new_at)))


def _as(values: pa.Array | None, kind: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, kind) if values is None else values.cast(kind)
