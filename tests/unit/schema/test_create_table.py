"""CREATE TABLE from TableInfo: what a real TiDB stored, as statements for each dialect."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from support import golden
from support.schema_records import column, name, table_info
from tistream.schema.records import TableChange
from tistream.schema.tidb import table as t
from tistream.schema.tidb.create_table import Dialect, UnsupportedTable, table_statements
from tistream.schema.tidb.meta_change import META_TABLE_ID, MetaDecoder, MetaRow
from tistream.schema.tidb.snapshot import parse_snapshot


@functools.cache
def newest_infos() -> dict[str, dict[str, Any]]:
    """The newest public TableInfo of each table of `everything`, by table name."""
    data = golden.load("everything")
    decoder = MetaDecoder()
    for record in parse_snapshot(data.schema_snap.key, data.schema_snap.data).records:
        decoder.learn(record)
    infos = {}
    for row in golden.committed_rows(data.name).iter_rows(named=True):
        if row["key"][:1] != b"m" or row["op"] != 1:
            continue
        meta = MetaRow(META_TABLE_ID, row["commit_ts"], row["start_ts"], row["key"], row["value"], row["old_value"])
        record = decoder.decode(meta)
        if record is not None and isinstance(record.change, TableChange) and record.change.text is not None:
            info = record.change.text.info()
            if info["state"] == t.STATE_PUBLIC:
                infos[info["name"]["L"]] = info
    return infos


def create(table: str, dialect: Dialect = Dialect.TIDB, next_id: int | None = None) -> str:
    return table_statements(newest_infos()[table], ("d", table), dialect, next_id).create


def test_generated_columns_and_a_composite_clustered_key() -> None:
    assert create("items") == (
        "CREATE TABLE `d`.`items` (\n"
        "  `order_id` bigint NOT NULL,\n"
        "  `line` int NOT NULL,\n"
        "  `sku` varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,\n"
        "  `qty` int DEFAULT NULL,\n"
        "  `price` decimal(10,2) DEFAULT NULL,\n"
        "  `total` decimal(12,2) GENERATED ALWAYS AS (`qty` * `price`) STORED,\n"
        "  `label` varchar(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        " GENERATED ALWAYS AS (concat(`sku`, _utf8mb4'-', `qty`)) VIRTUAL,\n"
        "  PRIMARY KEY (`order_id`,`line`) /*T![clustered_index] CLUSTERED */\n"
        ") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
    )


@pytest.mark.parametrize(
    ("table", "clause"),
    [
        ("ntbl", "`g` bit(3) NOT NULL DEFAULT b'101'"),
        ("ntbl", "`j` binary(3) NOT NULL DEFAULT 0x616200"),
        ("ntbl", "`h` set('m','n') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT 'm,n'"),
        ("orders", "`created` timestamp(3) NULL DEFAULT CURRENT_TIMESTAMP(3)"),
        ("orders", "`id` bigint NOT NULL AUTO_INCREMENT"),
        ("orders", "KEY `customer` (`customer`)"),
        ("k_prefix", "PRIMARY KEY (`s`(5)) /*T![clustered_index] CLUSTERED */"),
        ("k_non", "PRIMARY KEY (`id`) /*T![clustered_index] NONCLUSTERED */"),
        ("k_rand", "`id` bigint NOT NULL /*T![auto_rand] AUTO_RANDOM(5) */"),
        ("k_shard", "/*T! SHARD_ROW_ID_BITS=4 */"),
        ("with_seq", "`id` int NOT NULL DEFAULT (nextval(`shop`.`seq1`))"),
        ("ddl2", "COMMENT='hello; ''quoted'''"),
        ("p_range", "PARTITION BY RANGE COLUMNS(`d`)\n(PARTITION `p0` VALUES LESS THAN ('2024-01-01'),"),
        ("p_list", "PARTITION BY LIST (`r`)\n(PARTITION `a` VALUES IN (1,2),\n PARTITION `c` VALUES IN (5,6))"),
        ("p_hash", "PARTITION BY HASH (`id`) PARTITIONS 3"),
        ("p_key", "PARTITION BY KEY (`id`) PARTITIONS 4"),
    ],
)
def test_clauses_of_real_tables(table: str, clause: str) -> None:
    assert clause in create(table)


def test_a_foreign_key_is_a_statement_of_its_own() -> None:
    statements = table_statements(newest_infos()["fk_c"], ("copy", "fk_c"), Dialect.TIDB)
    assert "FOREIGN KEY" not in statements.create
    assert statements.foreign_keys == (
        "ALTER TABLE `copy`.`fk_c`\n"
        "  ADD CONSTRAINT `fk_1` FOREIGN KEY (`pid`) REFERENCES `shop`.`fk_p` (`id`) ON DELETE CASCADE"
    )


def test_the_next_id_is_stated_where_the_table_gives_ids() -> None:
    assert " AUTO_INCREMENT=77" in create("orders", next_id=77)
    assert "/*T![auto_rand_base] AUTO_RANDOM_BASE=78 */" in create("k_rand", next_id=78)
    assert "AUTO" not in create("k_rand", Dialect.MYSQL, 78)


@pytest.mark.parametrize("dialect", [Dialect.MYSQL, Dialect.MARIADB])
@pytest.mark.parametrize(("table", "named"), [("everything", "vec"), ("with_seq", "seq1"), ("v_orders", "view")])
def test_what_the_server_does_not_have_is_refused_by_name(dialect: Dialect, table: str, named: str) -> None:
    with pytest.raises(UnsupportedTable, match=named):
        create(table, dialect)


def test_nothing_that_only_tidb_reads_is_written_for_others() -> None:
    infos = newest_infos()
    made = 0
    for table, info in infos.items():
        try:
            text = table_statements(info, ("d", table), Dialect.MARIADB).create
        except UnsupportedTable:
            continue
        assert "T!" not in text
        made += 1
    assert made > len(infos) // 2


def test_hostile_names_and_comments_stay_inside_their_quotes() -> None:
    info = table_info(7, "a`b", [column(1, "x`); DROP TABLE t; --", comment="it's \\ \n here")])
    text = table_statements(info, ("d`b", "a`b"), Dialect.MYSQL).create
    assert text.startswith("CREATE TABLE `d``b`.`a``b` (\n  `x``); DROP TABLE t; --` int")
    assert "COMMENT 'it''s \\\\ \\n here'" in text


@pytest.mark.parametrize("text", ["ΚΩΔΙΚΟΣ", "İD", "Straße", "ǅ"])
def test_a_column_is_found_whatever_its_name_is_in_lower_case(text: str) -> None:
    """TiDB lowers character by character: a Σ at the end becomes σ, not ς."""
    info = table_info(7, "t", [column(1, text, comment="c")])
    assert f"  `{text}` int DEFAULT NULL COMMENT 'c'\n" in table_statements(info, ("d", "t"), Dialect.MYSQL).create


@pytest.mark.parametrize("default", ["CURRENT_DATE", "CURRENT_TIMESTAMP"])
def test_the_present_date_is_a_default_of_a_date(default: str) -> None:
    info = table_info(7, "t", [column(1, "d", tp=t.DATE, default=default)])
    assert "  `d` date DEFAULT (CURRENT_DATE)\n" in table_statements(info, ("d", "t"), Dialect.MYSQL).create


def test_an_expression_index_is_its_expression_and_mariadb_refuses_it() -> None:
    hidden = column(2, "_v$_i_0", hidden=True, generated_expr_string="lower(`a`)")
    index = {"id": 1, "idx_name": name("i"), "idx_cols": [{"name": name("_v$_i_0"), "offset": 1, "length": -1}]}
    info = table_info(7, "t", [column(1, "a"), hidden], index_info=[{**index, "state": t.STATE_PUBLIC}])
    assert "  KEY `i` ((lower(`a`)))\n" in table_statements(info, ("d", "t"), Dialect.MYSQL).create
    with pytest.raises(UnsupportedTable, match="index i is over an expression"):
        table_statements(info, ("d", "t"), Dialect.MARIADB)
