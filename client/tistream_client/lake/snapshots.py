"""The rows of a table as of any time, from an Iceberg table that a changefeed keeps. The rows that have changed since
its newest snapshot at or below the time are replaced by their state at the time. pyarrow is imported by the first
read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Protocol

from tistream_client.core.arrow import DiffPage
from tistream_client.core.errors import WrongArgument
from tistream_client.core.scope import Scope

if TYPE_CHECKING:
    import pyarrow as pa

_RESOLVED, _LOADED, _SOURCE, _FEED = (f"tistream.{name}" for name in ("resolved_ts", "loaded", "source", "feed"))
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_RIGHT = 'the table itself of a changefeed with mode=both or mode=upsert, such as catalog.load_table("shop.orders")'


class IcebergTable(Protocol):
    """The members of pyiceberg's Table that the client uses."""

    metadata: Any

    @property
    def properties(self) -> Mapping[str, str]: ...

    def schema(self) -> Any: ...

    def refresh(self) -> Any: ...

    def scan(self, *, selected_fields: tuple[str, ...], snapshot_id: int | None) -> Any: ...


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """A snapshot of an Iceberg table, which has the rows as of `ts`."""

    snapshot_id: int
    ts: int


def check_lake(table: IcebergTable, scope: Scope) -> None:
    """Check that a changefeed keeps the rows of the table `scope` in the Iceberg table `table`. Raises WrongArgument if
    it does not."""
    feed, source = table.properties.get(_FEED, ""), table.properties.get(_SOURCE)
    if not feed.startswith(f"{scope.cluster}/{scope.tenant}/") or source != f"{scope.database}.{scope.table}":
        raise WrongArgument("lake", f"has the rows of {source or 'another program'}, feed {feed or 'none'}", _RIGHT)
    if any(one.name == "_op" for one in table.schema().fields):
        raise WrongArgument("lake", "has the changes of the table, not its rows", _RIGHT)


def snapshot_at(table: IcebergTable, ts: int | None) -> LakeSnapshot | None:
    """The newest snapshot at or below `ts` (None: the newest of all) that has all rows. Snapshots of an unfinished
    first load do not count. Returns None if there is no such snapshot."""
    found = []
    for one in table.metadata.snapshots:
        summary: Mapping[str, str] = {} if one.summary is None else one.summary.additional_properties
        if _RESOLVED in summary and _LOADED not in summary:
            found.append(LakeSnapshot(one.snapshot_id, int(summary[_RESOLVED])))
    below = [one for one in found if ts is None or one.ts <= ts]
    return below[-1] if below else None


def rows_at(rows: pa.Table, pages: Sequence[DiffPage]) -> pa.Table | None:
    """Apply the net changes of these pages to the rows of a snapshot. Returns None if that is impossible, because the
    snapshot lacks a column, or because the type of one cannot hold a changed value."""
    import pyarrow as pa  # noqa: PLC0415

    keys = keys_of(pages)
    if not set(keys) <= set(rows.column_names):
        return None
    gone, come = [], []
    try:
        for page in pages:
            for batch in page.batches:
                old, new = batch.column("old_row"), batch.column("row")
                gone.append(_sides(old.filter(old.is_valid()), rows.select(keys).schema))
                come.append(_sides(new.filter(new.is_valid()), rows.schema))
    except pa.ArrowInvalid:
        return None
    if not gone:
        return rows
    kept = without(rows, pa.concat_tables(gone), keys)
    return pa.concat_tables([kept, *come])


def fitted(rows: pa.Table, schema: Any) -> pa.Table:
    """Convert rows of the server to the types of an Iceberg table with this schema. A column keeps its type if the
    Iceberg table has no column of its name, or if the type there cannot hold all values."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415

    wanted = {one.name: one.type for one in schema_to_pyarrow(schema, include_field_ids=False)}
    for place, name in enumerate(rows.column_names):
        if name in wanted:
            rows = rows.set_column(place, name, _fitted(rows.column(place), wanted[name]))
    return rows


def _fitted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        found = pa.chunked_array([_as(chunk, kind) for chunk in column.chunks], kind)
    except (pa.ArrowException, TypeError):
        return column
    lost = column.filter(pc.and_(column.is_valid(), found.is_null())).to_pylist()
    return found if all(_DAY.match(text) for text in lost) else column


def keys_of(pages: Sequence[DiffPage]) -> tuple[str, ...]:
    """The names of the key columns in net changes; empty if the pages have no changes."""
    return next((page.keys for page in pages if page.keys), ())


def without(rows: pa.Table, gone: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows whose key is not among those of `gone`, in their order. `keys`: the names of the key columns."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    place = "".join((*rows.column_names, "#"))  # no column has this name
    keyed = rows.select(keys).append_column(place, pa.array(range(rows.num_rows), pa.int64()))
    kept = keyed.join(gone, keys=list(keys), join_type="left anti").column(place)
    return rows.take(pc.take(kept, pc.array_sort_indices(kept.combine_chunks())))


def _sides(rows: pa.StructArray, schema: pa.Schema) -> pa.Table:
    """Convert the old or the new rows of changes to the types of `schema`. Raises ArrowInvalid, also if a column is
    missing."""
    import pyarrow as pa  # noqa: PLC0415

    there = {field.name for field in rows.type}
    if not set(schema.names) <= there:
        raise pa.ArrowInvalid("a column is missing")
    return pa.table([_as(rows.field(one.name), one.type) for one in schema], schema=schema)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.array(_parsed(values, json.loads), kind)
    if pa.types.is_date(kind):
        return pa.array(_parsed(values, date.fromisoformat), kind)
    if pa.types.is_timestamp(kind):
        return pa.array(_parsed(values, datetime.fromisoformat), pa.timestamp(kind.unit)).cast(kind)
    return values.cast(kind)


def _parsed(values: pa.Array, parse: Any) -> Iterable[Any]:
    """The values that texts stand for; a date that no calendar has is None, as in the Iceberg table."""
    for text in values.to_pylist():
        try:
            yield None if text is None else parse(text)
        except ValueError:
            yield None
