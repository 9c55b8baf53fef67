from collections.abc import Callable

import pytest

from support.schema_records import (
    DELETE_ONLY,
    DONE,
    QUEUEING,
    RUNNING,
    WRITE_ONLY,
    column,
    database,
    drop,
    job,
    table,
    table_info,
    version,
)
from tistream.errors import Gone
from tistream.schema.history import History, ListedTable, NamedInterval
from tistream.schema.records import Record


def history(*records: Record) -> History:
    """Snapshot at 10: database d (1) with table t (100), and the system schema mysql (2) with one table (200)."""
    out = History(10)
    base = [
        database(10, 1, "d"),
        database(10, 2, "mysql"),
        table(10, 1, table_info(100, "t", ["id", "v"])),
        table(10, 2, table_info(200, "user")),
    ]
    out.apply([*base, *records])
    out.advance(1000)
    return out


def columns(found: History, physical_id: int, commit_ts: int) -> list[str] | None:
    at = found.table_at(physical_id, commit_ts)
    return None if at is None else [column.name for column in at.table.visible_columns]


def test_a_row_is_read_with_the_schema_strictly_before_it() -> None:
    found = history(table(20, 1, table_info(100, "t", ["id", "v", "w"])))
    assert columns(found, 100, 20) == ["id", "v"]
    assert columns(found, 100, 21) == ["id", "v", "w"]
    assert [(low, high) for low, high, _ in found.versions_of(100, 10, 50)] == [(10, 20), (20, 50)]
    assert found.table_at(100, 10) is None  # before history begins


def test_non_public_columns_and_tables_are_not_visible() -> None:
    found = history(
        table(20, 1, table_info(100, "t", ["id", "v", column(3, "w", state=WRITE_ONLY)])),
        table(30, 1, table_info(101, "fk", state=DELETE_ONLY)),
        table(40, 1, table_info(101, "fk")),
    )
    assert columns(found, 100, 25) == ["id", "v"]
    assert found.table_at(101, 40) is None
    assert columns(found, 101, 41) == ["id"]
    assert found.ever_had_id(101)
    assert not found.ever_had_id(999)


def test_system_schemas_are_no_names_but_known() -> None:
    found = history()
    assert found.databases(1000) == ["d"]
    assert found.tables(1000, "mysql") is None
    assert found.table_at(200, 500) is None
    assert found.ever_had_id(200)
    assert found.tables_named("mysql", "user", 10, 1000) == []


def test_lists_as_of_a_time_compare_names_as_tidb_does() -> None:
    found = history(
        version(20, 5),
        table(20, 1, table_info(101, "Ünï")),
        table(20, 1, table_info(102, "v", view={"x": 1})),
        table(20, 1, table_info(103, "s", sequence={"x": 1})),
    )
    assert found.tables(20, "D") == [ListedTable("t", 100, 5), ListedTable("Ünï", 101, 5)]
    assert found.tables(19, "d") == [ListedTable("t", 100, 0)]
    assert found.tables(20, "e") is None
    assert [bearer.table_id for bearer in found.tables_named("D", "üNÏ", 10, 100)] == [101]


def test_truncate_gives_the_name_to_another_id() -> None:
    found = history(drop(20, 1, 100), table(20, 1, table_info(101, "t", ["id", "v"])))
    assert found.tables_named("d", "t", 10, 100) == [
        NamedInterval(10, 20, 100, (100,)),
        NamedInterval(20, 100, 101, (101,)),
    ]
    assert found.tables_named("d", "t", 20, 100) == [NamedInterval(20, 100, 101, (101,))]
    assert found.table_at(100, 21) is None
    assert found.table_at(101, 20) is None
    assert columns(found, 101, 21) == ["id", "v"]


def test_swap_rename_across_databases() -> None:
    found = history(
        database(20, 3, "e"),
        table(20, 3, table_info(101, "u")),
        drop(30, 1, 100),
        drop(30, 3, 101),
        table(30, 3, table_info(100, "u", ["id", "v"])),
        table(30, 1, table_info(101, "t")),
    )
    assert [bearer.table_id for bearer in found.tables_named("d", "t", 10, 100)] == [100, 101]
    assert [bearer.table_id for bearer in found.tables_named("e", "u", 10, 100)] == [101, 100]
    assert found.tables_named("d", None, 30, 100) == [NamedInterval(30, 100, 101, (101,))]
    moved = found.table_at(100, 31)
    assert moved is not None
    assert moved.name == ("e", "u")


def test_exchange_swaps_physical_ids() -> None:
    found = history(
        table(20, 1, table_info(110, "p", partitions=[111, 112])),
        table(30, 1, table_info(110, "p", partitions=[100, 112])),
        drop(30, 1, 100),
        table(30, 1, table_info(111, "t", ["id", "v"])),
    )
    names = [found.table_at(physical_id, ts) for physical_id in (100, 111) for ts in (30, 31)]
    assert [at and at.name[1] for at in names] == ["t", "p", "p", "t"]
    intervals = [NamedInterval(20, 30, 110, (111, 112)), NamedInterval(30, 100, 110, (100, 112))]
    assert found.tables_named("d", "p", 20, 100) == intervals


def test_partitions_that_drop_partition_hides() -> None:
    hiding = {"ddl_action": 20, "dropping_definitions": [{"id": 112}]}
    going = {"ddl_action": 64, "dropping_definitions": [{"id": 112}], "adding_definitions": [{"id": 113}]}
    found = history(
        table(20, 1, table_info(110, "p", partitions=[111, 112])),
        table(30, 1, table_info(110, "p", partitions=[111, 112], partition=going)),
        table(40, 1, table_info(110, "p", partitions=[111, 112], partition=hiding)),
    )
    assert found.table_at(112, 40) is not None
    assert found.table_at(112, 41) is None
    assert found.table_at(113, 50) is None
    assert found.ever_had_id(113)
    assert not found.ever_had_id(110 + 5)


def test_a_database_that_is_dropped_hides_its_tables_at_once() -> None:
    found = history(database(20, 1, "d", WRITE_ONLY), drop(30, 1, 100), database(30, 1, None), database(40, 4, "d"))
    assert found.databases(20) == []
    assert found.table_at(100, 20) is not None
    assert found.table_at(100, 21) is None
    assert found.tables_named("d", "t", 20, 100) == []
    assert found.database_exists("D", 10, 15)
    assert not found.database_exists("d", 20, 40)
    assert found.database_exists("d", 20, 41)


def test_versions_count_diffs_strictly_before_and_at() -> None:
    found = history(version(20, 57), version(30, 58), version(40, 56))
    assert [found.schema_version_before(ts) for ts in (20, 21, 30, 31, 41)] == [0, 57, 57, 58, 58]
    assert found.schema_version_at(30) == 58
    assert found.schema_versions(10, 50) == [(10, 20, 0), (20, 30, 57), (30, 50, 58)]
    assert found.schema_versions(25, 28) == [(25, 28, 57)]
    assert found.schema_versions(50, 50) == []


@pytest.mark.parametrize("numbers", [(57, 58), (58, 57)])
def test_of_several_versions_at_one_commit_ts_the_highest_counts(numbers: tuple[int, int]) -> None:
    first, second = (version(20, number).change for number in numbers)
    found = History(10)
    found.apply([Record(20, 17, first), Record(20, 18, second), version(30, 59)])
    assert (found.schema_version_at(20), found.schema_version_before(20), found.schema_version_before(21)) == (
        58,
        0,
        58,
    )
    assert found.schema_versions(10, 50) == [(10, 20, 0), (20, 30, 58), (30, 50, 59)]


def test_an_equal_table_is_no_new_version() -> None:
    same = table_info(100, "t", ["id", "v"])
    found = history(table(20, 1, {**same, "revision": 7, "update_timestamp": 99}))
    assert len(found.versions_of(100, 10, 100)) == 1


def test_a_ddl_that_changes_no_column_is_a_new_version_with_its_timestamp() -> None:
    """ALTER TABLE … AUTO_INCREMENT: messages of rows have the timestamp as the version of their schema."""
    rebased = {**table_info(100, "t", ["id", "v"]), "auto_inc_id": 1_000, "update_timestamp": 19}
    found = history(table(20, 1, rebased)).versions_of(100, 10, 100)
    assert [(low, high) for low, high, _ in found] == [(10, 20), (20, 100)]
    (_, _, before), (_, _, after) = found
    assert before is not None
    assert after is not None
    assert after.stored.info()["update_timestamp"] == 19
    assert after.signature == before.signature


def test_records_out_of_order_are_refused() -> None:
    found = history(version(20, 1))
    with pytest.raises(AssertionError):
        found.apply([version(20, 2)])


def test_forgetting_drops_what_lies_below_and_keeps_the_rest() -> None:
    found = history(
        job(20, 1, 11, DONE, table_id=100),
        drop(20, 1, 100),
        table(20, 1, table_info(101, "t", ["id", "v"])),
        version(20, 5),
        job(30, 2, 5, QUEUEING, table_id=101),
        job(40, 2, 5, RUNNING, table_id=101),
        table(40, 1, table_info(101, "t", ["id", "v", "w"])),
        version(40, 6),
    )
    kept = [found.tables_named("d", "t", 35, 100), found.schema_versions(35, 100), found.tables(50, "d")]
    versions = found.versions_of(101, 35, 100)
    found.forget(35)
    assert [found.tables_named("d", "t", 35, 100), found.schema_versions(35, 100), found.tables(50, "d")] == kept
    assert found.versions_of(101, 35, 100) == versions
    assert [event.job_id for event in found.ddl_events(35, 100)] == [2]
    assert found.tables_named("d", "t", 35, 36) == [NamedInterval(35, 36, 101, (101,))]
    assert found.ever_had_id(100)
    assert found.base_ts == 35


@pytest.mark.parametrize(
    "ask",
    [
        lambda found: found.table_at(101, 35),
        lambda found: found.versions_of(101, 34, 100),
        lambda found: found.versions_of(999, 34, 100),
        lambda found: found.schema_version_before(35),
        lambda found: found.schema_version_at(34),
        lambda found: found.schema_versions(34, 100),
        lambda found: found.databases(34),
        lambda found: found.tables(34, "d"),
        lambda found: list(found.visible_tables(34, "d")),
        lambda found: found.database_exists("d", 34, 100),
        lambda found: found.tables_named("d", "t", 34, 100),
        lambda found: found.ddl_events(34, 100),
        lambda found: found.base(34),
    ],
)
def test_what_was_forgotten_is_gone_and_never_half_told(ask: Callable[[History], object]) -> None:
    found = history(table(20, 1, table_info(101, "t", ["id"])), version(20, 5))
    ask(found)
    found.forget(35)
    with pytest.raises(Gone) as told:
        ask(found)
    assert told.value.extra == {"earliest_ts": "35"}
    found.forget(20)  # never goes back
    assert found.base_ts == 35
