"""A restore whose process is killed by SIGKILL again and again has every row as of its ts once, in Parquet files and in
a real MariaDB."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from support.effort import seeds
from support.mariadb import MariaDb, running
from support.restore_process import Killing
from support.restore_runs import ACME, RestoreRuns
from tistream.storage.open import open_objects
from tistream.wire.bulk.restores import MySqlPlace, ParquetPlace, Place

BIG = ("shop", "big")
ROWS = 4_800
CHUNK_ROWS = 200
KILLS = 4
CHUNKS_OF_A_KILL = 4  # at most, so that chunks are left for every kill

Row = tuple[int, str]


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with running(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture
def runs(tmp_path: Path) -> RestoreRuns:
    return RestoreRuns(tmp_path)


def restore(runs: RestoreRuns, place: Place, seed: int) -> list[Row]:
    """Restore the table, killed several times; its rows as the pool has them."""
    rng = random.Random(seed)
    ts = runs.points.world.end_ts
    name = runs.queue(place, ts, BIG)
    killing = Killing(runs, CHUNK_ROWS, rng)
    for _ in range(KILLS):
        assert killing.killed(rng.randint(1, CHUNKS_OF_A_KILL))
        assert runs.info(name).state != "done"
    assert killing.whole() == 0
    info = runs.info(name)
    assert info.state == "done", info
    (table,) = info.tables
    assert table.rows == table.rows_done == ROWS
    assert runs.book.one(ACME, name).epoch == KILLS + 1
    return sorted((line["row"]["id"], line["row"]["pad"]) for line in runs.points.lines(*BIG, ts))


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_parquet_files_of_a_killed_restore_have_every_row_once(runs: RestoreRuns, seed: int) -> None:
    url = runs.url("copy")
    expected = restore(runs, ParquetPlace(kind="parquet", url=url), seed)
    target = open_objects(url)
    files = [one.key for one in target.list_after("") if one.key.endswith(".parquet")]
    assert len(files) >= ROWS // CHUNK_ROWS
    found = pl.concat([pl.read_parquet(target.get(key)) for key in files])
    assert sorted(found.select("id", "pad").iter_rows()) == expected


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_a_mariadb_of_a_killed_restore_has_every_row_once(runs: RestoreRuns, mariadb: MariaDb, seed: int) -> None:
    database = mariadb.new_database().rpartition("/")[2]
    (runs.folder / "dsn" / "copy").write_text(f"mysql://tistream:secret@127.0.0.1:{mariadb.port}")
    expected = restore(runs, MySqlPlace(kind="mysql", dsn_file="copy", rename={"shop": database}), seed)
    assert sorted(mariadb.run(f"SELECT id, pad FROM `{database}`.big")) == expected
