"""`schema_snap`: the schema as of a tenant's snapshot_ts (design.md 2), as the first records of its history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from tistream.errors import CorruptObject
from tistream.model.ts import MAX_TS
from tistream.schema.meta_change import check_database
from tistream.schema.records import DatabaseChange, Record, TableChange, TableText
from tistream.schema.table import check_info

VERSION = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A parsed schema_snap. `records` all have commit_ts = snapshot_ts and start_ts 0, databases before tables."""

    snapshot_ts: int
    records: tuple[Record, ...]


def parse_snapshot(key: str, data: bytes) -> Snapshot:
    """Parse the object's bytes. Raises CorruptObject naming `key` and what is wrong."""
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CorruptObject(key, f"schema_snap is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise CorruptObject(key, "schema_snap is no JSON object")
    version = content.get("version")
    if version != VERSION or isinstance(version, bool):
        raise CorruptObject(key, f"schema_snap version {version!r}; this program knows {VERSION}")
    snapshot_ts = content.get("snapshot_ts")
    if not isinstance(snapshot_ts, int) or isinstance(snapshot_ts, bool) or not 0 < snapshot_ts <= MAX_TS:
        raise CorruptObject(key, f"schema_snap has snapshot_ts {str(snapshot_ts)[:40]!r}")
    databases = content.get("databases")
    if not isinstance(databases, list):
        raise CorruptObject(key, "schema_snap has no list of databases")
    records: list[Record] = []
    for index, entry in enumerate(databases):
        records += _database(key, index, entry, snapshot_ts)
    return Snapshot(snapshot_ts, tuple(records))


def _database(key: str, index: int, entry: Any, snapshot_ts: int) -> list[Record]:
    where = f"databases[{index}]"
    try:
        info = entry["db_info"]
        check_database(info)
        where = f"database {info['db_name']['O']!r}"
        records = [Record(snapshot_ts, 0, DatabaseChange(info["id"], info))]
        for place, table in enumerate(entry.get("tables") or ()):
            where = f"database {info['db_name']['O']!r}, tables[{place}]"
            check_info(table)
            text = TableText.pack(orjson.dumps(table))
            records.append(Record(snapshot_ts, 0, TableChange(info["id"], table["id"], text)))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CorruptObject(key, f"schema_snap, {where}: {type(error).__name__}: {error}") from error
    return records
