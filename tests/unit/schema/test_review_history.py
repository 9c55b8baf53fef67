"""Histories that no TiDB should write, and that must not stop a tenant if one does."""

from __future__ import annotations

from support.schema_records import database, drop, table, table_info
from tistream.schema.history import History, NamedInterval
from tistream.schema.records import Record

T = table_info(100, "t", ["id", "v"])


def history(*records: Record) -> History:
    made = History(10)
    made.apply([database(10, 1, "d"), table(10, 1, T), *records])
    made.advance(1_000)
    return made


def test_a_name_that_is_taken_before_it_is_let_go() -> None:
    found = history(table(30, 1, table_info(101, "t")), drop(40, 1, 100), drop(50, 1, 101))
    assert found.tables_named("d", "t", 10, 100) == [
        NamedInterval(10, 30, 100, (100,)),
        NamedInterval(30, 50, 101, (101,)),
    ]
    twice = history(table(30, 1, table_info(101, "t")), drop(40, 1, 101), drop(50, 1, 100))
    assert [bearer.table_id for bearer in twice.tables_named("d", "t", 10, 100)] == [100, 101]


def test_a_physical_id_that_is_taken_before_it_is_let_go() -> None:
    found = history(table(30, 1, table_info(110, "p", partitions=[100])), drop(40, 1, 100))
    owners = [(at, version and version.table.id) for at in (25, 35, 45) for version in [found.table_at(100, at)]]
    assert owners == [(25, 100), (35, 110), (45, 110)]
