"""Parses `schema_snap`, the tenant's schema as of its snapshot_ts (design.md 2). The result is the first records of the
tenant's schema history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tistream.errors import CorruptObject
from tistream.schema.records import DatabaseChange, Record, TableChange, TableText
from tistream.schema.tidb.limits import check_info
from tistream.schema.tidb.meta_change import check_database
from tistream.schema.tidb.snapshot_cuts import cut_up

_TABLE_BYTES_MAX = 80 << 20  # far above TiDB's limits, so that the errors of limits.py name the limit exceeded
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError)
_Table = tuple[int, TableText] | str  # its id and text, or the reason why it is invalid


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A parsed `schema_snap`: the databases and tables of a tenant as of snapshot_ts, as records of its schema history.
    Every record has commit_ts = snapshot_ts, and start_ts 0 because no transaction is known. The record of a database
    comes before those of its tables."""

    snapshot_ts: int
    records: tuple[Record, ...]


def parse_snapshot(key: str, data: bytes | Iterable[bytes]) -> Snapshot:
    """Parse the bytes of a `schema_snap`, given whole or in pieces. For each table, only the compressed text stays in
    memory. Raises CorruptObject with `key` and the reason."""
    tables: list[_Table] = []
    pieces = (data,) if isinstance(data, bytes) else data
    snapshot_ts, databases = cut_up(key, pieces, lambda info: tables.append(_table(info)), _TABLE_BYTES_MAX)
    records: list[Record] = []
    for index, entry in enumerate(databases):
        records += _database(key, index, entry, snapshot_ts, tables)
    return Snapshot(snapshot_ts, tuple(records))


def _table(info: Any) -> _Table:
    try:
        check_info(info)
        return info["id"], TableText.pack(orjson.dumps(info))
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
            table = tables[numbered[""]]  # the cutter has replaced every table by {"": number}
            if isinstance(table, str):
                raise CorruptObject(key, f"schema_snap, {where}: {table}")
            records.append(Record(snapshot_ts, 0, TableChange(info["id"], *table)))
    except _MALFORMED as error:
        raise CorruptObject(key, f"schema_snap, {where}: {type(error).__name__}: {error}") from error
    return records
