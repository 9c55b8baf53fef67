"""A recorded cluster as a BR full backup: its chunks hold the rows of every table, and its schema is recorded too."""

from __future__ import annotations

import random

import polars as pl
import pyarrow as pa
import pytest

from support.cut_set import CutSet, commit_timestamps, cut
from tistream.errors import CorruptObject, InvalidRequest
from tistream.format.backfill.base_chunk import ChunkId
from tistream.schema.history import History
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.backups.backup_reader import open_backup, read_pairs, read_schema_snap
from tistream.storage.chunk_reader import open_chunk, read_chunk
from tistream_ingest.backfill.chunk_job import BackupWork, write_backup_chunks
from tistream_ingest.backfill.chunk_units import BackupPlan, plan_backup
from tistream_ingest.jobs.chunk_put import ChunksWritten
from tistream_ingest.plan.requested_tables import RequestedTable, requested_tables


def bucket(objects: dict[str, bytes]) -> MemoryObjectStore:
    store = MemoryObjectStore()
    for name, body in objects.items():
        store.put(name, body)
    return store


def planned(backup: MemoryObjectStore) -> tuple[list[RequestedTable], BackupPlan]:
    """Every table of a backup, planned from nothing but its objects."""
    found = open_backup(backup)
    snapshot = parse_snapshot("snap", read_schema_snap(backup, found))
    history = History(snapshot.snapshot_ts)
    history.apply(snapshot.records)
    ts = snapshot.snapshot_ts
    visible = [version for name in history.databases(ts) for version in history.visible_tables(ts, name)]
    asked = requested_tables(["*.*"], visible)
    spans = [span for table in asked for span in table.spans]
    return asked, plan_backup(spans, read_pairs(backup, found), found.end_version)


def written(
    made: CutSet, objects: MemoryObjectStore, backup: MemoryObjectStore, plan: BackupPlan
) -> list[ChunksWritten]:
    works = [BackupWork(made.set_.tenant, "b1", made.t0, unit) for unit in plan.units]
    return [write_backup_chunks(objects, backup, work) for work in works]


def rows_of(made: CutSet, objects: MemoryObjectStore, plan: BackupPlan) -> pl.DataFrame:
    tables: list[pa.Table] = []
    for number, span in enumerate(plan.plan.spans):
        chunk = open_chunk(objects, ChunkId(made.set_.tenant, "b1", number))
        assert (chunk.span, chunk.base_ts) == (span, made.t0)
        tables += read_chunk(objects, chunk)
    found = pl.from_arrow(pa.concat_tables(tables))
    assert isinstance(found, pl.DataFrame)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_chunks_of_a_backup_hold_the_rows_of_every_table(seed: int) -> None:
    rng = random.Random(seed)
    made = cut("everything", rng.choice(commit_timestamps("everything")[300:]))
    backup = bucket(made.backup(seed, version=seed % 2))
    asked, plan = planned(backup)
    assert sorted(one for table in asked for one in table.physical_ids) == made.physical_ids(made.t0)
    objects = MemoryObjectStore()
    results = written(made, objects, backup, plan)
    assert [result.failed for result in results] == [None] * len(results)
    assert sum(result.written for result in results) == len(plan.plan.spans)
    visible = made.state(made.t0).filter(pl.col("table_id").is_in(made.physical_ids(made.t0)))
    assert rows_of(made, objects, plan).equals(visible.select("key", "value", "commit_ts"))
    again = written(made, objects, backup, plan)
    assert sum(result.there for result in again) == len(plan.plan.spans)
    assert sum(result.written for result in again) == 0


def test_two_processes_write_the_same_bytes() -> None:
    made = cut("everything", commit_timestamps("everything")[900])
    backup = bucket(made.backup(1))
    _, plan = planned(backup)
    one, two = MemoryObjectStore(), MemoryObjectStore()
    written(made, one, backup, plan)
    written(made, two, backup, plan)
    keys = [info.key for info in one.list_after("base_buffer/")]
    assert len(keys) == len(plan.plan.spans)
    assert all(one.get(key) == two.get(key) for key in keys)


def test_a_damaged_file_fails_its_unit_alone() -> None:
    made = cut("everything", commit_timestamps("everything")[900])
    backup = bucket(made.backup(1))
    _, plan = planned(backup)
    unit = next(unit for unit in plan.units if unit.pair is not None)
    assert unit.pair is not None
    name = unit.pair.write.name
    backup.put(name, backup.get(name)[:-9] + b"x" * 9)
    objects = MemoryObjectStore()
    results = written(made, objects, backup, plan)
    failed = [result for result in results if result.failed is not None]
    assert len(failed) == 1
    assert name in (failed[0].failed or "")
    assert not failed[0].retry


def test_a_folder_without_a_finished_backup_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="there is no object `backupmeta`"):
        open_backup(MemoryObjectStore())
    backup = bucket({"backupmeta": b"\x08\x07"})
    with pytest.raises(CorruptObject, match="is the backupmeta of a log backup"):
        open_backup(backup)
