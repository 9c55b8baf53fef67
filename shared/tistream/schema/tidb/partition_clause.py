"""Builds the PARTITION BY clause of a table from TiDB's PartitionInfo JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tistream.schema.tidb.quoting import quoted_name, quoted_text
from tistream.schema.tidb.table import visible_definitions

RANGE, HASH, LIST, KEY = 1, 2, 3, 4
_KINDS = {RANGE: "RANGE", HASH: "HASH", LIST: "LIST", KEY: "KEY"}


def partition_clause(partition: Mapping[str, Any] | None) -> str | None:
    """Build the PARTITION BY clause. Returns None if the table has no partitions, or has a type of partitions that no
    clause creates, as while REMOVE PARTITIONING runs."""
    if not partition or not partition.get("enable") or partition.get("type") not in _KINDS:
        return None
    kind = partition["type"]
    columns = ",".join(quoted_name(column["O"]) for column in partition.get("columns") or ())
    definitions = visible_definitions(partition)
    if kind in (HASH, KEY):
        over = partition["expr"] if kind == HASH else columns
        head = f"PARTITION BY {_KINDS[kind]} ({over})"
        if [one["name"]["O"] for one in definitions] == [f"p{at}" for at in range(len(definitions))]:
            return f"{head} PARTITIONS {len(definitions)}"
        return _with_definitions(head, [_definition(one, "") for one in definitions])
    head = f"PARTITION BY {_KINDS[kind]}" + (f" COLUMNS({columns})" if columns else f" ({partition['expr']})")
    values = _less_than if kind == RANGE else _in_values
    return _with_definitions(head, [_definition(one, values(one)) for one in definitions])


def _with_definitions(head: str, definitions: list[str]) -> str:
    return f"{head}\n(" + ",\n ".join(definitions) + ")"


def _definition(definition: Mapping[str, Any], values: str) -> str:
    comment = f" COMMENT = {quoted_text(definition['comment'])}" if definition.get("comment") else ""
    return f"PARTITION {quoted_name(definition['name']['O'])}{values}{comment}"


def _less_than(definition: Mapping[str, Any]) -> str:
    return f" VALUES LESS THAN ({','.join(definition['less_than'])})"


def _in_values(definition: Mapping[str, Any]) -> str:
    values = definition.get("in_values") or [["DEFAULT"]]
    if values == [["DEFAULT"]]:
        return " DEFAULT"
    rows = (row[0] if len(row) == 1 else f"({','.join(row)})" for row in values)
    return f" VALUES IN ({','.join(rows)})"
