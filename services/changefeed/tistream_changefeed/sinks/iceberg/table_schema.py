"""The schemas of Iceberg tables, and how a DDL changes them. Pure.

A column is known by TiDB's id of it, never by its name: a column that is dropped and added again under the same name is
another field, and one that is renamed stays the same. `fields`, a property of the table, maps TiDB's ids to field ids.
TiDB gives a column another id if a change of its type rewrites the rows; the field stays if no value changes. Such a
column has the name of the earlier one, or the statement renames it (CHANGE COLUMN): so a column that a statement adds
is not taken for one that it drops.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pyiceberg import types as it
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from tistream.decode.cells.defaults import origin_default
from tistream.errors import CannotEncode
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion, fold
from tistream_changefeed.sinks.iceberg.field_types import has_times, iceberg_type, keeps_values, widens

Shape = Literal["table", "changes", "delta"]
"""The table itself, its changes, or the changes that wait until the table itself takes them."""
COMMIT_TIME, COMMIT_TS, START_TS, OP, SCHEMA_VERSION, OLD, RAW, DELETED = range(1, 9)
"""The ids of fields that are not columns of TiDB. The catalog gives the first one to the field of the partitions."""
_FIRST, _ELEMENT_FIRST = 1_000, 10_000_000
OLD_FIRST = 1_000_000  # a field of `_old` has the id of the row's field plus this
_META: dict[int, tuple[str, it.IcebergType]] = {
    COMMIT_TIME: ("_commit_time", it.TimestamptzType()),
    COMMIT_TS: ("_commit_ts", it.LongType()),
    START_TS: ("_start_ts", it.LongType()),
    OP: ("_op", it.StringType()),
    SCHEMA_VERSION: ("_schema_version", it.LongType()),
}
_RAW_NAME, _OLD_NAME, DELETED_NAME = "_raw", "_old", "_deleted"
_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|/\*.*?\*/|--[ \t][^\n]*|#[^\n]*", re.DOTALL)
_QUOTED = re.compile(r"`(?:[^`]|``)*`")
_CHANGE = re.compile(r"\bCHANGE\b", re.IGNORECASE)
_NAME = r"(`(?:[^`]|``)+`|[^\s`'\"(),;.]+)"
_CHANGES = re.compile(rf"\bCHANGE\s+(?:COLUMN\b\s*)?(?:IF\s+EXISTS\b\s*)?{_NAME}\s+{_NAME}(?=[\s(])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LakeSchema:
    """The schema of an Iceberg table. `fields` maps ids of TiDB's columns to field ids. `added`: the columns that the
    previous schema of the table did not have."""

    schema: Schema
    fields: Mapping[int, int]
    added: tuple[Column, ...] = field(default=(), compare=False)

    @property
    def text(self) -> str:
        """`fields` as JSON."""
        return json.dumps(self.fields, separators=(",", ":"))

    @property
    def filled(self) -> list[Column]:
        """Those of the added columns whose default is the value of existing rows, so that files must be rewritten."""
        return [column for column in self.added if origin_default(column) is not None]


EMPTY = LakeSchema(Schema(), {})


def parsed(schema: Schema, text: str) -> LakeSchema:
    """The LakeSchema of an existing table. `text`: what LakeSchema.text has returned for it."""
    return LakeSchema(schema, {int(column): int(found) for column, found in json.loads(text).items()})


def with_first_ids(lake: LakeSchema) -> LakeSchema:
    """The same schema, with `fields` also mapping the ids that the columns had when their fields were created, because
    TiDB may have given them other ids since."""
    return replace(lake, fields={**{found - _FIRST: found for found in lake.fields.values()}, **lake.fields})


def first_schema(shape: Shape) -> Schema:
    """The schema with which a table is created: only the field by which it is partitioned, or no field."""
    return Schema(_meta(COMMIT_TIME)) if shape == "changes" else Schema()


class TypeChanged(CannotEncode):
    """The type of a column has changed in a way that Iceberg does not support."""


def changes_type(now: LakeSchema, version: TableVersion, before: TableVersion | None, query: str | None = None) -> bool:
    """Whether a table itself cannot go on with the schema `now`, because a type has changed. Arguments as of
    `evolved`."""
    try:
        evolved(now, "table", version, before, query)
    except TypeChanged:
        return True
    except CannotEncode:
        return False
    return False


def evolved(
    now: LakeSchema,
    shape: Shape,
    version: TableVersion,
    before: TableVersion | None = None,
    query: str | None = None,
) -> LakeSchema:
    """The schema for the rows of a table version that follows the schema `now`. `before`: the version that a DDL has
    changed to `version`; None if it is not known. `query`: the statement of this DDL; None if it is not known. Raises
    CannotEncode for a change that Iceberg does not support."""
    columns = version.table.visible_columns
    rewritten = _rewritten(columns, before, query)
    fields = {column.id: _field_id(now, column, rewritten.get(column.id)) for column in columns}
    row = [_row_field(column, fields[column.id], 0) for column in columns]
    _check_names(columns, shape)
    _check_types(now, shape, columns, row, before, rewritten)
    meta: list[NestedField] = []
    if shape == "changes":
        old = [_row_field(column, fields[column.id], OLD_FIRST) for column in columns]
        meta = [*map(_meta, _META)]
        row.append(NestedField(OLD, _OLD_NAME, it.StructType(*old), required=False))
    if shape == "changes" or any(map(has_times, columns)):
        row.append(NestedField(RAW, _RAW_NAME, it.StringType(), required=False))
    if shape == "delta":
        row.append(NestedField(DELETED, DELETED_NAME, it.BooleanType(), required=False))
    schema = Schema(*meta, *row)
    there = _by_id(now.schema)
    added = tuple(column for column in columns if fields[column.id] not in there)
    return LakeSchema(schema, fields, added)


def _by_id(schema: Schema) -> dict[int, NestedField]:
    return {one.field_id: one for one in schema.fields}


def _meta(number: int) -> NestedField:
    return NestedField(number, *_META[number], required=False)


def _row_field(column: Column, field_id: int, first: int) -> NestedField:
    number = first + field_id
    kind = iceberg_type(column, _ELEMENT_FIRST + number)
    return NestedField(number, column.name, kind, required=False)


def _field_id(now: LakeSchema, column: Column, rewritten: Column | None) -> int:
    if column.id in now.fields:
        return now.fields[column.id]
    if rewritten is not None and rewritten.id in now.fields and keeps_values(rewritten, column):
        return now.fields[rewritten.id]
    return _FIRST + column.id


def _rewritten(columns: Sequence[Column], before: TableVersion | None, query: str | None) -> Mapping[int, Column]:
    """The columns of `before` that a DDL has replaced by others with new ids, whose rows have other values, by the new
    id. A column is replaced by the one with its name, or with the name that the statement gives it. If the statement
    cannot be read, the remaining ones are paired in the order of the table, if as many are gone as are new."""
    if before is None:
        return {}
    earlier = before.table.visible_columns
    known, ids = {one.id for one in earlier}, {one.id for one in columns}
    gone = [one for one in earlier if one.id not in ids]
    fresh = [one for one in columns if one.id not in known]
    renamed = _renamed(query)
    found: dict[int, Column] = {}
    for column in fresh:
        name = fold(column.name)
        names = {name, *(old for old, new in renamed or () if new == name)}
        names |= {new for old, new in renamed or () if old == name}  # of a job that is rolled back
        match = next((one for one in gone if fold(one.name) in names and one not in found.values()), None)
        if match is not None:
            found[column.id] = match
    rest = [one for one in gone if one not in found.values()], [one for one in fresh if one.id not in found]
    if renamed is None and len(rest[0]) == len(rest[1]):
        found |= {column.id: one for one, column in zip(*rest, strict=True)}
    return found


def _renamed(query: str | None) -> list[tuple[str, str]] | None:
    """The columns that a statement renames by CHANGE COLUMN: (folded name before, folded name after). None if that
    cannot be said."""
    if query is None:
        return None
    text = _TEXT.sub(" ", query)
    pairs = [(_plain(one[1]), _plain(one[2])) for one in _CHANGES.finditer(text)]
    return pairs if len(_CHANGE.findall(_QUOTED.sub("``", text))) == len(pairs) else None


def _plain(name: str) -> str:
    return fold(name[1:-1].replace("``", "`") if name.startswith("`") else name)


def _check_names(columns: Sequence[Column], shape: Shape) -> None:
    own = {_RAW_NAME, _OLD_NAME, *(name for name, _ in _META.values())} if shape == "changes" else {_RAW_NAME}
    if shape == "delta":
        own.add(DELETED_NAME)
    taken = next((column.name for column in columns if column.name.lower() in own), None)
    if taken is not None:
        raise CannotEncode(f"column {taken} has a name that the tables use themselves: leave the table out")


def _check_types(
    now: LakeSchema,
    shape: Shape,
    columns: Sequence[Column],
    row: Sequence[NestedField],
    before: TableVersion | None,
    rewritten: Mapping[int, Column],
) -> None:
    earlier = {} if before is None else {column.id: column for column in before.table.visible_columns}
    there = _by_id(now.schema)
    for column, wanted in zip(columns, row, strict=True):
        found = there.get(wanted.field_id)
        known = earlier.get(column.id)
        if column.id in rewritten and found is None and shape != "changes":
            known = rewritten[column.id]
        lost = shape != "changes" and known is not None and not keeps_values(known, column)
        if lost or (found is not None and not widens(found.field_type, wanted.field_type)):
            raise TypeChanged(
                f"the type of column {column.name} has changed, and its values in Iceberg with it: leave the table out "
                "by filter.rules"
            )
