"""A history at one ts as the wire shows it. Pure."""

from __future__ import annotations

from tistream.schema.history import History
from tistream.schema.sql_type import sql_type
from tistream.schema.table import Table
from tistream.schema.visible import TableVersion, fold
from tistream.wire.schema import ColumnView, DatabaseView, SchemaView, TableView


def schema_view(history: History, ts: int) -> SchemaView:
    """Everything visible at `ts`, sorted by name."""
    databases = [
        DatabaseView(
            name=name,
            tables=[
                _table(version)
                for version in sorted(history.visible_tables(ts, name), key=lambda version: fold(version.head.name))
            ],
        )
        for name in history.databases(ts)
    ]
    return SchemaView(ts=str(ts), schema_version=str(history.schema_version_at(ts)), databases=databases)


def _table(version: TableVersion) -> TableView:
    table = version.table
    return TableView(
        table_id=str(table.id),
        name=table.name,
        kind=table.kind,
        physical_ids=[str(physical_id) for physical_id in table.physical_ids],
        columns=_columns(table),
    )


def _columns(table: Table) -> list[ColumnView]:
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
