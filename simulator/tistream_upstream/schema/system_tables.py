"""Makes rows of the `mysql` tables that DDL jobs write, and the `schema_snap` of a tenant. Pure.

The rows of these tables have row format v1 (upstream-formats 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from tistream.schema.tidb import table as types
from tistream_upstream.schema import codec
from tistream_upstream.schema.catalog import Database, Table
from tistream_upstream.schema.columns import BIGINT_TYPE, INT_TYPE, FieldType
from tistream_upstream.schema.table_info import database_info, system_table

_TOP = 0x0000FFFFFFFFFFFF
DDL_JOB, DDL_HISTORY, MDL_INFO = _TOP - 1, _TOP - 3, _TOP - 4
MYSQL, SYS, TEST = 1, 2, 3

_TEXT = FieldType(types.MEDIUMBLOB, 0, 16777215, 0, "utf8mb4")
_LONGBLOB = FieldType(types.LONGBLOB, 128, 4294967295)
_NAME = FieldType(types.STRING, 0, 64, 0, "utf8mb4")
_TIME = FieldType(types.DATETIME, 128, 19)
_VARCHAR = FieldType(types.VARCHAR, 0, 64, 0, "utf8mb4")

_TABLES = (
    (
        DDL_JOB,
        "tidb_ddl_job",
        (
            ("job_id", BIGINT_TYPE),
            ("reorg", INT_TYPE),
            ("schema_ids", _TEXT),
            ("table_ids", _TEXT),
            ("job_meta", _LONGBLOB),
            ("type", INT_TYPE),
            ("processing", INT_TYPE),
        ),
    ),
    (
        DDL_HISTORY,
        "tidb_ddl_history",
        (
            ("job_id", BIGINT_TYPE),
            ("job_meta", _LONGBLOB),
            ("db_name", _NAME),
            ("table_name", _NAME),
            ("schema_ids", _TEXT),
            ("table_ids", _TEXT),
            ("create_time", _TIME),
        ),
    ),
    (
        MDL_INFO,
        "tidb_mdl_info",
        (("job_id", BIGINT_TYPE), ("version", BIGINT_TYPE), ("table_ids", _TEXT), ("owner_id", _VARCHAR)),
    ),
)


def _ids(ids: Iterable[int]) -> bytes:
    return ",".join(map(str, ids)).encode() or b"0"


def ddl_job(text: bytes, schema_id: int, table_ids: Sequence[int], action: int) -> bytes:
    """Make the value of a row of `tidb_ddl_job`. `text` is the job as JSON, and `action` TiDB's number of its type."""
    return codec.row_v1([(2, 0), (3, b"%d" % schema_id), (4, _ids(table_ids)), (5, text), (6, action), (7, 0)])


def mdl_info(job_id: int, version: int, table_ids: Sequence[int]) -> tuple[bytes, bytes]:
    """Make the key and the value of a row of `tidb_mdl_info` (TiDB's metadata locks)."""
    value = codec.row_v1([(2, version), (3, _ids(table_ids)), (4, b"simulated-owner")])
    return codec.record_key(MDL_INFO, job_id), value


def mdl_gone(job_id: int) -> tuple[bytes, None]:
    """Make the deletion of a row of `tidb_mdl_info` (TiDB's metadata locks): its key, and None in place of a value."""
    return codec.record_key(MDL_INFO, job_id), None


def history(job_id: int, text: bytes, database: str, table: str, table_ids: Sequence[int]) -> tuple[bytes, bytes]:
    """Make the key and the value of a row of `tidb_ddl_history`."""
    cells = [(2, text), (3, database.encode()), (4, table.encode()), (5, b""), (6, _ids(table_ids)), (7, None)]
    return codec.record_key(DDL_HISTORY, job_id), codec.row_v1(cells)


def schema_snap(snapshot_ts: int, databases: Sequence[Database], tables: Sequence[Table]) -> bytes:
    """Encode the `schema_snap` object (design.md 2): the system schemas, and the given databases and tables."""
    out: list[dict[str, Any]] = [
        {"db_info": database_info(MYSQL, "mysql"), "tables": [system_table(*table) for table in _TABLES]},
        {"db_info": database_info(SYS, "sys"), "tables": []},
        {"db_info": database_info(TEST, "test"), "tables": []},
    ]
    for database in databases:
        own = [table.info() for table in tables if table.database_id == database.id]
        out.append({"db_info": database_info(database.id, database.name), "tables": own})
    return orjson.dumps({"version": 1, "snapshot_ts": snapshot_ts, "databases": out})
