"""Converts the schema history at one ts to the answer of the schema route. Pure."""

from __future__ import annotations

from tistream.schema.history import History
from tistream.schema.visible import TableVersion, fold
from tistream.wire.schema import DatabaseView, SchemaView, TableView
from tistream.wire.schema_views import column_views


def schema_view(history: History, ts: int) -> SchemaView:
    """The databases that exist at `ts`, and their tables, views and sequences, sorted by name."""
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
        columns=column_views(table),
    )
