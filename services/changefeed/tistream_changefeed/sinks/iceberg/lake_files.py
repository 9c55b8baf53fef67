"""The files of Iceberg tables: writes and reads Parquet files, and deletes those that no snapshot names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import (
    ArrowScan,
    PyArrowFileIO,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from tistream_changefeed.sinks.iceberg.key_ranges import KeyRange
from tistream_changefeed.sinks.iceberg.lake_rows import arrow_schema
from tistream_changefeed.sinks.iceberg.upkeep import LOCATION, orphans

_GROUP_ROWS = 1 << 17


def write_file(table: Table, schema: Schema, rows: pa.Table, name: str, hour: int | None) -> DataFile:
    """Write rows into a new data file, which belongs to the table only once a commit adds it. `schema`: the schema of
    the rows. `name` must be unique. `hour`: the partition, in hours since 1970; None if the table has no partitions."""
    shown = sanitize_column_names(schema)
    path = f"{table.location()}/data/{name}.parquet"
    file = pa.BufferOutputStream()
    with pq.ParquetWriter(file, arrow_schema(shown), compression="zstd", compression_level=1) as writer:
        writer.write_table(
            rows.rename_columns([one.name for one in shown.fields]).cast(arrow_schema(shown)), _GROUP_ROWS
        )
    content = file.getvalue()
    with table.io.new_output(path).create(overwrite=False) as output:
        output.write(content)
    statistics = data_file_statistics_from_parquet_metadata(
        pq.read_metadata(pa.BufferReader(content)),
        compute_statistics_plan(shown, table.properties),
        parquet_path_to_id_mapping(shown),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record() if hour is None else Record(hour),
        file_size_in_bytes=content.size,
        sort_order_id=None,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def read_file(table: Table, schema: Schema, file: DataFile) -> pa.Table:
    """Read the rows of a data file in the columns of `schema`, which are found by field id."""
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    return scan.to_table([FileScanTask(file)]).cast(arrow_schema(schema))


def key_range(schema: Schema, file: DataFile, field_id: int) -> KeyRange:
    """The bounds of the column with this field id, from the statistics of a data file; None for a bound that they do
    not have."""
    kind = next((one.field_type for one in schema.fields if one.field_id == field_id), None)
    if not isinstance(kind, PrimitiveType):
        return KeyRange(None, None)

    def bound(found: Mapping[int, bytes] | None) -> object:
        value = None if found is None else found.get(field_id)
        return None if value is None else from_bytes(kind, value)

    return KeyRange(bound(file.lower_bounds), bound(file.upper_bounds))


def named_files(table: Table) -> set[str]:
    """The paths of all files that the table's metadata names."""
    metadata = table.metadata
    found = {table.metadata_location, *(one.metadata_file for one in metadata.metadata_log)}
    manifests = {}
    for snapshot in metadata.snapshots:
        found.add(snapshot.manifest_list)
        manifests.update({one.manifest_path: one for one in snapshot.manifests(table.io)})
    found |= manifests.keys()
    for one in manifests.values():
        found |= {entry.data_file.file_path for entry in one.fetch_manifest_entry(table.io, discard_deleted=True)}
    return found


def sweep(table: Table, now_ms: int) -> Sequence[str]:
    """Delete the files below a table's location that no snapshot names and that are older than a day. Returns their
    paths. Nothing is deleted if the catalog chose a location itself, because other tables may have files there.
    `now_ms`: Unix time."""
    io = table.io
    if not isinstance(io, PyArrowFileIO) or table.properties.get(LOCATION) != table.location():
        return ()
    scheme, netloc, path = PyArrowFileIO.parse_location(table.location(), io.properties)
    system = io.fs_by_scheme(scheme, netloc)
    infos = system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    files = {one.path: one.mtime_ns // 1_000_000 for one in infos if one.type is fs.FileType.File}
    named = {PyArrowFileIO.parse_location(one, io.properties)[2] for one in named_files(table)}
    gone = list(orphans(files, named, now_ms))
    for one in gone:
        system.delete_file(one)
    return gone
