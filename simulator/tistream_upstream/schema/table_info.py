"""Makes TiDB's JSON objects: TableInfo, ColumnInfo, IndexInfo, DBInfo and SchemaDiff (upstream-formats 5). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tistream_upstream.schema.columns import BIGINT_TYPE, FieldType
from tistream_upstream.schema.layout import COMMON_HANDLE, INT_HANDLE, PUBLIC, Column, IndexSpec

_NOT_NULL, _PRIMARY, _NO_DEFAULT = 1, 2, 4096
Json = dict[str, Any]


def name(text: str) -> Json:
    """Make the JSON of a name, which compares case-insensitively: the original and the lower-case text."""
    return {"O": text, "L": text.lower()}


def database_info(database_id: int, text: str, state: int = PUBLIC) -> Json:
    """Make the DBInfo of a database."""
    charset = {"charset": "utf8mb4", "collate": "utf8mb4_bin", "Deprecated": {}}
    return {"id": database_id, "db_name": name(text), **charset, "state": state, "policy_ref_info": None}


def column_info(
    column_id: int,
    text: str,
    offset: int,
    field: Json,
    state: int = PUBLIC,
    default: str | None = None,
) -> Json:
    """Make a ColumnInfo. `default` is both the origin default and the default."""
    return {
        "id": column_id,
        "name": name(text),
        "offset": offset,
        "origin_default": default,
        "origin_default_bit": None,
        "default": default,
        "default_bit": None,
        "default_is_expr": False,
        "generated_expr_string": "",
        "generated_stored": False,
        "dependences": None,
        "type": field,
        "state": state,
        "comment": "",
        "hidden": False,
        "change_state_info": None,
        "version": 2,
    }


def of_column(column: Column, offset: int) -> Json:
    """Make the ColumnInfo of a simulated column."""
    field = column.kind.type.to_json(not_null=column.not_null)
    if column.primary:
        field["Flag"] |= _NOT_NULL | _PRIMARY | _NO_DEFAULT
    elif column.not_null and column.default_text is None:
        field["Flag"] |= _NO_DEFAULT
    return column_info(column.id, column.name, offset, field, column.state, column.default_text)


def index_info(index_id: int, text: str, parts: Sequence[tuple[str, int]], *, primary: bool = False) -> Json:
    """Make an IndexInfo over whole columns, each given as (name, offset)."""
    return {
        "id": index_id,
        "idx_name": name(text),
        "tbl_name": name(""),
        "idx_cols": [{"name": name(column), "offset": offset, "length": -1} for column, offset in parts],
        "state": PUBLIC,
        "backfill_state": 0,
        "comment": "",
        "index_type": 1,
        "is_unique": primary,
        "is_primary": primary,
        "is_invisible": False,
        "is_global": False,
        "mv_index": False,
        "vector_index": None,
        "inverted_index": None,
        "full_text_index": None,
        "condition_expr_string": "",
    }


def table_info(
    table_id: int,
    text: str,
    columns: Sequence[Json],
    indexes: Sequence[Json],
    *,
    handle: str,
    state: int = PUBLIC,
    update_ts: int = 0,
    revision: int = 0,
    max_column_id: int = 0,
) -> Json:
    """Make the TableInfo of a table that has no partitions, and is not a view or sequence."""
    common = handle == COMMON_HANDLE
    return {
        "id": table_id,
        "name": name(text),
        "charset": "utf8mb4",
        "collate": "utf8mb4_bin",
        "cols": list(columns),
        "index_info": list(indexes) or None,
        "constraint_info": None,
        "fk_info": None,
        "state": state,
        "pk_is_handle": handle == INT_HANDLE,
        "is_common_handle": common,
        "common_handle_version": int(common),
        "comment": "",
        "auto_inc_id": 0,
        "auto_id_cache": 0,
        "auto_rand_id": 0,
        "max_col_id": max_column_id or max(column["id"] for column in columns),
        "max_idx_id": max((index["id"] for index in indexes), default=0),
        "max_fk_id": 0,
        "max_cst_id": 0,
        "update_timestamp": update_ts,
        "ShardRowIDBits": 0,
        "max_shard_row_id_bits": 0,
        "auto_random_bits": 0,
        "auto_random_range_bits": 0,
        "pre_split_regions": 0,
        "partition": None,
        "compression": "",
        "view": None,
        "sequence": None,
        "Lock": None,
        "version": 5,
        "tiflash_replica": None,
        "is_columnar": False,
        "temp_table_type": 0,
        "cache_table_status": 0,
        "policy_ref_info": None,
        "stats_options": None,
        "exchange_partition_info": None,
        "ttl_info": None,
        "revision": revision,
    }


def of_columns(columns: Sequence[Column], index: IndexSpec | None, handle: str) -> tuple[list[Json], list[Json]]:
    """Make the members `cols` and `index_info` of a simulated table's TableInfo."""
    cols = [of_column(column, at) for at, column in enumerate(columns)]
    indexes = []
    if handle == COMMON_HANDLE:
        parts = [(column.name, at) for at, column in enumerate(columns) if column.primary]
        indexes.append(index_info(1, "PRIMARY", parts, primary=True))
    if index is not None:
        parts = [(column.name, at) for at, column in enumerate(columns) if column.id == index.column_id]
        indexes.append(index_info(index.id, index.name, parts))
    return cols, indexes


def schema_diff(version: int, action: int, schema_id: int, table_id: int, **more: Any) -> Json:
    """Make a SchemaDiff. `more` may have old_table_id and old_schema_id."""
    return {
        "version": version,
        "type": action,
        "schema_id": schema_id,
        "table_id": table_id,
        "old_table_id": more.get("old_table_id", 0),
        "old_schema_id": more.get("old_schema_id", 0),
        "regenerate_schema_map": False,
        "affected_options": None,
    }


def system_table(table_id: int, text: str, columns: Sequence[tuple[str, FieldType]]) -> Json:
    """Make the TableInfo of a `mysql` table whose first column is an integer primary key."""
    cols = []
    for at, (column, field) in enumerate(columns):
        data = field.to_json()
        if at == 0:
            data = {**BIGINT_TYPE.to_json(), "Flag": _NOT_NULL | _PRIMARY | _NO_DEFAULT}
        cols.append(column_info(at + 1, column, at, data))
    return table_info(table_id, text, cols, [], handle=INT_HANDLE)
