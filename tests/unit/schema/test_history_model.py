"""History against the obvious: a full copy of the visible schema after every commit."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.schema_records import PUBLIC, WRITE_ONLY, database, drop, table, table_info
from tistream.schema.history import History
from tistream.schema.records import DatabaseChange, Record, TableChange
from tistream.schema.visible import SYSTEM_SCHEMAS

SNAPSHOT_TS = 1
DATABASES = {1: "a", 2: "B", 3: "mysql"}
Visible = dict[int, tuple[str, str, tuple[int, ...]]]  # table id -> database, table, physical ids


@st.composite
def commits(draw: st.DrawFn) -> list[list[Record]]:
    """Commits of one to three changes, each of another key; a name may pass from one table to another."""
    out = [[database(SNAPSHOT_TS, one, name) for one, name in DATABASES.items()]]
    for ts in range(2, draw(st.integers(3, 12))):
        records: dict[Any, Record] = {}
        for _ in range(draw(st.integers(1, 3))):
            database_id = draw(st.sampled_from(sorted(DATABASES)))
            if draw(st.integers(0, 9)) == 0:
                state = draw(st.sampled_from([PUBLIC, WRITE_ONLY]))
                records["db", database_id] = database(ts, database_id, DATABASES[database_id], state)
                continue
            table_id = draw(st.integers(101, 104))
            if draw(st.integers(0, 3)) == 0:
                records[database_id, table_id] = drop(ts, database_id, table_id)
                continue
            partitions = draw(st.sampled_from([None, [table_id + 100], [table_id + 100, table_id + 200]]))
            info = table_info(
                table_id,
                f"t{table_id}{draw(st.sampled_from('xY'))}",
                ["id", "v"][: draw(st.integers(1, 2))],
                state=draw(st.sampled_from([PUBLIC, PUBLIC, WRITE_ONLY])),
                partitions=partitions,
            )
            records[database_id, table_id] = table(ts, database_id, info)
        out.append(list(records.values()))
    return out


def replay(committed: list[list[Record]]) -> list[Visible]:
    """The visible tables after each commit; index = ts - 1."""
    databases: dict[int, bool] = {}
    tables: dict[int, dict[int, Any]] = {}
    out = []
    for records in committed:
        for record in records:
            change = record.change
            if isinstance(change, DatabaseChange):
                databases[change.database_id] = change.info is not None and change.info["state"] == PUBLIC
            elif isinstance(change, TableChange):
                places = tables.setdefault(change.table_id, {})
                places.pop(change.database_id, None)
                if change.text is not None:
                    places[change.database_id] = change.text.info()
        visible: Visible = {}
        for table_id, places in tables.items():
            for database_id, info in places.items():
                if not databases[database_id] or DATABASES[database_id] in SYSTEM_SCHEMAS or info["state"] != PUBLIC:
                    continue
                partitions = info.get("partition")
                ids = tuple(one["id"] for one in partitions["definitions"]) if partitions else (table_id,)
                visible.setdefault(table_id, (DATABASES[database_id], info["name"]["O"], ids))
        out.append(copy.deepcopy(visible))
    return out


def built(committed: list[list[Record]]) -> History:
    history = History(SNAPSHOT_TS)
    for records in committed:
        history.apply(records)
    return history


@settings(max_examples=examples(150), deadline=None)
@given(commits())
def test_visible_tables_and_names_at_every_ts(committed: list[list[Record]]) -> None:
    history = built(committed)
    for ts, visible in enumerate(replay(committed), start=1):
        for physical_id in [*range(101, 105), *range(201, 205), *range(301, 305)]:
            found = history.table_at(physical_id, ts + 1)
            owner = next((one for one in visible.values() if physical_id in one[2]), None)
            assert (found and found.name) == (owner and owner[:2])
        for name in ("a", "B"):
            listed = history.tables(ts, name.swapcase())
            wanted = sorted(table for database_name, table, _ in visible.values() if database_name == name)
            assert sorted(one.name for one in listed or ()) == wanted


@settings(max_examples=examples(100), deadline=None)
@given(commits(), st.integers(1, 13), st.integers(1, 13))
def test_runs_and_bearers_cover_the_window(committed: list[list[Record]], low: int, high: int) -> None:
    history = built(committed)
    states = replay(committed)
    runs = history.versions_of(201, low, high)
    at = [(ts, version) for start, end, version in runs for ts in range(start + 1, end + 1)]
    assert at == [(ts, history.table_at(201, ts)) for ts in range(low + 1, high + 1)]
    borne = {
        (ts, bearer.table_id, bearer.physical_ids)
        for bearer in history.tables_named("a", None, low, high)
        for ts in range(bearer.from_ts + 1, bearer.to_ts + 1)
    }
    wanted = {
        (ts, table_id, ids)
        for ts in range(low + 1, high + 1)
        for table_id, (name, _, ids) in states[min(ts - 1, len(states)) - 1].items()
        if name == "a"
    }
    assert borne == wanted


@settings(max_examples=examples(100), deadline=None)
@given(commits(), st.integers(1, 13))
def test_gc_changes_no_answer_above_it(committed: list[list[Record]], before: int) -> None:
    kept, forgetful = built(committed), built(committed)
    forgetful.forget(before)
    for ts in range(before, 15):
        assert forgetful.databases(ts) == kept.databases(ts)
        assert forgetful.tables(ts, "a") == kept.tables(ts, "a")
        assert forgetful.table_at(201, ts + 1) == kept.table_at(201, ts + 1)
    assert forgetful.tables_named("b", None, before, 20) == kept.tables_named("b", None, before, 20)
    assert forgetful.versions_of(102, before, 20) == kept.versions_of(102, before, 20)
