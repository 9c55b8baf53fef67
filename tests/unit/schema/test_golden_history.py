"""The history of a real TiDB, against what that TiDB says of itself (tests/data/golden)."""

from __future__ import annotations

import functools

import polars as pl
import pytest

from support import ddl_oracle, golden
from tistream.schema.history import History
from tistream.schema.tidb.meta_change import DDL_JOB_SPAN, DDL_JOB_TABLE_ID, META_TABLE_ID, MetaDecoder, MetaRow
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.schema.tidb.sql_type import sql_type


@functools.cache
def committed(name: str) -> pl.DataFrame:
    data = golden.load(name)
    return golden.committed_rows(data.name)


@functools.cache
def history(name: str) -> History:
    data = golden.load(name)
    snapshot = parse_snapshot(data.schema_snap.key, data.schema_snap.data)
    assert snapshot.snapshot_ts == data.snapshot_ts
    decoder = MetaDecoder()
    for record in snapshot.records:
        decoder.learn(record)
    records = list(snapshot.records)
    for row in committed(name).iter_rows(named=True):
        job = row["key"] in DDL_JOB_SPAN
        if not job and row["key"][:1] != b"m":
            continue
        value = row["value"] if row["op"] == 1 else None
        table_id = DDL_JOB_TABLE_ID if job else META_TABLE_ID
        meta = MetaRow(table_id, row["commit_ts"], row["start_ts"], row["key"], value, row["old_value"])
        record = decoder.decode(meta)
        if record is not None:
            records.append(record)
    out = History(snapshot.snapshot_ts)
    out.apply(records)
    out.advance(data.end_ts)
    return out


@pytest.mark.parametrize("name", golden.NAMES)
def test_every_finished_job_is_an_event(name: str) -> None:
    wanted = {job["job_id"]: job for job in golden.load(name).expected("ddl")}
    events = history(name).ddl_events(0, 2**62)
    assert sorted(event.job_id for event in events) == sorted(wanted)
    for event in events:
        job = wanted[event.job_id]
        assert event.query == job["query"]
        assert event.commit_ts <= int(job["finished_ts"])
        assert event.schema_version <= job["schema_version"]
        assert (job["database"], job["table"]) in {
            (event.database, event.table),
            *event.involved,
            # what TiDB's history has of a rename is the new database with the old name, and of RENAME TABLES a
            # name that the table had on the way
            ("other", "ddl2"),
            ("shop", "swap_tmp"),
        }


@pytest.mark.parametrize("name", golden.NAMES)
def test_events_stand_where_select_changes(name: str) -> None:
    positions = ddl_oracle.positions(committed(name), golden.load(name).schema_snap.data)
    events = history(name).ddl_events(0, 2**62)
    assert [(event.job_id, event.commit_ts, event.schema_version) for event in events] == [
        (position.job_id, position.commit_ts, position.schema_version) for position in positions
    ]


@pytest.mark.parametrize("name", golden.NAMES)
def test_every_changed_row_is_read_under_its_name_with_its_columns(name: str) -> None:
    data = golden.load(name)
    columns = data.expected("columns")
    for commit in data.expected("rows"):
        ts = int(commit["commit_ts"])
        for changed in commit["tables"]:
            wanted = [(column["name"], column["type"]) for column in columns[changed["columns"]]["columns"]]
            (table,) = history(name).tables_named(changed["database"], changed["table"], ts - 1, ts)
            assert table.physical_ids
            for physical_id in table.physical_ids:
                version = history(name).table_at(physical_id, ts)
                assert version is not None
                assert version.name == (changed["database"], changed["table"])
                shown = [(column.name, sql_type(column)) for column in version.table.visible_columns]
                assert shown == wanted


@pytest.mark.parametrize("name", golden.NAMES)
def test_only_rows_that_select_shows_are_visible(name: str) -> None:
    """Every committed record is of a known table, and at commits that changed no row for SELECT none is of a table
    with rows to show, but for puts that change nothing."""
    shown = {int(commit["commit_ts"]) for commit in golden.load(name).expected("rows")}
    for row in committed(name).iter_rows(named=True):
        key = row["key"]
        if key[:1] != b"t" or key[9:11] != b"_r":
            continue
        physical_id = int.from_bytes(key[1:9], "big") - 2**63
        assert history(name).ever_had_id(physical_id)
        visible = history(name).table_at(physical_id, row["commit_ts"])
        if visible is not None and row["op"] == 2 and row["old_value"] is not None:
            assert row["commit_ts"] in shown


@pytest.mark.parametrize("name", golden.NAMES)
def test_system_schemas_are_not_listed(name: str) -> None:
    listed = history(name).databases(golden.load(name).end_ts)
    assert listed == {"everything": ["shop", "test", "types"], "large": ["test", "wide"]}[name]
