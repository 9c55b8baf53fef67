"""Backfills from a recorded BR full backup: the runner writes chunks, real sorter tasks take them, and it ends."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from support import spark
from support.golden_tidb import GoldenTidb
from support.runner_world import DAY_MS, RunnerWorld
from tistream.errors import Unavailable
from tistream.format.backfill.base_chunk import ChunkId
from tistream.format.backfill.chunk_plan import ChunkPlan, encode_plan
from tistream.model.base_cover import Hole, base_ts_of
from tistream.schema.tidb.meta_change import record_span
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.backends.tenant_keys import TenantKeys
from tistream.storage.chunk_reader import open_chunk, read_chunk
from tistream.storage.object_store import ObjectStore
from tistream.wire.bulk.backfills import EndBackfill
from tistream_ingest.backfill.backfill_runner import BackfillRunner
from tistream_ingest.backfill.chunk_job import BackupWork
from tistream_ingest.backfill.spark_writer import SparkChunkWriter


class Killed(BaseException):
    """The process is killed."""


class DyingStore(MemoryObjectStore):
    """Kills the process at its put number `dies_at` of an object of a backfill, before or after the object is there."""

    dies_at, after, puts = 0, False, 0

    def _write(self, key: str, body: bytes) -> None:
        dies = False
        if key.startswith("base_buffer/"):
            self.puts += 1
            dies = self.puts == self.dies_at
        if not dies or self.after:
            super()._write(key, body)
        if dies:
            raise Killed


def test_a_pattern_without_a_table_ends_the_backfill_and_its_reason_names_tables_that_are_like_it() -> None:
    one = RunnerWorld()
    version = one.made.tables(one.made.t0)[0]
    table = f"{version.database}.{version.head.name}"
    one.start("b1", table + "x")
    one.run(turns=2)
    end = one.book.ended["b1"]
    assert end.state == "failed"
    assert end.reason is not None
    assert f"matches '{table}x': there are" in end.reason
    assert table in end.reason.split("there are")[1]


def test_every_table_of_a_backup_is_complete_at_its_ts() -> None:
    one = RunnerWorld(tasks=3)
    one.start("b1", "*.*")
    one.run()
    assert one.book.ended["b1"] == EndBackfill(state="finished")
    cover = one.cover(one.tenant)
    for table_id in one.made.physical_ids(one.made.t0):
        assert base_ts_of(cover, [record_span(table_id)]) == one.made.t0
    assert one.objects.get(layout.backfill_done(one.tenant, "b1"))


def test_only_the_tables_asked_for_are_read() -> None:
    one = RunnerWorld()
    version = one.made.tables(one.made.t0)[0]
    one.start("b1", f"{version.database}.{version.head.name}")
    one.run()
    assert one.book.ended["b1"] == EndBackfill(state="finished")
    cover = one.cover(one.tenant)
    known = [one_id for one_id in one.made.physical_ids(one.made.t0)
             if not isinstance(base_ts_of(cover, [record_span(one_id)]), Hole)]  # fmt: skip
    assert known == sorted(version.head.physical_ids)


def test_a_killed_runner_goes_on_and_two_do_the_same() -> None:
    one = RunnerWorld()
    one.start("b1", "*.*")
    one.runner.step()
    one.runner = one.new_runner()
    assert one.new_runner().step()
    one.run()
    assert one.book.ended["b1"] == EndBackfill(state="finished")


def test_a_runner_may_be_killed_at_any_put_and_leaves_the_same_objects() -> None:
    def work(runner: BackfillRunner) -> None:
        while runner.step():
            pass

    def written(one: RunnerWorld) -> dict[str, bytes]:
        return {info.key: one.objects.get(info.key) for info in one.objects.list_after("base_buffer/")}

    calm = RunnerWorld(objects=DyingStore())
    tables = [f"{one.database}.{one.head.name}" for one in calm.made.tables(calm.made.t0)[:4]]
    calm.start("b1", *tables)
    work(calm.runner)
    wanted = written(calm)
    assert len(wanted) > 5
    for number in range(1, len(wanted) + 1):
        store = DyingStore()
        store.dies_at, store.after = number, bool(number % 2)
        one = RunnerWorld(objects=store)
        one.backup = calm.backup
        one.start("b1", *tables)
        with pytest.raises(Killed):
            work(one.runner)
        one.runner = one.new_runner()  # the next process
        work(one.runner)
        assert written(one) == wanted, f"killed at put {number}"


@pytest.mark.parametrize(
    ("tables", "snapshot", "reason"),
    [
        (["nothing.*"], None, r"no table of the backup matches 'nothing\.\*'"),
        (["*.*"], 1, "the backup is as of"),
    ],
)
def test_what_cannot_work_ends_with_its_reason(tables: list[str], snapshot: int | None, reason: str) -> None:
    one = RunnerWorld()
    later = None if snapshot is None else one.made.t0 + snapshot
    one.start("b1", *tables, snapshot_ts=later)
    one.runner.step()
    end = one.book.ended["b1"]
    assert end.state == "failed"
    assert re.search(reason, end.reason or "")


def test_another_bucket_and_damaged_files_end_it_and_other_backfills_go_on() -> None:
    one = RunnerWorld()
    one.start("b1", "*.*")
    name = next(info.key for info in one.backup.list_after("1/"))
    one.backup.put(name, one.backup.get(name)[:-9] + b"x" * 9)
    one.start("p1", "*.*", kind="push")
    one.start("s1", "*.*", kind="sql")
    one.run(turns=3)
    assert name in (one.book.ended["b1"].reason or "")
    assert "TISTREAM_INGEST__BACKFILL_DSN_DIR" in (one.book.ended["s1"].reason or "")
    assert "p1" not in one.book.ended, "its plan has not been pushed"
    one.backup = MemoryObjectStore()
    one.start("b2", "*.*")
    one.runner = one.new_runner()
    one.runner.step()
    assert "there is no object `backupmeta`" in (one.book.ended["b2"].reason or "")


def test_an_object_store_that_does_not_answer_is_waited_for() -> None:
    one = RunnerWorld()
    one.start("b1", "*.*")

    def down(_: str) -> ObjectStore:
        raise Unavailable("it is down")

    one.runner.open_backup_store = down
    assert not one.runner.step()
    assert one.book.ended == {}
    one.runner.open_backup_store = lambda _: one.backup
    one.run()
    assert one.book.ended["b1"].state == "finished"


def test_a_pushed_backfill_without_a_plan_is_cancelled_after_its_deadline() -> None:
    """Until then retention waits for it."""
    one = RunnerWorld()
    one.start("p1", "*.*", kind="push")
    one.clock.advance(DAY_MS - 1)
    one.runner.step()
    assert one.book.ended == {}
    one.clock.advance(1)
    one.runner.step()
    end = one.book.ended["p1"]
    assert end.state == "cancelled"
    assert "TISTREAM_INGEST__PLAN_WAIT_MS" in (end.reason or "")


def test_a_pushed_backfill_with_a_plan_has_no_deadline() -> None:
    one = RunnerWorld()
    one.start("p1", "*.*", kind="push")
    plan = ChunkPlan((record_span(one.made.physical_ids(one.made.t0)[0]),), one.made.t0)
    one.objects.put_new(layout.backfill_plan(one.tenant, "p1"), encode_plan(plan))
    one.clock.advance(10 * DAY_MS)
    one.runner.step()
    assert one.book.ended == {}


def test_a_refused_chunk_ends_the_backfill_with_its_reason() -> None:
    one = RunnerWorld()
    one.start("b1", "*.*")
    while one.runner.step():
        pass
    span_of = one.runner._plans[one.tenant, "b1"].plan.spans
    number = next(n for n, span in enumerate(span_of) if one.made.chunk_rows(span, one.made.t0).num_rows)
    key = layout.base_chunk(one.tenant, "b1", number)
    body = one.objects.get(key)
    one.objects.put(key, body[:40] + bytes([body[40] ^ 1]) + body[41:])
    one.run()
    end = one.book.ended["b1"]
    assert end.state == "failed"
    assert "chunks were refused; the first is" in (end.reason or "")


@pytest.mark.spark
def test_spark_writes_the_same_chunks_of_a_backup_and_of_a_server(tmp_path: Path) -> None:
    one = RunnerWorld()
    one.start("b1", "*.*")
    while one.runner.step():
        pass
    backup = DirectoryObjectStore(tmp_path / "backup")
    for info in one.backup.list_after(""):
        backup.put(info.key, one.backup.get(info.key))
    units = one.runner._plans[one.tenant, "b1"].units[:12]
    works = [BackupWork(one.tenant, "b1", one.made.t0, unit) for unit in units]
    one.tidb = GoldenTidb(one.made, one.made.set_.end_ts, encodes_keys=True)
    with one.tidb.serving(), spark.local_session(spark.INGEST) as session:
        writer = SparkChunkWriter(lambda: session.sparkContext, str(tmp_path / "objects"), TenantKeys())
        results = writer.write(str(tmp_path / "backup"), works)
        one.book.rows.clear()
        one.start("s1", "shop.orders", kind="sql", threads=6)
        one.runner.step()
        begun = len(one.tidb.reads)
        by_sql = writer.write_sql(one.tidb.url, one.works)
        assert len(one.tidb.reads) > begun, "executors read the server"
    assert [result.failed for result in results] == [None] * len(works)
    assert [(result.failed, result.written) for result in by_sql] == [(None, 1)] * 6
    written = DirectoryObjectStore(tmp_path / "objects")
    keys = [layout.base_chunk(one.tenant, "b1", number) for unit in units for number, _ in unit.chunks]
    assert [written.get(key) for key in keys] == [one.objects.get(key) for key in keys]
    for work in one.works:
        mine, theirs = (
            pa.concat_tables(read_chunk(store, open_chunk(store, ChunkId(one.tenant, "s1", work.number))))
            for store in (one.objects, written)
        )
        assert mine.equals(theirs)
