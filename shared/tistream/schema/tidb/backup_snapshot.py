"""Encodes `schema_snap` (design.md 2) from the schemas of a BR full backup. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from tistream.errors import CorruptObject
from tistream.schema.tidb.limits import check_info
from tistream.schema.tidb.meta_change import check_database

# BR renames the system schemas in a backup, so that a restore does not overwrite them (br/pkg/utils/misc.go).
TEMPORARY = "__TiDB_BR_Temporary_"
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError)


def schema_snap(key: str, end_version: int, schemas: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes of `schema_snap` as of `end_version`. `key` names the backup in errors.

    `schemas` are pairs of JSON texts (DBInfo, TableInfo); the second is empty for a database without tables. In the
    result, databases are in order of their ids, and so are the tables of each. The TableInfo texts are copied as TiDB
    wrote them. BR stores a system schema under a temporary name; the result has the real one. Raises CorruptObject if a
    DBInfo or TableInfo is malformed, or a table occurs twice.
    """
    databases: dict[int, bytes] = {}
    tables: dict[int, dict[int, bytes]] = {}
    for database, table in schemas:
        database_id, text = _database(key, database)
        databases.setdefault(database_id, text)
        below = tables.setdefault(database_id, {})
        if not table:
            continue
        table_id = _table_id(key, database_id, table)
        if table_id in below:
            raise CorruptObject(key, f"names table {table_id} of database {database_id} twice")
        below[table_id] = table
    entries = []
    for database_id, text in sorted(databases.items()):
        listed = b",".join(info for _, info in sorted(tables[database_id].items()))
        entries.append(b'{"db_info":%b,"tables":[%b]}' % (text, listed))
    return b'{"version":1,"snapshot_ts":%d,"databases":[%b]}' % (end_version, b",".join(entries))


def _database(key: str, text: bytes) -> tuple[int, bytes]:
    try:
        info = orjson.loads(text)
        check_database(info)
        name: str = info["db_name"]["O"]
        if not name.startswith(TEMPORARY):
            return info["id"], text
        own = name.removeprefix(TEMPORARY)
        return info["id"], orjson.dumps(info | {"db_name": {"O": own, "L": own.lower()}})
    except _MALFORMED as error:
        raise CorruptObject(key, f"has a malformed DBInfo: {type(error).__name__}: {error}") from error


def _table_id(key: str, database_id: int, text: bytes) -> int:
    try:
        info = orjson.loads(text)
        check_info(info)
        return int(info["id"])
    except _MALFORMED as error:
        where = f"database {database_id} has a malformed TableInfo"
        raise CorruptObject(key, f"{where}: {type(error).__name__}: {error}") from error
