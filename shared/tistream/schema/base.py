"""Shortens a schema history: the records up to a base_ts are replaced by the newest record of each database and table.
Pure.

A history that begins with the restated records and continues with the records above base_ts gives the same answers as
the whole history for every ts at or above base_ts, and the same events above base_ts.
"""

from __future__ import annotations

from collections.abc import Iterable

from tistream.schema.records import (
    BaseState,
    DatabaseChange,
    JobChange,
    Record,
    RestoredTables,
    TableChange,
    VersionChange,
)


def restated(records: Iterable[Record], base_ts: int, base: BaseState) -> tuple[Record, ...]:
    """Compute the records that replace `records` and lead to the same state at base_ts. `records` must be all records
    of the log up to base_ts, in order.

    The result has commit_ts = base_ts and start_ts 0, as a snapshot's records have: they form one transaction, without
    DDL jobs. It begins with `base` itself, which has what no other record of the result has: the states of jobs, the
    ids of tables that no longer exist, and the imports and restores. The highest schema version follows, then the
    newest record of each database and table that exists.
    """
    databases: dict[int, Record] = {}
    # The result is in the order of the newest records: if a table is in two databases, the later record has its newest
    # place.
    tables: dict[tuple[int, int], Record] = {}
    version = 0
    for record in records:
        assert record.commit_ts <= base_ts, f"a record at {record.commit_ts} is not older than the base at {base_ts}"
        change = record.change
        match change:
            case DatabaseChange():
                databases.pop(change.database_id, None)
                if change.info is not None:
                    databases[change.database_id] = record
            case TableChange():
                tables.pop((change.database_id, change.table_id), None)
                if change.text is not None:
                    tables[change.database_id, change.table_id] = record
            case VersionChange():
                version = max(version, change.version)
            case JobChange() | BaseState() | RestoredTables():
                pass
    changes = [base, VersionChange(version), *(found.change for found in (*databases.values(), *tables.values()))]
    return tuple(Record(base_ts, 0, change) for change in changes)
