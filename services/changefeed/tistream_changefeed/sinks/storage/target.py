"""The address and the format of the files that a feed writes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.schema.visible import TableVersion
from tistream_changefeed.sinks.storage.formats import FileFormat
from tistream_changefeed.sinks.storage.paths import Layout
from tistream_changefeed.sinks.storage.schema_file import Definition, definition


@dataclass(frozen=True, slots=True)
class StorageTarget:
    """The files of a feed. `url` is their root, without options and secrets. `column_ids`: schema files have the ids of
    columns (`output-column-id`)."""

    url: str
    format: FileFormat
    layout: Layout
    flush_interval_ms: int
    file_bytes: int
    column_ids: bool = False

    def definition(self, table: TableVersion) -> Definition:
        """The definition of a table in its schema files."""
        return definition(table, column_ids=self.column_ids)
