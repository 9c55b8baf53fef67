"""A schema history of many tables, as the registry and every API server keep it."""

from __future__ import annotations

import os
from typing import Any

import orjson

from bench import proc_tree
from tistream.model.ts import MAX_TS
from tistream.schema.history import History
from tistream.schema.records import DatabaseChange, Record, TableChange, TableText

TABLES_A_DATABASE = 100
SNAPSHOT_TS = 10
FIRST_ID = 1_000_000


class Schema:
    """`tables` of ten columns in databases of 100. Each call does one of the questions, `count` times over."""

    def __init__(self, tables: int) -> None:
        before = proc_tree.memory_bytes(os.getpid())
        self._history = History(SNAPSHOT_TS)
        self._history.apply(_records(tables))
        self._history.advance(MAX_TS - 1)
        self._databases = tables // TABLES_A_DATABASE
        self.memory = proc_tree.memory_bytes(os.getpid()) - before

    def __call__(self, question: str, count: int) -> Any:
        asked = getattr(self, question)
        for number in range(count):
            answer = asked(number * 7919)
        return answer

    def grown(self, _: int) -> int:
        """Bytes that the history takes."""
        return self.memory

    def list_tables(self, number: int) -> int:
        """ListTables of one database; how many it has."""
        return len(self._history.tables(SNAPSHOT_TS + 1, f"db{number % self._databases}") or ())

    def find_table(self, number: int) -> int:
        """What a pull of one table looks up: who bears the name, and its versions."""
        database = number % self._databases
        (table,) = self._history.tables_named(
            f"db{database}", f"t{number % TABLES_A_DATABASE}", SNAPSHOT_TS, SNAPSHOT_TS + 5
        )
        (found,) = self._history.versions_of(table.physical_ids[0], SNAPSHOT_TS, SNAPSHOT_TS + 5)
        assert found[2] is not None
        return len(found[2].table.visible_columns)


def _records(tables: int) -> list[Record]:
    out = []
    for number in range(tables):
        database, nth = divmod(number, TABLES_A_DATABASE)
        if not nth:
            name = {"O": f"db{database}", "L": f"db{database}"}
            change = DatabaseChange(database + 1, {"id": database + 1, "db_name": name, "state": 5})
            out.append(Record(SNAPSHOT_TS, SNAPSHOT_TS, change))
        text = TableText.pack(orjson.dumps(table_info(FIRST_ID + number, f"t{nth}")))
        out.append(Record(SNAPSHOT_TS, SNAPSHOT_TS, TableChange(database + 1, FIRST_ID + number, text)))
    return out


def table_info(table_id: int, name: str, columns: int = 10) -> dict[str, Any]:
    """TableInfo JSON with the members that TiDB writes."""
    return {
        "id": table_id,
        "name": {"O": name, "L": name},
        "charset": "utf8mb4",
        "collate": "utf8mb4_bin",
        "cols": [_column(number) for number in range(columns)],
        "index_info": None,
        "constraint_info": None,
        "fk_info": None,
        "state": 5,
        "pk_is_handle": True,
        "is_common_handle": False,
        "common_handle_version": 0,
        "comment": "",
        "auto_inc_id": 0,
        "auto_id_cache": 0,
        "auto_rand_id": 0,
        "max_col_id": columns,
        "max_idx_id": 0,
        "max_fk_id": 0,
        "max_cst_id": 0,
        "update_timestamp": 456_000_000_000_000_000 + table_id,
        "ShardRowIDBits": 0,
        "max_shard_row_id_bits": 0,
        "auto_random_bits": 0,
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
        "revision": 1,
    }


def _column(number: int) -> dict[str, Any]:
    return {
        "id": number + 1,
        "name": {"O": f"c{number}", "L": f"c{number}"},
        "offset": number,
        "origin_default": None,
        "origin_default_bit": None,
        "default": None,
        "default_bit": None,
        "default_is_expr": False,
        "generated_expr_string": "",
        "generated_stored": False,
        "dependences": None,
        "type": {
            "Tp": 15 if number else 8,
            "Flag": 0 if number else 4099,
            "Flen": 64 if number else 20,
            "Decimal": 0,
            "Charset": "utf8mb4" if number else "binary",
            "Collate": "utf8mb4_bin" if number else "binary",
            "Elems": None,
            "ElemsIsBinaryLit": None,
            "Array": False,
        },
        "state": 5,
        "comment": "",
        "hidden": False,
        "change_state_info": None,
        "version": 2,
    }
