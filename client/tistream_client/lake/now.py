"""The rows of an Iceberg table whose small changes wait in a delta table (`t_delta`), without the server. pyarrow is
imported by the first read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tistream_client.core.errors import WrongArgument
from tistream_client.lake.snapshots import IcebergTable, without

if TYPE_CHECKING:
    import pyarrow as pa

_BASE, _KEYS, _DELTA, _RESOLVED, _SINCE, _SOURCE = (
    f"tistream.{name}" for name in ("base", "keys", "delta", "resolved_ts", "since_ts", "source")
)
_DELETED = "_deleted"


def rows_now(table: IcebergTable, delta: IcebergTable) -> pa.Table:
    """Read the rows of a table and of its delta as of one ts, which the metadata of the result has as `tistream.ts`:
    the rows of the table whose key the delta does not have, and those of the delta. `table`, `delta`: opened with
    pyiceberg, such as catalog.load_table("shop.orders") and catalog.load_table("shop.orders_delta"); both are read
    again. Raises WrongArgument if `delta` is not the delta of `table`, and what pyiceberg raises."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    delta.refresh()  # first: the snapshot of the table to which the delta belongs is then there
    table.refresh()
    known = delta.properties
    if _BASE not in known and _is_new_delta(table, delta):  # nothing waits in it yet, so the table has all rows
        ts = table.properties.get(_RESOLVED, table.properties.get(_SINCE, "0"))
        rows = table.scan(selected_fields=("*",), snapshot_id=None).to_arrow()
        return rows.replace_schema_metadata({"tistream.ts": ts})
    if _BASE not in known or not table.properties.get(_DELTA):
        raise WrongArgument("delta", "is not the delta of the table", 'catalog.load_table("shop.orders_delta")')
    there = {one.snapshot_id for one in table.metadata.snapshots}
    base = int(known[_BASE]) if int(known[_BASE]) in there else None  # the newest one is right too: the other expired
    rows = table.scan(selected_fields=("*",), snapshot_id=base).to_arrow()
    changed = delta.scan(selected_fields=("*",), snapshot_id=delta.metadata.current_snapshot_id).to_arrow()
    if changed.num_rows:
        fields = {one.field_id: one.name for one in delta.schema().fields}
        keys = [fields[number] for number in json.loads(known[_KEYS])]
        live = changed.filter(pc.invert(changed[_DELETED])).select(rows.column_names).cast(rows.schema)
        rows = pa.concat_tables([without(rows, changed.select(keys), keys), live])
    return rows.replace_schema_metadata({"tistream.ts": known[_RESOLVED]})


def _is_new_delta(table: IcebergTable, delta: IcebergTable) -> bool:
    """Whether `delta` was created as the delta of `table`, and has no changes yet: both are of one table in TiDB, and
    it has no columns, or those of a delta."""
    names = [one.name for one in delta.schema().fields]
    source = table.properties.get(_SOURCE)
    return source is not None and source == delta.properties.get(_SOURCE) and (not names or _DELETED in names)
