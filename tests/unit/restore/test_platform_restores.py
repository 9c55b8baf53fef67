"""A restore into Parquet and SQL files that is killed at any chunk goes on, has every row once, and is what SELECT
showed; of two processes one has the restore."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from support.restore_runs import ACME, Killed, Process, RestoreRuns
from tistream.errors import ClaimEnded
from tistream.wire.bulk.restores import IfExists, ParquetPlace, SqlFilesPlace
from tistream_ingest.restore.object_targets import ParquetObjects, SqlObjects
from tistream_ingest.restore.restore_attempt import RestoreRefused

BIG = ("shop", "big")
TABLES = [BIG, ("shop", "p_hash"), ("shop", "temp_like"), ("shop", "ntbl"), ("types", "everything")]
KILLED_AT = (0, 1, 4, 7, 8)  # of the chunks of BIG


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestoreRuns:
    monkeypatch.setattr(ParquetObjects, "chunk_rows", 600)
    monkeypatch.setattr(SqlObjects, "chunk_rows", 600)
    return RestoreRuns(tmp_path)


def rows(runs: RestoreRuns, place: str, name: tuple[str, str]) -> pl.DataFrame:
    """The rows in the files of a table."""
    files = sorted((runs.folder / "targets" / place / ".".join(name)).glob("*.parquet"))
    return pl.concat([pl.read_parquet(one) for one in files]) if files else pl.DataFrame()


def wanted(runs: RestoreRuns, name: tuple[str, str], ts: int) -> list[dict[str, object]]:
    return [line["row"] for line in runs.points.lines(*name, ts)]


def check_big(runs: RestoreRuns, place: str, ts: int) -> None:
    found = rows(runs, place, BIG)
    expected = wanted(runs, BIG, ts)
    assert expected
    (first, *_) = expected[0]
    assert sorted(str(one) for one in found[first]) == sorted(str(one[first]) for one in expected)
    assert sorted(map(repr, found.cast(pl.String).rows())) == sorted(
        repr(tuple(None if value is None else str(value) for value in one.values())) for one in expected
    )


def test_tables_are_what_they_were_at_the_ts_and_their_checksums_are_reported(runs: RestoreRuns) -> None:
    ts = runs.points.world.end_ts
    name = runs.queue(ParquetPlace(kind="parquet", url=runs.url("a")), ts, *TABLES)
    runs.claim().attempt()
    info = runs.info(name)
    assert (info.state, info.reason) == ("done", None)
    assert sum(runs.metered) == sum(len(wanted(runs, one, ts)) for one in TABLES)
    counts = {(one.database, one.table): one.rows for one in info.tables}
    assert counts == {one: len(wanted(runs, one, ts)) for one in TABLES}
    assert all(one.rows_done == one.rows and one.checksum for one in info.tables)
    check_big(runs, "a", ts)
    for one in TABLES:
        assert "CREATE TABLE" in (runs.folder / "targets" / "a" / ".".join(one) / "schema.sql").read_text()
    left = [one.key for one in runs.points.world.objects.list_after("restore/")]
    assert not [key for key in left if name in key], "the plan is not needed any more"


def test_an_earlier_ts_has_the_rows_of_then(runs: RestoreRuns) -> None:
    base, end = runs.points.base_ts, runs.points.world.end_ts
    for at, ts in enumerate((base, base + (end - base) * 2 // 3)):
        if not runs.points.exists(*BIG, ts):
            continue
        runs.queue(ParquetPlace(kind="parquet", url=runs.url(str(at))), ts, BIG)
        runs.claim().attempt()
        assert len(rows(runs, str(at), BIG)) == len(wanted(runs, BIG, ts))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", KILLED_AT)
def test_a_process_that_is_killed_at_a_chunk_is_followed_by_one_that_goes_on(
    runs: RestoreRuns, at: int, after: bool
) -> None:
    ts = runs.points.world.end_ts
    name = runs.queue(ParquetPlace(kind="parquet", url=runs.url("a")), ts, BIG)
    objects = runs.points.world.objects
    with pytest.raises(Killed):
        runs.claim(Process(objects, at=at, after=after)).attempt()
    runs.lease_ends()
    rest = Process(objects)
    runs.claim(rest).attempt()
    info = runs.info(name)
    assert info.state == "done"
    (table,) = info.tables
    assert table.rows == table.rows_done == 4800
    files = len(list((runs.folder / "targets" / "a" / "shop.big").glob("*.parquet")))
    assert rest.written == files - at - after, "only the chunks that were missing are written"
    check_big(runs, "a", ts)


def test_a_process_that_lost_the_restore_stops_and_its_chunks_do_no_harm(runs: RestoreRuns) -> None:
    ts = runs.points.world.end_ts
    name = runs.queue(ParquetPlace(kind="parquet", url=runs.url("a")), ts, BIG)
    overtaken: list[bool] = []

    def overtake() -> None:
        if not overtaken:
            overtaken.append(True)
            runs.lease_ends()
            runs.claim().attempt()

    with pytest.raises(ClaimEnded):
        runs.claim(Process(runs.points.world.objects, meanwhile=overtake)).attempt()
    assert runs.info(name).state == "done"
    check_big(runs, "a", ts)


def test_a_cancelled_restore_ends_at_the_next_lot(runs: RestoreRuns) -> None:
    ts = runs.points.world.end_ts
    name = runs.queue(ParquetPlace(kind="parquet", url=runs.url("a")), ts, BIG)

    def cancel() -> None:
        runs.book.cancel(ACME, name)

    process = Process(runs.points.world.objects, meanwhile=cancel)
    with pytest.raises(ClaimEnded, match="cancelled"):
        runs.claim(process).attempt()
    assert process.written == 2 * process.slots
    assert runs.info(name).state == "cancelled"


def test_a_table_that_is_there_is_named_before_a_row_is_written(runs: RestoreRuns) -> None:
    ts, place = runs.points.world.end_ts, ParquetPlace(kind="parquet", url=runs.url("a"))
    runs.queue(place, ts, ("shop", "ntbl"))
    runs.claim().attempt()
    before = (runs.folder / "targets" / "a" / "shop.ntbl" / "restore.json").read_bytes()
    runs.queue(place, ts, BIG, ("shop", "ntbl"))
    with pytest.raises(RestoreRefused, match=r"shop\.ntbl is there"):
        runs.claim().attempt()
    assert not (runs.folder / "targets" / "a" / "shop.big").exists()
    assert (runs.folder / "targets" / "a" / "shop.ntbl" / "restore.json").read_bytes() == before


def test_replace_deletes_the_files_of_another_restore_and_no_others(runs: RestoreRuns) -> None:
    ts, place = runs.points.world.end_ts, ParquetPlace(kind="parquet", url=runs.url("a"))
    runs.queue(place, ts, BIG)
    runs.claim().attempt()
    folder = runs.folder / "targets" / "a" / "shop.big"
    (folder / "notes.txt").write_text("of a person")
    runs.queue(place, runs.points.base_ts if runs.points.exists(*BIG, runs.points.base_ts) else ts, BIG,
               if_exists="replace")  # fmt: skip
    again = runs.claim()
    again.attempt()
    assert {one.name.split("-")[0] for one in folder.glob("*.parquet")} <= {again.work.wanted.restore_id}
    assert (folder / "notes.txt").read_text() == "of a person"


def test_a_folder_of_other_files_is_never_replaced(runs: RestoreRuns) -> None:
    folder = runs.folder / "targets" / "a" / "shop.big"
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"of another program")
    cases: list[tuple[IfExists, str]] = [("fail", "is there"), ("replace", "empty place")]
    for how, said in cases:
        runs.queue(ParquetPlace(kind="parquet", url=runs.url("a")), runs.points.world.end_ts, BIG, if_exists=how)
        restoring = runs.claim()
        with pytest.raises(RestoreRefused, match=said):
            restoring.attempt()
        restoring.report_progress("failed")
    assert (folder / "part-0.parquet").read_bytes() == b"of another program"


def test_a_file_that_another_program_changes_is_found_by_the_comparison(runs: RestoreRuns) -> None:
    ts = runs.points.world.end_ts
    runs.queue(ParquetPlace(kind="parquet", url=runs.url("a")), ts, BIG)
    with pytest.raises(Killed):
        runs.claim(Process(runs.points.world.objects, at=2, after=True)).attempt()
    first, second, *_ = sorted((runs.folder / "targets" / "a" / "shop.big").glob("*.parquet"))
    second.write_bytes(first.read_bytes())
    runs.lease_ends()
    with pytest.raises(RestoreRefused, match="differs from what it was"):
        runs.claim().attempt()


def test_a_ts_below_the_history_is_refused_with_its_beginning(runs: RestoreRuns) -> None:
    ts = min(shard.base_ts for shard in runs.points.reads.shards()) - 1
    restored = next(one for one in TABLES if runs.points.exists(*one, ts))
    runs.queue(ParquetPlace(kind="parquet", url=runs.url("a")), ts, restored)
    with pytest.raises(RestoreRefused, match=r"lies below retention: restore at [0-9]{18} or later$"):
        runs.claim().attempt()


def test_an_unknown_table_is_refused_by_name(runs: RestoreRuns) -> None:
    runs.queue(ParquetPlace(kind="parquet", url=runs.url("a")), runs.points.world.end_ts, ("shop", "none"))
    with pytest.raises(RestoreRefused, match=r"no table shop\.none"):
        runs.claim().attempt()


def test_a_target_that_is_no_longer_allowed_is_refused_when_it_runs(runs: RestoreRuns) -> None:
    runs.queue(ParquetPlace(kind="parquet", url="file:///elsewhere"), runs.points.world.end_ts, BIG)
    with pytest.raises(RestoreRefused, match="RESTORE_URLS"):
        runs.claim().attempt()


@pytest.mark.parametrize("at", [0, 3, 8])
def test_sql_files_of_a_killed_restore_are_the_files_of_one_that_was_not(runs: RestoreRuns, at: int) -> None:
    ts, objects = runs.points.world.end_ts, runs.points.world.objects
    tables = [BIG, ("shop", "fk_c"), ("shop", "fk_p")]
    texts = []
    for place, killed in (("whole", None), ("killed", at)):
        name = runs.queue(SqlFilesPlace(kind="sql-files", url=runs.url(place)), ts, *tables)
        if killed is not None:
            with pytest.raises(Killed):
                runs.claim(Process(objects, at=killed)).attempt()
            runs.lease_ends()
        runs.claim().attempt()
        assert runs.info(name).state == "done"
        files = sorted((runs.folder / "targets" / place).glob("*.sql"))
        texts.append([(one.name.replace(name, "ID"), one.read_bytes()) for one in files])
    assert texts[0] == texts[1]
    order = [name.split(".")[0] for name, _ in texts[0]]
    assert order == sorted(order)
    assert {"1-tables", "2-rows", "3-foreign-keys"} == set(order)
