"""Converts the columns of a table to the form in which the schema registry and the API return them. Pure."""

from __future__ import annotations

from tistream.schema.tidb.sql_type import sql_type
from tistream.schema.tidb.table import Table
from tistream.wire.schema import ColumnView


def column_views(table: Table) -> list[ColumnView]:
    """The columns that a row in an event has, in the order of the table's definition: virtual generated columns are
    left out. `key` marks the columns of an event's `key`."""
    key = {column.id for column in table.key_columns}
    return [
        ColumnView(
            id=column.id,
            name=column.name,
            sql_type=sql_type(column),
            charset=column.charset,
            collation=column.collate,
            nullable=not column.not_null,
            key=column.id in key,
        )
        for column in table.visible_columns
    ]
