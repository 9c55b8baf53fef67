"""A feed into a real directory and a real MinIO, with workers that are killed: read back by DuckDB and pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest
from pyarrow import fs

from support.feed_batches import golden_window
from support.feed_files import EVERY_TABLE, Killed, MortalStore, data_files, holder_of_files, indexed_files
from support.feed_run import CLOCK, finish
from support.minio import REGION, Minio, running
from support.pull_world import World, golden_world
from tistream.read.cursor import Scope
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.object_store import ObjectStore
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.protocols.op_texts import ops_of
from tistream_changefeed.sinks.feeds import feed_of

KILLS = (5, 40)
TABLES = {"filter": {"rules": ["shop.orders", "shop.big"]}}
Row = tuple[object, ...]


@dataclass(frozen=True)
class Place:
    """Where a feed writes: its store, and what reads the columns of the Parquet files of a table."""

    objects: ObjectStore
    read: Callable[[str, list[str]], list[Row]]


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    with running(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="module")
def world() -> World:
    return golden_world("everything")


@pytest.fixture(params=["directory", "minio"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        root = tmp_path / "feed"

        def by_duckdb(table: str, columns: list[str]) -> list[Row]:
            names = ", ".join(f'"{column}"' for column in columns)
            files = f"{root}/{table}/*/*/*.parquet"
            return duckdb.sql(f"SELECT {names} FROM read_parquet('{files}') ORDER BY _commit_ts, id").fetchall()

        return Place(DirectoryObjectStore(root), by_duckdb)
    server: Minio = request.getfixturevalue("minio")
    bucket = server.new_bucket()
    s3 = fs.S3FileSystem(
        access_key=server.access_key,
        secret_key=server.secret_key,
        endpoint_override=server.endpoint,
        region=REGION,
    )

    def by_pyarrow(table: str, columns: list[str]) -> list[Row]:
        names = [info.path for info in s3.get_file_info(fs.FileSelector(f"{bucket}/feed/{table}", recursive=True))]
        found = ds.dataset([name for name in names if name.endswith(".parquet")], filesystem=s3).to_table(columns)
        rows = [tuple(row.values()) for row in found.to_pylist()]
        return sorted(rows, key=lambda row: (row[1], row[2]))  # type: ignore[index]

    return Place(server.store(bucket, "feed/"), by_pyarrow)


def test_parquet_files_have_each_change_once_though_workers_are_killed(place: Place, world: World) -> None:
    options = "protocol=parquet&flush-interval=100ms&file-size=20000"
    for epoch, last in enumerate(KILLS, 1):
        store: ObjectStore = MortalStore(place.objects, last)  # type: ignore[assignment]
        dying = holder_of_files(world, options, store, epoch, TABLES)
        with pytest.raises(Killed):
            finish(dying)
    finish(holder_of_files(world, options, place.objects, len(KILLS) + 1, TABLES))
    assert len(data_files(place.objects)) == sum(len(files) for _, files in indexed_files(place.objects))
    for table, columns in (("orders", ["customer"]), ("big", ["pad"])):
        found = place.read(f"shop/{table}", ["_op", "_commit_ts", "id", *columns])
        assert found == changes(table, columns)
        assert len(found) > 100


def changes(table: str, columns: list[str]) -> list[Row]:
    """The changes of a table: operation, commit_ts, id and these columns."""
    out: list[Row] = []
    for batch in golden_window(numbered=False).batches:
        if batch.version.name == ("shop", table):
            names = [column.name for column in batch.columns]
            new, old = ([side[names.index(name)] for name in ("id", *columns)] for side in (batch.new, batch.old))
            for event, op in enumerate(ops_of(batch).tolist()):
                side, at = (old, batch.old_at) if "IDU"[op] == "D" else (new, batch.new_at)
                out.append(("IDU"[op], int(batch.commit_ts[event]), *(one[int(at[event])].as_py() for one in side)))
    return sorted(out, key=lambda row: (row[1], row[2]))  # type: ignore[index]


def test_credentials_of_the_uri_are_used_and_refused_ones_are_named(minio: Minio, world: World) -> None:
    bucket = minio.new_bucket()
    uri = f"s3://{bucket}/feed?protocol=csv&access-key={minio.access_key}&secret-access-key=${{secret:key}}"
    feed, allowed = feed_of(uri, EVERY_TABLE), Allowed((), [f"s3://{bucket}?endpoint={minio.endpoint}&region={REGION}"])
    order = Order(world.tenant, "files", 0, Fence(1, 1), world.snapshot_ts)
    planned = feed.plan(world.source.tables_at(world.end_ts, Scope(world.tenant)))
    assert feed.look(planned, {"key": minio.secret_key}, allowed, 1).warnings == ()
    assert feed.sinks(order, CLOCK, {"key": minio.secret_key}, allowed)().open() == (None, {})
    with pytest.raises(FeedFailed) as found:
        feed.sinks(order, CLOCK, {"key": "another-key"}, allowed)().open()
    assert found.value.failure.refused
    assert "another-key" not in str(found.value)
    assert f"s3://{bucket}/feed/metadata" in str(found.value)
