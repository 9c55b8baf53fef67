"""What a history needs of all that came before a base_ts: the newest state of each thing. Pure.

A history that begins with the restated records and goes on with those above base_ts answers every question about a
time at or above base_ts as the whole one does, and makes the same events of what follows.
"""

from __future__ import annotations

from collections.abc import Iterable

from tistream.schema.records import Base, DatabaseChange, JobChange, Record, TableChange, VersionChange


def restated(records: Iterable[Record], base_ts: int, base: Base) -> tuple[Record, ...]:
    """Records that say at base_ts what those up to it have come to. `records` begin where the log does, in order.

    All have commit_ts = base_ts and start_ts 0, as those of a snapshot: one transaction, in which no job is. What jobs
    had come to is in `base`; so are ids that tables had which are not there any more.
    """
    databases: dict[int, Record] = {}
    tables: dict[tuple[int, int], Record] = {}  # in the order of their newest records: it says which place is newest
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
            case JobChange() | Base():
                pass
    changes = [base, VersionChange(version), *(found.change for found in (*databases.values(), *tables.values()))]
    return tuple(Record(base_ts, 0, change) for change in changes)
