from typing import Any

from support.schema_records import (
    DONE,
    QUEUEING,
    ROLLED_BACK,
    ROLLING_BACK,
    RUNNING,
    WRITE_ONLY,
    column,
    database,
    drop,
    job,
    job_gone,
    table,
    table_info,
    version,
)
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.history import History
from tistream.schema.records import Record

T = table_info(100, "t", ["id", "v"])


def events(*records: Record) -> list[DdlEvent]:
    found = History(10)
    base = [database(10, 1, "d"), database(10, 2, "mysql"), table(10, 1, T), table(10, 2, table_info(200, "user"))]
    found.apply([*base, *records])
    return found.ddl_events(0, 1000)


def told(found: list[DdlEvent]) -> list[tuple[Any, ...]]:
    return [(event.commit_ts, event.job_id, event.database, event.table, event.involved) for event in found]


def test_add_column_shows_when_it_is_done() -> None:
    found = events(
        job(20, 7, 5, QUEUEING, table_id=100),
        table(30, 1, table_info(100, "t", ["id", "v", column(3, "w", state=WRITE_ONLY)])),
        version(30, 1),
        job(30, 7, 5, RUNNING, table_id=100),
        table(40, 1, table_info(100, "t", ["id", "v", "w"])),
        version(40, 2),
        job(40, 7, 5, DONE, table_id=100),
        job_gone(50, 7),
    )
    assert told(found) == [(40, 7, "d", "t", (("d", "t"),))]
    assert (found[0].action, found[0].query, found[0].schema_version) == ("add column", "job 7", 2)


def test_drop_column_shows_at_its_first_step_and_once() -> None:
    found = events(
        job(20, 7, 6, QUEUEING, table_id=100),
        table(30, 1, table_info(100, "t", ["id", column(2, "v", state=WRITE_ONLY)])),
        job(30, 7, 6, RUNNING, table_id=100),
        table(40, 1, table_info(100, "t", ["id"])),
        job(40, 7, 6, DONE, table_id=100),
    )
    assert told(found) == [(30, 7, "d", "t", (("d", "t"),))]


def test_a_job_without_visible_change_shows_when_it_is_done() -> None:
    index = {"id": 1, "idx_name": {"O": "i", "L": "i"}, "idx_cols": [{"name": {"O": "v", "L": "v"}, "offset": 1}]}
    found = events(
        job(20, 7, 7, QUEUEING, table_id=100),
        table(30, 1, {**T, "index_info": [{**index, "state": WRITE_ONLY}]}),
        job(30, 7, 7, RUNNING, table_id=100),
        table(40, 1, {**T, "index_info": [{**index, "state": 5}]}),
        job(40, 7, 7, DONE, table_id=100),
    )
    assert told(found) == [(40, 7, "d", "t", (("d", "t"),))]


def test_rolled_back_and_cancelled_jobs_say_nothing() -> None:
    assert not events(
        job(20, 7, 5, QUEUEING, table_id=100),
        job(30, 7, 5, ROLLING_BACK, table_id=100),
        table(30, 1, table_info(100, "t", ["id", "v"])),
        job(40, 7, 5, ROLLED_BACK, table_id=100),
        job_gone(50, 7),
    )


HIDDEN = table_info(100, "t", ["id", column(2, "v", state=WRITE_ONLY)])
DROPPED = (
    job(20, 7, 6, QUEUEING, table_id=100),
    table(30, 1, HIDDEN),
    version(30, 1),
    job(30, 7, 6, RUNNING, table_id=100),
)
TAKEN_BACK = (
    job(40, 7, 6, ROLLING_BACK, table_id=100),
    table(50, 1, T),
    version(50, 2),
    job(50, 7, 6, ROLLED_BACK, table_id=100),
    job_gone(60, 7),
)


def test_a_job_that_takes_back_what_it_showed_is_told_again_there() -> None:
    shown, taken_back = events(*DROPPED, *TAKEN_BACK)
    assert (shown.commit_ts, shown.action, shown.schema_version) == (30, "drop column", 1)
    assert (taken_back.commit_ts, taken_back.action, taken_back.schema_version) == (50, "rollback of drop column", 2)
    assert taken_back.query == shown.query
    assert told([taken_back]) == [(50, 7, "d", "t", (("d", "t"),))]


def test_a_rename_that_is_taken_back_is_named_after_it_and_involves_both_names() -> None:
    _, found = events(
        job(20, 7, 14, QUEUEING, table_id=100),
        table(30, 1, table_info(100, "u", ["id", "v"])),
        job(30, 7, 14, RUNNING, table_id=100),
        table(40, 1, T),
        job(40, 7, 14, ROLLED_BACK, table_id=100),
    )
    assert told([found]) == [(40, 7, "d", "t", (("d", "u"), ("d", "t")))]
    assert found.action == "rollback of rename table"


def test_what_was_shown_before_the_snapshot_and_is_taken_back_after_it_is_told() -> None:
    begun = History(10)
    begun.apply([database(10, 1, "d"), table(10, 1, HIDDEN), *TAKEN_BACK])
    (found,) = begun.ddl_events(0, 1000)
    assert (found.commit_ts, found.action) == (50, "rollback of drop column")


def test_a_history_that_begins_anew_between_the_two_tells_the_second() -> None:
    whole = History(10)
    whole.apply([database(10, 1, "d"), table(10, 1, T), *DROPPED])
    later = History(10)
    later.apply([Record(35, 0, whole.base(35)), database(35, 1, "d"), table(35, 1, HIDDEN), *TAKEN_BACK])
    (found,) = later.ddl_events(0, 1000)
    assert (found.commit_ts, found.action) == (50, "rollback of drop column")


def test_a_change_without_its_job_is_no_event() -> None:
    assert not events(table(30, 1, table_info(100, "t", ["id"])), job(31, 7, 6, RUNNING, table_id=100))


def test_two_transactions_of_one_commit_ts_are_told_apart() -> None:
    other = job(30, 8, 17, DONE, table_id=100)
    found = events(
        job(20, 7, 6, QUEUEING, table_id=100),
        job(21, 8, 17, QUEUEING, table_id=100),
        Record(30, 1, other.change),
        table(30, 1, table_info(100, "t", ["id"])),
        version(30, 9),
        job(30, 7, 6, RUNNING, table_id=100),
    )
    assert [(event.job_id, event.schema_version) for event in found] == [(8, 9), (7, 9)]


def test_rename_is_named_after_it_and_involves_both_names() -> None:
    found = events(
        database(15, 3, "e"),
        job(20, 7, 14, QUEUEING, schema_id=3, table_id=100),
        drop(30, 1, 100),
        table(30, 3, table_info(100, "u", ["id", "v"])),
        job(30, 7, 14, RUNNING, schema_id=3, table_id=100),
        job(40, 7, 14, DONE, schema_id=3, table_id=100),
    )
    assert told(found) == [(30, 7, "e", "u", (("d", "t"), ("e", "u")))]
    assert found[0].concerns("d", "t")
    assert found[0].concerns("e", None)
    assert not found[0].concerns("d", "u")


def test_truncate_and_drop_are_named_by_the_name_before() -> None:
    found = events(
        job(20, 7, 11, QUEUEING, table_id=100),
        drop(30, 1, 100),
        table(30, 1, table_info(101, "t", ["id", "v"])),
        job(30, 7, 11, DONE, table_id=100),
        job(31, 8, 4, QUEUEING, table_id=101),
        table(40, 1, table_info(101, "t", ["id", "v"], state=WRITE_ONLY)),
        job(40, 8, 4, RUNNING, table_id=101),
        drop(50, 1, 101),
        job(50, 8, 4, DONE, table_id=101),
    )
    assert told(found) == [(30, 7, "d", "t", (("d", "t"),)), (40, 8, "d", "t", (("d", "t"),))]


def test_exchange_involves_both_tables() -> None:
    found = events(
        table(20, 1, table_info(110, "p", partitions=[111])),
        job(21, 7, 42, QUEUEING, table_id=100),
        table(30, 1, table_info(110, "p", partitions=[100])),
        drop(30, 1, 100),
        table(30, 1, table_info(111, "t", ["id", "v"])),
        job(30, 7, 42, DONE, table_id=100),
    )
    assert told(found) == [(30, 7, "d", "t", (("d", "t"), ("d", "p")))]


def test_drop_schema_involves_its_tables() -> None:
    found = events(
        job(20, 7, 2, QUEUEING, schema_id=1),
        database(30, 1, "d", WRITE_ONLY),
        job(30, 7, 2, RUNNING, schema_id=1),
        drop(40, 1, 100),
        database(40, 1, None),
        job(40, 7, 2, DONE, schema_id=1),
    )
    assert told(found) == [(30, 7, "d", "", (("d", ""), ("d", "t")))]
    assert found[0].action == "drop schema"


def test_create_schema() -> None:
    found = events(
        job(20, 7, 1, QUEUEING, schema_id=9, schema_name="N"),
        database(30, 9, "N"),
        job(30, 7, 1, DONE, schema_id=9, schema_name="N"),
    )
    assert told(found) == [(30, 7, "N", "", (("N", ""),))]


def test_create_tables_in_one_job() -> None:
    found = events(
        job(20, 7, 60, QUEUEING),
        table(30, 1, table_info(101, "a")),
        table(30, 1, table_info(102, "b")),
        job(30, 7, 60, DONE),
    )
    assert told(found) == [(30, 7, "d", "a", (("d", "a"), ("d", "b")))]


def test_placement_policies_have_no_object() -> None:
    found = events(
        job(20, 7, 51, QUEUEING, schema_id=0, schema_name="pol"), job(30, 7, 51, DONE, schema_id=0, schema_name="pol")
    )
    assert told(found) == [(30, 7, "", "", ())]


def test_ddl_of_system_schemas_is_not_shown() -> None:
    assert not events(
        job(20, 7, 3, QUEUEING, schema_id=2, table_id=201, schema_name="mysql", table_name="x"),
        table(30, 2, table_info(201, "x")),
        job(30, 7, 3, DONE, schema_id=2, table_id=201, schema_name="mysql", table_name="x"),
    )


def test_a_job_under_way_at_the_snapshot() -> None:
    """Dropped column: hidden already in the snapshot. Added column: shows later. Comment: nothing to see."""
    found = events(
        job(30, 6, 6, RUNNING, table_id=100),
        job(40, 6, 6, DONE, table_id=100),
        table(50, 1, table_info(100, "t", ["id", "v", "w"])),
        job(50, 7, 5, DONE, table_id=100),
        job(60, 8, 17, DONE, table_id=100),
    )
    assert [(event.commit_ts, event.job_id) for event in found] == [(50, 7), (60, 8)]


def test_the_second_visible_change_of_a_job_under_way_at_the_snapshot_is_not_its_first() -> None:
    found = events(
        drop(30, 1, 100),
        table(30, 1, table_info(101, "t", ["id", "v"])),
        job(30, 7, 72, DONE, table_id=100),
        job(40, 8, 72, RUNNING, table_id=101),
        table(50, 1, table_info(101, "t", ["id", "v"], partitions=[102])),
        job(50, 8, 72, RUNNING, table_id=101),
    )
    assert [(event.commit_ts, event.job_id) for event in found] == [(50, 8)]


def test_filters_by_name_and_window() -> None:
    found = History(10)
    found.apply(
        [
            database(10, 1, "d"),
            table(10, 1, T),
            job(20, 7, 17, DONE, table_id=100, existed=False),
            job(30, 8, 17, DONE, table_id=100, existed=False),
        ]
    )
    assert [event.job_id for event in found.ddl_events(20, 30)] == [8]
    assert [event.job_id for event in found.ddl_events(10, 20, "D")] == [7]
    assert len(found.ddl_events(10, 30, "D", "T")) == 2
    assert not found.ddl_events(10, 30, "d", "u")
    assert not found.ddl_events(10, 30, "e")
