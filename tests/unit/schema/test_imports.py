"""A table's imports are a property of the schema history, and decide what of it is served."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.schema_records import database, drop, table, table_info
from tistream.model.ids import TenantKey
from tistream.schema.base import restated
from tistream.schema.history import History
from tistream.schema.imports import ImportModes, ImportPeriod, problem
from tistream.schema.log_format import BaseHead, LogObject, decode, encode
from tistream.schema.records import Record, RestoredTables, from_json, to_json


def history(*records: Record) -> History:
    """Snapshot at 10: database d (1) with table t (100)."""
    out = History(10)
    out.apply([database(10, 1, "d"), table(10, 1, table_info(100, "t")), *records])
    out.advance(1000)
    return out


IMPORTING: dict[str, Any] = {"mode": 1}
RESTORING: dict[str, Any] = {"mode": 2}


@pytest.mark.parametrize("mode", [IMPORTING, RESTORING])
def test_an_import_lasts_while_the_mode_is_set(mode: dict[str, Any]) -> None:
    begun = table(20, 1, table_info(100, "t", **mode))
    assert history(begun).imports() == {100: ImportPeriod(20, None)}
    ended = table(30, 1, table_info(100, "t"))
    found = history(begun, ended, table(40, 1, table_info(100, "t", ["id", "v"])))
    assert found.imports([100, 7]) == {100: ImportPeriod(20, 30)}
    assert found.ddl_events(10, 100) == []


def test_a_second_import_is_held_from_the_first_on() -> None:
    times: list[tuple[int, dict[str, Any]]] = [(20, IMPORTING), (30, {}), (40, IMPORTING), (50, {})]
    found = history(*(table(ts, 1, table_info(100, "t", **mode)) for ts, mode in times))
    assert found.imports() == {100: ImportPeriod(20, 50)}


def test_partitions_are_imported_with_their_table_and_dropped_ids_are_forgotten() -> None:
    found = history(
        table(20, 1, table_info(110, "p", partitions=[111, 112], **IMPORTING)),
        table(30, 1, table_info(110, "p", partitions=[111, 112])),
        table(40, 1, table_info(110, "p", partitions=[111, 113])),
    )
    assert found.imports() == {111: ImportPeriod(20, 30)}
    importing = table(20, 1, table_info(100, "t", **IMPORTING))
    gone = history(importing, drop(30, 1, 100), table(30, 1, table_info(101, "t")))
    assert gone.imports() == {}, "TRUNCATE begins an empty table"


def test_a_base_and_retention_keep_what_has_ended() -> None:
    found = history(table(20, 1, table_info(100, "t", **IMPORTING)), table(30, 1, table_info(100, "t")))
    assert found.base(25).imports == ()
    record = from_json(to_json(Record(60, 0, found.base(60))))
    later = History(60)
    later.apply([database(60, 1, "d"), table(60, 1, table_info(100, "t")), record])
    assert later.imports() == {100: ImportPeriod(20, 30)}
    found.forget(60)
    assert found.imports() == {100: ImportPeriod(20, 30)}


def restored(ts: int, from_ts: int, to_ts: int, *ids: int) -> Record:
    """The mark of a restore by BR."""
    return Record(ts, ts - 1, RestoredTables("R1_S1.meta", from_ts, to_ts, ids))


def test_a_restore_by_br_holds_its_tables_and_their_partitions_and_no_others() -> None:
    found = history(
        table(20, 1, table_info(110, "p", partitions=[111, 112])),
        table(21, 1, table_info(120, "q", partitions=[121, 122])),
        restored(30, 15, 28, 110, 122, 999),
    )
    assert found.imports() == {111: ImportPeriod(15, 28), 112: ImportPeriod(15, 28), 122: ImportPeriod(15, 28)}
    assert found.imports([100]) == {}
    assert found.ddl_events(10, 100) == []


def test_a_restore_by_br_and_an_import_of_one_table_are_held_as_one() -> None:
    begun, ended = table(20, 1, table_info(100, "t", **IMPORTING)), table(40, 1, table_info(100, "t"))
    assert history(begun, restored(30, 15, 28, 100)).imports() == {100: ImportPeriod(15, None)}
    assert history(begun, ended, restored(50, 45, 50, 100)).imports() == {100: ImportPeriod(20, 50)}
    assert history(restored(19, 15, 19, 100), begun).imports() == {100: ImportPeriod(15, None)}


def test_a_restore_by_br_is_kept_in_the_schema_log_and_in_a_base() -> None:
    mark = restored(30, 15, 28, 100)
    records = (database(10, 1, "d"), table(10, 1, table_info(100, "t")), mark)
    assert from_json(to_json(mark)) == mark
    assert history(mark).base(60).imports == ((100, 15, 28),)
    assert [change for change in restated(records, 60, history(mark).base(60)) if change.change == mark.change] == []


def test_a_schema_log_with_a_restore_by_br_is_refused_by_programs_that_know_none() -> None:
    plain = LogObject(TenantKey("7", "acme"), 2, 10, 60, "n", (table(20, 1, table_info(100, "t")),))
    marked = replace(plain, records=(*plain.records, restored(30, 15, 28, 100)))
    assert (encode(plain)[4], encode(marked)[4]) == (1, 3)
    assert decode("k", encode(marked)) == marked
    head = BaseHead(30, 2, 2, "log", 10)
    assert encode(replace(marked, base=head))[4] == 4
    assert decode("k", encode(replace(marked, base=head))).base == head


def test_a_base_without_imports_is_written_as_before() -> None:
    assert "imports" not in to_json(Record(60, 0, history().base(60)))


@pytest.mark.parametrize(
    ("base_ts", "low", "high", "told"),
    [
        (None, 10, 20, None),  # all of it lies before the import
        (None, 10, 21, "backfill it as of"),
        (29, 40, 50, "backfill it as of"),
        (30, 40, 50, None),
        (35, 30, 50, None),
        (35, 29, 50, "begin with a snapshot as of 35"),
    ],
)
def test_changes_are_served_up_to_an_import_and_from_a_backfill_on(
    base_ts: int | None, low: int, high: int, told: str | None
) -> None:
    reason = problem(ImportPeriod(20, 30), base_ts, low, high)
    assert reason is None if told is None else told in (reason or "")


def test_while_it_runs_no_backfill_ends_the_hold() -> None:
    assert "has ended" in (problem(ImportPeriod(20, None), 99, 99, 100) or "")
    imports = ImportModes()
    imports.end([1], 5)
    assert imports.ids() == []
