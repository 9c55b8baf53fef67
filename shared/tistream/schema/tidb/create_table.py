"""Builds the CREATE TABLE statement of one version of a table from TiDB's TableInfo JSON.

The result has up to two statements, so that a restore can load the rows after the first one and before the second: one
for the table with its columns, keys and partitions, and one for the foreign keys, which need the other tables and their
rows. Values that TiDB stores in UTC (timestamp defaults) are written in UTC: run the statements with `time_zone =
'+00:00'`.

The dialect decides the content. TIDB has everything that TiDB's own SHOW CREATE TABLE has. MYSQL and MARIADB omit
clauses that only affect how TiDB stores rows (clustered keys, AUTO_RANDOM, SHARD_ROW_ID_BITS). They raise
`UnsupportedTable` for anything else that the server does not have, so that no column or rule is lost silently.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tistream.schema.tidb import table as t
from tistream.schema.tidb.partition_clause import partition_clause
from tistream.schema.tidb.quoting import quoted_name, quoted_text
from tistream.schema.tidb.sql_type import sql_type
from tistream.schema.tidb.table import Column, Table, parse_table

FLAG_AUTO_INCREMENT = 512
FLAG_ON_UPDATE_NOW = 8192
_CLAUSES = ("", "RESTRICT", "CASCADE", "SET NULL", "NO ACTION", "SET DEFAULT")  # referential actions, by number
_NOW, _TODAY = "CURRENT_TIMESTAMP", "CURRENT_DATE"


class Dialect(Enum):
    """The server that will run the statement."""

    TIDB = "tidb"
    MYSQL = "mysql"
    MARIADB = "mariadb"


class UnsupportedTable(ValueError):
    """The dialect's server cannot hold the table. The message names the column or clause."""


@dataclass(frozen=True, slots=True)
class TableStatements:
    """The statements that create one table. `foreign_keys` is an ALTER TABLE to run after all rows are loaded, or
    None."""

    create: str
    foreign_keys: str | None


def table_statements(
    info: Mapping[str, Any], name: tuple[str, str], dialect: Dialect, next_id: int | None = None
) -> TableStatements:
    """Build the statements that create the table.

    Args:
        info: TableInfo JSON of a base table.
        name: (database, table) of the new table, which may differ from the original name.
        next_id: the next AUTO_INCREMENT or AUTO_RANDOM value of the table; None omits the clause.

    Raises:
        UnsupportedTable: it is a view or sequence, or has something that the dialect's server does not have.
    """
    table = parse_table(dict(info))
    if table.kind != "table":
        raise UnsupportedTable(f"{name[0]}.{name[1]} is a {table.kind}, not a table")
    columns = {column["id"]: column for column in info.get("cols") or ()}
    lines = [
        *(_column(column, columns[column.id], info, dialect) for column in _shown(table)),
        *_indexes(table, info, columns, dialect),
        *_checks(info),
    ]
    place = ".".join(map(quoted_name, name))
    body = ",\n  ".join(lines)
    create = f"CREATE TABLE {place} (\n  {body}\n){_options(info, dialect, next_id)}"
    partitions = partition_clause(info.get("partition"))
    keys = list(_foreign_keys(info, name[0]))
    alter = f"ALTER TABLE {place}\n  " + ",\n  ".join(f"ADD {key}" for key in keys) if keys else None
    return TableStatements(create + (f"\n{partitions}" if partitions else ""), alter)


def column_definition(info: Mapping[str, Any], column: Column, dialect: Dialect) -> str:
    """The definition of one column of a table, as ALTER TABLE … ADD COLUMN takes it. `info` is the TableInfo JSON.
    Raises UnsupportedTable."""
    stated = next(one for one in info["cols"] if one["id"] == column.id)
    return _column(column, stated, info, dialect)


def _shown(table: Table) -> tuple[Column, ...]:
    """The columns that SHOW CREATE TABLE lists: the public ones, virtual generated columns included. The hidden columns
    of expression indexes are left out."""
    return tuple(column for column in table.columns if column.public and not column.hidden)


def _column(column: Column, info: Mapping[str, Any], table: Mapping[str, Any], dialect: Dialect) -> str:
    if dialect is not Dialect.TIDB and column.tp == t.VECTOR:
        raise UnsupportedTable(f"column {column.name} is a VECTOR, which {dialect.value} does not have")
    out = [quoted_name(column.name), _type(column)]
    if column.tp in (*t.TEXTS, t.ENUM, t.SET) and column.charset not in ("", "binary"):
        out.append(f"CHARACTER SET {column.charset}")
        if column.collate:
            out.append(f"COLLATE {collation(column.collate, dialect)}")
    if column.generated:
        expression, kind = info["generated_expr_string"], "STORED" if column.stored else "VIRTUAL"
        out.append(f"GENERATED ALWAYS AS ({expression}) {kind}")
    if column.not_null and not (column.generated and dialect is Dialect.MARIADB):
        out.append("NOT NULL")
    elif column.tp == t.TIMESTAMP:
        out.append("NULL")
    out += _default(column, info, dialect)
    if column.flag & FLAG_ON_UPDATE_NOW:
        out.append(f"ON UPDATE {_now(column)}")
    if column.flag & FLAG_AUTO_INCREMENT:
        out.append("AUTO_INCREMENT")
    if dialect is Dialect.TIDB and table.get("auto_random_bits") and column.flag & t.FLAG_PRIMARY:
        out.append(f"/*T![auto_rand] AUTO_RANDOM({_random_bits(table)}) */")
    if info.get("comment"):
        out.append(f"COMMENT {quoted_text(info['comment'])}")
    return " ".join(out)


def _type(column: Column) -> str:
    """The column's type in SQL syntax. A backslash in the name of an element is escaped, as the parser requires."""
    if column.tp in (t.ENUM, t.SET):
        return f"{'enum' if column.tp == t.ENUM else 'set'}({','.join(map(quoted_text, column.elems))})"
    return sql_type(column)


def _random_bits(table: Mapping[str, Any]) -> str:
    bits, of = table["auto_random_bits"], table.get("auto_random_range_bits") or 64
    return str(bits) if of == 64 else f"{bits}, {of}"


# MariaDB 10.11 has none of MySQL 8.0's collations; these have the same rules for case, accents and trailing spaces.
_OF_MARIADB = {"utf8mb4_0900_ai_ci": "utf8mb4_uca1400_nopad_ai_ci", "utf8mb4_0900_bin": "utf8mb4_nopad_bin"}


def collation(name: str, dialect: Dialect) -> str:
    """The name that the dialect's server has for one of TiDB's collations."""
    return _OF_MARIADB.get(name, name) if dialect is Dialect.MARIADB else name


def _default(column: Column, info: Mapping[str, Any], dialect: Dialect) -> list[str]:
    value, bits = info.get("default"), info.get("default_bit")
    if column.generated or column.flag & FLAG_AUTO_INCREMENT:
        return []
    if info.get("default_is_expr"):
        if dialect is not Dialect.TIDB and "nextval(" in str(value):
            raise UnsupportedTable(f"column {column.name} takes its default from a sequence: {value}")
        return [f"DEFAULT ({value})"]
    if bits is not None and column.tp == t.BIT:
        return [f"DEFAULT b'{int.from_bytes(base64.b64decode(bits), 'big'):b}'"]
    if value is None:
        return [] if column.not_null or column.tp in _NO_DEFAULT else ["DEFAULT NULL"]
    return [f"DEFAULT {_literal(column, str(value))}"]


def _literal(column: Column, text: str) -> str:
    if column.tp in t.TIMES and text.upper().startswith((_NOW, _TODAY)):
        return _now(column) if column.tp in (t.TIMESTAMP, t.DATETIME) else f"({_TODAY})"
    return _hex(text) if column.binary else quoted_text(text)


_NO_DEFAULT = frozenset({t.TINYBLOB, t.MEDIUMBLOB, t.LONGBLOB, t.BLOB, t.JSON, t.GEOMETRY})


def _hex(text: str) -> str:
    """Format a binary default as a hexadecimal literal. `text` is the default in TableInfo; its UTF-8 encoding has the
    bytes of the value."""
    return f"0x{text.encode('utf-8', 'surrogateescape').hex()}" if text else "''"


def _now(column: Column) -> str:
    return _NOW + (f"({column.decimal})" if column.decimal > 0 else "")


def _indexes(
    table: Table, info: Mapping[str, Any], columns: Mapping[int, Mapping[str, Any]], dialect: Dialect
) -> Iterator[str]:
    if table.pk_is_handle:
        (key,) = table.handle_columns
        yield f"PRIMARY KEY ({quoted_name(key.name)})" + _clustered(True, dialect)
    stated = {index["id"]: index for index in info.get("index_info") or ()}
    for index in table.indexes:
        if not index.public:
            continue
        full = stated[index.id]
        special = next((name for name in _SPECIAL if full.get(name)), None)
        if special is not None and dialect is not Dialect.TIDB:
            raise UnsupportedTable(f"index {index.name} ({special}) is one that {dialect.value} does not have")
        if special is not None and special != "mv_index":
            raise UnsupportedTable(f"index {index.name} ({special}) cannot be written as SQL from its TableInfo")
        parts = ",".join(_index_part(table, part, columns, dialect, index.name) for part in index.columns)
        if index.primary:
            yield f"PRIMARY KEY ({parts})" + _clustered(table.is_common_handle, dialect)
            continue
        head = ("UNIQUE KEY" if index.unique else "KEY") + f" {quoted_name(index.name)} ({parts})"
        yield head + _index_options(full, dialect)


_SPECIAL = ("mv_index", "vector_index", "inverted_index", "full_text_index", "condition_expr_string")


def _index_options(full: Mapping[str, Any], dialect: Dialect) -> str:
    out = f" COMMENT {quoted_text(full['comment'])}" if full.get("comment") else ""
    if full.get("is_invisible"):
        out += " /*!80000 INVISIBLE */" if dialect is not Dialect.MARIADB else " IGNORED"
    return out + (" /*T![global_index] GLOBAL */" if full.get("is_global") and dialect is Dialect.TIDB else "")


def _index_part(
    table: Table, part: t.IndexColumn, columns: Mapping[int, Mapping[str, Any]], dialect: Dialect, index: str
) -> str:
    column = table.columns[part.offset]
    if column.hidden:
        if dialect is Dialect.MARIADB:
            raise UnsupportedTable(f"index {index} is over an expression, which mariadb does not have")
        return f"({columns[column.id]['generated_expr_string']})"
    return quoted_name(column.name) + (f"({part.length})" if part.length != -1 else "")


def _clustered(clustered: bool, dialect: Dialect) -> str:
    if dialect is not Dialect.TIDB:
        return ""
    return f" /*T![clustered_index] {'CLUSTERED' if clustered else 'NONCLUSTERED'} */"


def _checks(info: Mapping[str, Any]) -> Iterator[str]:
    for check in info.get("constraint_info") or ():
        if check.get("state", t.STATE_PUBLIC) == t.STATE_PUBLIC:
            enforced = "" if check.get("enforced", True) else " /*!80016 NOT ENFORCED */"
            yield f"CONSTRAINT {quoted_name(check['constraint_name']['O'])} CHECK ({check['expr_string']}){enforced}"


def _foreign_keys(info: Mapping[str, Any], database: str) -> Iterator[str]:
    """The clauses of the foreign keys. A referenced table without a database name is in the table's own database,
    `database`."""
    for key in info.get("fk_info") or ():
        if key.get("state", t.STATE_PUBLIC) != t.STATE_PUBLIC:
            continue
        schema = (key.get("ref_schema") or {}).get("O") or database
        target = f"{quoted_name(schema)}.{quoted_name(key['ref_table']['O'])}"
        actions = "".join(
            f" ON {what} {_CLAUSES[key[field]]}"
            for what, field in (("DELETE", "on_delete"), ("UPDATE", "on_update"))
            if key.get(field)
        )
        own, theirs = (",".join(quoted_name(column["O"]) for column in key[side]) for side in ("cols", "ref_cols"))
        constraint = f"CONSTRAINT {quoted_name(key['fk_name']['O'])} FOREIGN KEY ({own})"
        yield f"{constraint} REFERENCES {target} ({theirs}){actions}"


def _options(info: Mapping[str, Any], dialect: Dialect, next_id: int | None) -> str:
    out = " ENGINE=InnoDB"
    charset, collate = info.get("charset") or "utf8mb4", info.get("collate") or "utf8mb4_bin"
    out += f" DEFAULT CHARSET={charset} COLLATE={collation(collate, dialect)}"
    if next_id is not None and info.get("auto_random_bits"):
        out += f" /*T![auto_rand_base] AUTO_RANDOM_BASE={next_id} */" if dialect is Dialect.TIDB else ""
    elif next_id is not None:
        out += f" AUTO_INCREMENT={next_id}"
    if dialect is Dialect.TIDB and info.get("ShardRowIDBits"):
        out += f" /*T! SHARD_ROW_ID_BITS={info['ShardRowIDBits']}"
        out += f" PRE_SPLIT_REGIONS={info['pre_split_regions']}" if info.get("pre_split_regions") else ""
        out += " */"
    return out + (f" COMMENT={quoted_text(info['comment'])}" if info.get("comment") else "")
