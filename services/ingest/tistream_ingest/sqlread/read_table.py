"""Finds the tables that a backfill by SQL reads, and their physical ids, in the tenant's schema. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tistream.encode.table_encoding import TableEncoding, encoding_of
from tistream.schema.history import History
from tistream.schema.visible import TableVersion
from tistream_ingest.plan.requested_tables import requested_tables


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A physical table id, with the table and partition from which SQL reads its rows, and how the rows are encoded.
    partition: None for a whole table."""

    physical_id: int
    table_id: int
    database: str
    name: str
    partition: str | None
    encoding: TableEncoding

    @property
    def shown(self) -> str:
        return f"{self.database}.{self.name}"


def tables_to_read(history: History, ts: int, patterns: Sequence[str], *, new_collations: bool) -> list[ReadTable]:
    """Find the tables as of `ts` that match a pattern. Returns one ReadTable for each physical id, in ascending order.
    `new_collations`: whether the TiDB uses its new collations, which decides how keys are encoded. Raises
    InvalidRequest, Gone."""
    versions = [one for name in history.databases(ts) for one in history.visible_tables(ts, name)]
    names = {(one.database, one.table) for one in requested_tables(patterns, versions)}
    found = [
        table
        for version in versions
        if version.name in names
        for physical_id in version.head.physical_ids
        if (table := _read_table(version, physical_id, new_collations)) is not None
    ]
    return sorted(found, key=lambda one: one.physical_id)


def table_now(history: History, physical_id: int, ts: int, *, new_collations: bool) -> ReadTable | None:
    """The ReadTable of a physical id as of `ts`; None if no visible table has the id at that ts. `new_collations`: as
    in table_encoding.encoding_of."""
    version = history.table_at(physical_id, ts + 1)
    return None if version is None else _read_table(version, physical_id, new_collations)


def _read_table(version: TableVersion, physical_id: int, new_collations: bool) -> ReadTable | None:
    partition = None
    if version.head.partition_ids is not None:
        definitions = (version.stored.info().get("partition") or {}).get("definitions") or ()
        partition = next((one["name"]["O"] for one in definitions if one["id"] == physical_id), None)
        if partition is None:
            return None
    encoding = encoding_of(version.table, new_collations=new_collations)
    return ReadTable(physical_id, version.head.id, version.database, version.head.name, partition, encoding)
