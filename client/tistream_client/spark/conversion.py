"""Converts record batches of the API to the schema of a DataFrame. Pure, except for the look-up of older columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tistream_client.core.errors import SchemaChanged, WrongArgument
from tistream_client.core.lists import ColumnInfo, TableShape
from tistream_client.spark.column_types import Shape, types_of

_ZERO_DATE = r"^(0000|\d{4}-00|\d{4}-\d\d-00)"
_TIME = pa.timestamp("us", "UTC")
Match = dict[str, str | None]
"""For each wanted column the name that it has in a batch; None: it is not there."""


def matched(wanted: Sequence[ColumnInfo], there: TableShape, same_table: bool) -> Match:
    """Find the wanted columns in the table as it was: by id in the same table, else by a name that no other column has
    taken."""
    by_id = {column.id: column.name for column in there.columns} if same_table else {}
    found: Match = {column.name: by_id.get(column.id) for column in wanted}
    taken = set(found.values())
    for column in wanted:
        if found[column.name] is None and column.name not in taken:
            found[column.name] = next((one.name for one in there.columns if one.name == column.name), None)
    return found


class EventRows:
    """Converts batches of row events. `older` returns the table's columns as of a ts, None if there is no such table;
    it is called once for each other schema that the batches have."""

    def __init__(self, shape: Shape, older: Callable[[int], TableShape | None]) -> None:
        self._shape = shape
        self._older = older
        self._row = _fields(shape.columns, shape.zero_dates)
        self._key = _fields(shape.keys, shape.zero_dates)
        self._wanted = tuple(dict.fromkeys((*shape.columns, *shape.keys)))
        self._known: dict[str, Match] = {}
        self._at: Match | None = None
        row = pa.struct(self._row)
        self.schema = pa.schema(
            [
                pa.field("op", pa.string()),
                pa.field("commit_ts", pa.int64()),
                pa.field("commit_time", _TIME),
                pa.field("start_ts", pa.int64()),
                pa.field("schema_version", pa.int64()),
                pa.field("key", pa.struct(self._key)),
                pa.field("row", row),
                pa.field("old_row", row),
            ]
        )

    def batches(self, found: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a page, which have one schema. Raises SchemaChanged, WrongArgument."""
        for batch in found:
            if batch.num_rows:
                match = self._match(batch)
                arrays = [
                    batch.column("op").cast(pa.string()),
                    batch.column("commit_ts"),
                    batch.column("commit_time").cast(_TIME),
                    batch.column("start_ts"),
                    batch.column("schema_version"),
                    self._struct(batch.column("key"), self._key, match),
                    self._struct(batch.column("row"), self._row, match),
                    self._struct(batch.column("old_row"), self._row, match),
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def reads(self, found: Sequence[pa.RecordBatch], ts: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a page of the table's rows as of `ts`, as events whose op is `read`."""
        if self._at is None:
            self._at = self._matched_at(self._older(ts))
        for batch in found:
            if batch.num_rows:
                rows, commit_ts = batch.num_rows, batch.column("commit_ts")
                ms = pc.shift_right(commit_ts, pa.scalar(18, pa.int64())).view(pa.timestamp("ms", "UTC"))
                arrays = [
                    pa.repeat(pa.scalar("read"), rows),
                    commit_ts,
                    ms.cast(_TIME),
                    pa.nulls(rows, pa.int64()),
                    batch.column("schema_version"),
                    self._struct(batch.column("key"), self._key, self._at),
                    self._struct(batch.column("row"), self._row, self._at),
                    pa.nulls(rows, pa.struct(self._row)),
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _matched_at(self, there: TableShape | None) -> Match:
        table = self._shape.table
        there = there or table
        return matched(self._wanted, there, there.table_id == table.table_id)

    def _match(self, batch: pa.RecordBatch) -> Match:
        there = [(field.name, _tidb_type(field)) for field in batch.schema.field("row").type]
        table_id = int((batch.schema.metadata or {}).get(b"tistream.table_id", b"-1"))
        known = self._known.get(key := f"{table_id} {there}")
        if known is not None:
            return known
        table = self._shape.table
        if table_id == table.table_id and there == [(one.name, one.sql_type) for one in table.columns]:
            found: Match = {column.name: column.name for column in self._wanted}
        else:
            found = self._match_older(batch, [name for name, _ in there], table_id)
        self._known[key] = found
        return found

    def _match_older(self, batch: pa.RecordBatch, there: Sequence[str], table_id: int) -> Match:
        """Find the columns in rows of another schema. A row is in the schema in force before its commit_ts."""
        table, first_ts = self._shape.table, batch.column("commit_ts")[0].as_py()
        named = TableShape(0, table_id, "table", 0, tuple(ColumnInfo(-1, name, "", key=False) for name in there))
        older = self._older(first_ts - 1)
        if older is None or [one.name for one in older.columns] != list(there):
            older = named
        found = matched(self._wanted, older, older.table_id == table.table_id)
        version = batch.column("schema_version")[0].as_py()
        if self._shape.open_ended and version > table.schema_version:
            new = sorted(set(there) - set(matched(table.columns, older, older.table_id == table.table_id).values()))
            if new:
                raise SchemaChanged(
                    f"the table has the column {new[0]!r} since before commit_ts {first_ts}, and this stream began "
                    f"before it was added. Start the query again with the same checkpoint to have the column, or name "
                    f'the columns that you want: .option("columns", "{",".join(one.name for one in table.columns)}")'
                )
        return found

    def _struct(self, array: pa.StructArray, fields: Sequence[pa.Field], match: Match) -> pa.StructArray:
        """The wanted members of a struct. `flatten` makes them null where the struct is."""
        if array.null_count == len(array):
            return pa.nulls(len(array), pa.struct(list(fields)))
        there = dict(zip([field.name for field in array.type], array.flatten(), strict=True))
        children = [self._child(field, there, match.get(field.name), len(array)) for field in fields]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(fields), mask=mask)

    def _child(self, field: pa.Field, there: dict[str, pa.Array], name: str | None, rows: int) -> pa.Array:
        if name is None or name not in there:
            return pa.nulls(rows, field.type)
        return converted(field.name, there[name], field.type, self._shape.zero_dates)


class TableRows:
    """Converts batches of a table's rows, all of the schema of `shape`."""

    def __init__(self, shape: Shape) -> None:
        self._zero_dates = shape.zero_dates
        self.schema = pa.schema(_fields(shape.columns, shape.zero_dates))

    def batches(self, found: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a page. Raises WrongArgument."""
        for batch in found:
            if batch.num_rows:
                arrays = [
                    converted(field.name, batch.column(field.name), field.type, self._zero_dates)
                    for field in self.schema
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def converted(name: str, array: pa.Array, to: pa.DataType, zero_dates: str) -> pa.Array:
    """The values of a column as another type. Raises WrongArgument for dates that Spark does not have, and
    SchemaChanged for values that the type cannot hold."""
    if array.type.equals(to):
        return array
    temporal = pa.types.is_temporal(to) and pa.types.is_large_string(array.type)
    if temporal and zero_dates == "null":
        zero = pc.match_substring_regex(array, _ZERO_DATE)
        array = pc.if_else(zero, pa.scalar(None, array.type), array)
    try:
        if pa.types.is_timestamp(to) and to.tz is not None:
            return array.cast(pa.timestamp("us")).cast(to)
        return array.cast(to)
    except pa.ArrowException as error:
        if temporal:
            raise WrongArgument(
                "zeroDates",
                f'is "{zero_dates}", and column {name!r} has a date that Spark does not have ({error})',
                '.option("zeroDates", "null"), or "text", which reads all dates as strings',
            ) from None
        raise SchemaChanged(
            f"a value of column {name!r} does not fit {to}, the column's type in this DataFrame: {error}. Read the "
            "parts before and after the column's change by startingTs and endingTs, or start a stream again"
        ) from None


def _fields(columns: Sequence[ColumnInfo], zero_dates: str) -> list[pa.Field]:
    return [pa.field(column.name, types_of(column.sql_type, zero_dates)[1]) for column in columns]


def _tidb_type(field: pa.Field) -> str:
    return str((field.metadata or {}).get(b"tidb.type", b""), "utf-8")
