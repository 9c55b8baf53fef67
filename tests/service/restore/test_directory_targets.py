"""Restores into directories: what is half written is not counted, and nothing of another's is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.schema_records import column, table_info
from tistream.schema.tidb.create_table import Dialect, TableStatements
from tistream.schema.tidb.table import parse_table
from tistream.targets.directory_marks import MARKS, DirectoryMarks
from tistream.targets.files import put_whole, write_whole
from tistream.targets.parquet_tables import ParquetTables
from tistream.targets.restored_table import Chunk, Mark, RestoredTable, TableExists, TargetRefused, restore_id
from tistream.targets.sql_files import SqlFiles

COLUMNS = parse_table(table_info(7, "t", [column(1, "id")])).visible_columns
KEYS = "ALTER TABLE `d`.`t` ADD FOREIGN KEY (id) REFERENCES p (id)"


def table(name: tuple[str, str] = ("d", "t"), ts: int = 5) -> RestoredTable:
    statements = TableStatements("CREATE TABLE `d`.`t` (id int)", KEYS)
    return RestoredTable(("d", "t"), name, COLUMNS, statements, restore_id("7", "acme", ts, ("d", "t"), name))


def chunk(values: list[int], cursor: str | None) -> Chunk:
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=["id"])
    return Chunk([batch], lambda: (len(values), cursor))


def test_parquet_files_of_a_table_and_its_marks(tmp_path: Path) -> None:
    target = ParquetTables(tmp_path / "out", Dialect.TIDB)
    mark = target.begin(table(), replace=False)
    mark = target.write(table(), mark, chunk([1, 2], "c"))
    assert ParquetTables(tmp_path / "out", Dialect.TIDB).begin(table(), replace=False) == mark == Mark(1, 2, "c")
    mark = target.write(table(), mark, chunk([], None))
    assert mark.complete
    assert pq.read_table(tmp_path / "out" / "d.t" / "000001.parquet").column("id").to_pylist() == [1, 2]
    assert (tmp_path / "out" / "d.t" / "schema.sql").read_text().endswith(KEYS + ";\n")
    found = target.fingerprint(table())
    assert found.rows == 2


def test_a_chunk_that_was_cut_off_leaves_no_file_that_counts(tmp_path: Path) -> None:
    target = SqlFiles(tmp_path, Dialect.MARIADB)
    mark = target.begin(table(), replace=False)

    def cut() -> Iterator[pa.RecordBatch]:
        yield from chunk([1], None).batches
        raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        target.write(table(), mark, Chunk(cut(), lambda: (1, None)))
    again = SqlFiles(tmp_path, Dialect.MARIADB)
    assert again.begin(table(), replace=False) == Mark(0, 0, None)
    again.write(table(), mark, chunk([1], None))
    again.add_foreign_keys(table())
    again.add_foreign_keys(table())
    names = sorted(path.name for path in tmp_path.glob("*.sql"))
    assert names == ["000001.sql", "000002.sql", "000003.sql"]
    assert "INSERT INTO `d`.`t` (`id`) VALUES\n(1);\nCOMMIT;\n" in (tmp_path / "000002.sql").read_text()
    assert KEYS in (tmp_path / "000003.sql").read_text()


def test_another_restore_of_the_table_is_refused_or_replaced(tmp_path: Path) -> None:
    target = SqlFiles(tmp_path, Dialect.TIDB)
    target.write(table(), target.begin(table(), replace=False), chunk([1], None))
    with pytest.raises(TableExists, match=r"d\.t"):
        target.begin(table(ts=6), replace=False)
    assert target.begin(table(ts=6), replace=True) == Mark(0, 0, None)
    assert [path.name for path in tmp_path.glob("*.sql")] == ["000001.sql"]


def test_directories_of_others_are_refused(tmp_path: Path) -> None:
    put_whole(tmp_path / "file", b"x")
    with pytest.raises(TargetRefused, match="use an empty directory"):
        DirectoryMarks(tmp_path)
    outside = {"version": 1, "tables": {"x": {"restore_id": "", "chunks": 1, "rows": 1, "cursor": None}}}
    for bad in (b"{", b"[]", b'{"version":2,"tables":{}}', orjson.dumps(outside)):
        put_whole(tmp_path / MARKS, bad)
        with pytest.raises(TargetRefused, match="was not written by a restore"):
            DirectoryMarks(tmp_path)
    outside["tables"]["x"]["files"] = ["../file"]  # type: ignore[index]
    put_whole(tmp_path / MARKS, orjson.dumps(outside))
    with pytest.raises(TargetRefused, match="was not written by a restore"):
        DirectoryMarks(tmp_path)
    with pytest.raises(TargetRefused, match="cannot be used"):
        DirectoryMarks(tmp_path / "file")


def test_names_of_tables_do_not_leave_the_directory(tmp_path: Path) -> None:
    target = ParquetTables(tmp_path / "out", Dialect.TIDB)
    target.begin(table(("..", "../../x")), replace=False)
    assert {path.parent.name for path in (tmp_path / "out").glob("*/schema.sql")} == {"%2E%2E.%2E%2E%2F%2E%2E%2Fx"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    def write(file: object) -> None:
        raise OSError("full")

    put_whole(tmp_path / "a", b"old")
    with pytest.raises(OSError, match="full"):
        write_whole(tmp_path / "a", write)
    assert (tmp_path / "a").read_bytes() == b"old"
