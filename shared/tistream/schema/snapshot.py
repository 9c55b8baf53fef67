"""`schema_snap`: the schema as of a tenant's snapshot_ts (design.md 2), as the first records of its history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tistream.errors import CorruptObject
from tistream.model.ts import MAX_TS
from tistream.schema.limits import check_info
from tistream.schema.meta_change import check_database
from tistream.schema.records import DatabaseChange, Record, TableChange, TableText
from tistream.schema.snapshot_cuts import AT_ONCE, Cutter

VERSION = 1
_TABLE_BYTES_MAX = 80 << 20  # so that what is far beyond TiDB's own limits is told by their names
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError)
_Table = tuple[int, TableText] | str  # its id and text, or why it is none


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A parsed schema_snap. `records` all have commit_ts = snapshot_ts and start_ts 0, databases before tables."""

    snapshot_ts: int
    records: tuple[Record, ...]


def parse_snapshot(key: str, data: bytes | Iterable[bytes]) -> Snapshot:
    """Parse the object's bytes, whole or piece by piece: of each table only the packed text is held. Raises
    CorruptObject naming `key` and what is wrong."""
    try:
        tables, rest = _taken_apart((data,) if isinstance(data, bytes) else data)
        content = orjson.loads(rest)
    except orjson.JSONDecodeError as error:
        raise CorruptObject(key, f"schema_snap is no JSON: {error}") from error
    except ValueError as error:
        raise CorruptObject(key, str(error)) from error
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
        records += _database(key, index, entry, snapshot_ts, tables)
    return Snapshot(snapshot_ts, tuple(records))


def _taken_apart(pieces: Iterable[bytes]) -> tuple[list[_Table], bytes]:
    """What the cutter's parts are as tables, and the rest. Raises ValueError."""
    cutter, tables = Cutter(_TABLE_BYTES_MAX), list[_Table]()
    for piece in pieces:
        for at in range(0, len(piece), AT_ONCE):
            tables += map(_table, cutter.feed(piece[at : at + AT_ONCE]))
    return tables, cutter.end()


def _table(part: bytes) -> _Table:
    table = orjson.loads(part)
    try:
        check_info(table)
        return table["id"], TableText.pack(orjson.dumps(table))
    except _MALFORMED as error:
        return f"{type(error).__name__}: {error}"


def _database(key: str, index: int, entry: Any, snapshot_ts: int, tables: Sequence[_Table]) -> list[Record]:
    where = f"databases[{index}]"
    try:
        info = entry["db_info"]
        check_database(info)
        where = f"database {info['db_name']['O']!r}"
        records = [Record(snapshot_ts, 0, DatabaseChange(info["id"], info))]
        for place, numbered in enumerate(entry.get("tables") or ()):
            where = f"database {info['db_name']['O']!r}, tables[{place}]"
            table = tables[numbered[""]]  # every object there is one of the cutter's
            if isinstance(table, str):
                raise CorruptObject(key, f"schema_snap, {where}: {table}")
            records.append(Record(snapshot_ts, 0, TableChange(info["id"], *table)))
    except _MALFORMED as error:
        raise CorruptObject(key, f"schema_snap, {where}: {type(error).__name__}: {error}") from error
    return records
