"""A feed into Iceberg tables in a catalog of SQLite, with files in a directory and in a real MinIO, and with workers
that are killed: read back by Polars."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from pyiceberg.table import Table

from support.feed_batches import golden_window
from support.feed_lake import HastyClock, Killed, LakeRun, at_end, plain, resolved, rows_of, run_to_end, selected
from support.minio import REGION, Minio, running
from support.pull_world import World, golden_world
from support.rest_catalog import TOKEN, rest_catalog
from tistream.model.ts import Window
from tistream.read.cursor import Scope
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.protocols.op_texts import ops_of

RULES = ["shop.orders", "shop.swap*", "types.*"]
KILLS = (3, 7)


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    with running(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="module")
def world() -> World:
    return golden_world("everything")


def test_tables_are_what_select_shows_though_workers_are_killed(world: World, tmp_path: Path) -> None:
    run = LakeRun(world, tmp_path, "both", RULES)
    for last in KILLS:
        with pytest.raises(Killed):
            run_to_end(run.holder(last))
    run_to_end(run.holder())
    versions = {version.name: version for version in world.source.tables_at(world.end_ts, Scope(world.tenant))}
    for name in (("shop", "orders"), ("shop", "swap1"), ("shop", "swap2"), ("types", "everything")):
        table = run.table(".".join(name))
        assert rows_of(table) == at_end("everything", versions[name], table)
    orders = run.table("shop.orders")
    for snapshot_id, ts in resolved(orders):
        assert rows_of(orders, snapshot_id) == selected("everything", "shop", "orders", ts, orders)
    assert read_changes(run.table("shop.orders__changes")) == changes("orders")
    stamps = sorted({ts for _, ts, *_ in changes("orders")})
    for ts in stamps[:: len(stamps) // 5]:
        assert as_of(run, "shop.orders", ts) == selected("everything", "shop", "orders", ts, orders)


def test_a_feed_may_begin_with_the_rows_of_its_tables_though_workers_are_killed(world: World, tmp_path: Path) -> None:
    stamps = sorted({ts for _, ts, *_ in changes("orders")})
    run = LakeRun(
        world,
        tmp_path,
        "both",
        ["shop.orders", "shop.k_comp"],
        "snapshot=now&flush-interval=100ms",
        start_ts=stamps[len(stamps) // 2],
        window_bytes=6_000,
        clock=HastyClock(),
    )
    for last in (9, 7):
        with pytest.raises(Killed):
            run_to_end(run.holder(last))
    run_to_end(run.holder())
    versions = {version.name: version for version in world.source.tables_at(world.end_ts, Scope(world.tenant))}
    for name in ("orders", "k_comp"):
        table = run.table(f"shop.{name}")
        assert rows_of(table) == at_end("everything", versions["shop", name], table)
        newest = table.metadata.snapshots[-1].summary
        assert newest is not None
        assert ("tistream.loaded" in table.properties) is ("tistream.loaded" in newest.additional_properties)
    read = run.table("shop.orders__changes").scan("_op = 'read'").to_arrow()
    assert set(read["_commit_ts"].to_pylist()) == {run.start_ts}
    whole = selected("everything", "shop", "orders", run.start_ts or 0, run.table("shop.orders"))
    assert sorted(read["id"].to_pylist()) == sorted(row[0] for row in whole)
    later = Counter({row: count for row, count in changes("orders").items() if row[1] > (run.start_ts or 0)})
    found = Counter({row: n for row, n in read_changes(run.table("shop.orders__changes")).items() if row[0] != "read"})
    assert found == later


def test_events_that_a_person_skips_are_dead_letters(world: World, tmp_path: Path) -> None:
    batch = next(one for one in golden_window(numbered=False).batches if one.version.name == ("shop", "orders"))
    ts, key = int(batch.commit_ts[0]), batch.raw[0].as_py().hex()
    ddls = world.source.ddl_events(Scope(world.tenant), Window(world.snapshot_ts, world.end_ts)).events
    added = next(one for one in ddls if one.table == "ddl1" and one.action == "add column")
    run = LakeRun(world, tmp_path, "changelog", ["shop.orders", "shop.ddl1"])
    run.skips = [
        Skip(commit_ts=ts, table="shop.orders", key=key, reason="it is wrong"),
        Skip(commit_ts=added.commit_ts, table="shop.ddl1", ddl_job=added.job_id, reason="not wanted"),
    ]
    for last in (1, 4):
        with pytest.raises(Killed):
            run_to_end(run.holder(last))
    holder = run.holder()
    run_to_end(holder)
    assert holder.report().skipped == 2
    letters = run.table("tistream.7__acme__lake__dead_letters").scan().to_arrow().sort_by("commit_ts").to_pylist()
    assert {one["commit_ts"]: json.loads(one["letter"])["reason"] for one in letters} == {
        ts: "it is wrong",
        added.commit_ts: "not wanted",
    }
    stamps = run.table("shop.orders__changes").scan().to_arrow()["_commit_ts"].to_pylist()
    assert len(stamps) == changes("orders").total() - 1


def test_files_are_put_into_a_bucket(world: World, minio: Minio, tmp_path: Path) -> None:
    place = f"s3://{minio.new_bucket()}/lake"
    options = f"access-key={minio.access_key}&secret-access-key=${{secret:key}}"
    run = LakeRun(
        world,
        tmp_path,
        "upsert",
        ["shop.orders"],
        options,
        place,
        [f"{place}?endpoint={minio.endpoint}&region={REGION}"],
        secrets={"key": minio.secret_key},
    )
    run_to_end(run.holder())
    properties = {
        "s3.endpoint": minio.endpoint,
        "s3.region": REGION,
        "s3.access-key-id": minio.access_key,
        "s3.secret-access-key": minio.secret_key,
    }
    table = run.table("shop.orders", **properties)
    assert table.location().startswith(place)
    assert rows_of(table) == selected("everything", "shop", "orders", world.end_ts, table)


def test_a_rest_catalog_has_the_same_tables_and_refuses_who_is_unknown(world: World, tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as url:
        run = LakeRun(
            world,
            tmp_path,
            "both",
            ["shop.orders", "shop.swap*"],
            "catalog-type=rest&token=${secret:token}",
            catalog_uri=url,
            secrets={"token": TOKEN},
        )
        with pytest.raises(Killed):
            run_to_end(run.holder(5))
        run_to_end(run.holder())
        table = run.table("shop.orders", type="rest", token=TOKEN)
        assert rows_of(table) == selected("everything", "shop", "orders", world.end_ts, table)
        versions = {version.name: version for version in world.source.tables_at(world.end_ts, Scope(world.tenant))}
        swapped = run.table("shop.swap1", type="rest", token=TOKEN)
        assert rows_of(swapped) == at_end("everything", versions["shop", "swap1"], swapped)
        run.secrets = {"token": "another"}
        holder = run.holder()
        holder.step()
        assert holder.shard.failure is not None
        assert holder.shard.failure.refused


def as_of(run: LakeRun, name: str, ts: int) -> Counter[tuple[object, ...]]:
    """A table at exactly a ts: its newest snapshot at or before it, and the changes after that one."""
    table = run.table(name)
    snapshot_id, low_ts = max((one for one in resolved(table) if one[1] <= ts), key=lambda one: one[1])
    found = {row[0]: row for row in rows_of(table, snapshot_id)}
    later = run.table(f"{name}__changes").scan(f"_commit_ts > {low_ts} and _commit_ts <= {ts}").to_arrow()
    columns = [one.name for one in table.schema().fields if not one.name.startswith("_")]
    for change in later.sort_by("_commit_ts").to_pylist():
        if change["_op"] == "delete":
            del found[change["id"]]
        else:
            found[change["id"]] = tuple(plain(change[column]) for column in columns)
    return Counter(found.values())


def read_changes(table: Table) -> Counter[tuple[object, ...]]:
    """Operation, commit_ts, id and customer of each change, as Polars reads them."""
    found = pl.scan_iceberg(table).select("_op", "_commit_ts", "id", "customer").collect()
    return Counter(found.iter_rows())


def changes(table: str) -> Counter[tuple[object, ...]]:
    out: Counter[tuple[object, ...]] = Counter()
    for batch in golden_window(numbered=False).batches:
        if batch.version.name == ("shop", table):
            names = [column.name for column in batch.columns]
            new, old = ([side[names.index(name)] for name in ("id", "customer")] for side in (batch.new, batch.old))
            for event, op in enumerate(ops_of(batch).tolist()):
                side, at = (old, batch.old_at) if batch.new_at[event] < 0 else (new, batch.new_at)
                values = (one[int(at[event])].as_py() for one in side)
                out[(("insert", "delete", "update")[op], int(batch.commit_ts[event]), *values)] += 1
    return out
