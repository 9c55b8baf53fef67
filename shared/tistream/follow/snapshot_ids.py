"""Reads the highest id that a tenant's tables had at its snapshot, from `schema_snap`, the object with the tenant's
schema at that time. A table with an id up to it may have rows from before TiStream's log of changes began."""

from __future__ import annotations

from collections.abc import Iterable

from tistream.errors import CorruptObject, NotFoundYet
from tistream.model.ids import TenantKey
from tistream.schema.records import DatabaseChange, Record, TableChange
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.schema.visible import SYSTEM_SCHEMAS, fold, named_ids
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore


class SnapshotIds:
    """The table ids of a tenant's `schema_snap`, which is read at the first use. Thread-safe: at worst it is read
    twice."""

    def __init__(self, objects: ObjectStore, tenant: TenantKey) -> None:
        self._objects, self._tenant = objects, tenant
        self._highest: int | None = None

    def highest(self) -> int | None:
        """The highest id that a table or partition outside of the system schemas had at the snapshot; 0 if there was no
        table. None if the object is gone or damaged. Raises Unavailable."""
        if self._highest is None:
            key = layout.schema_snap(self._tenant)
            try:
                self._highest = highest_id(parse_snapshot(key, self._objects.get(key)).records)
            except (NotFoundYet, CorruptObject):
                return None
        return self._highest


def highest_id(records: Iterable[Record]) -> int:
    """The highest id of a table or partition outside of the system schemas in these records of a snapshot; 0 if there
    is no table."""
    system: set[int] = set()
    highest = 0
    for record in records:
        change = record.change
        if isinstance(change, DatabaseChange) and change.info is not None:
            if fold(change.info["db_name"]["O"]) in SYSTEM_SCHEMAS:
                system.add(change.database_id)
        elif isinstance(change, TableChange) and change.text is not None and change.database_id not in system:
            highest = max(highest, *named_ids(change.text.info()))
    return highest
