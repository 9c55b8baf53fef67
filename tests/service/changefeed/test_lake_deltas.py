"""Small changes of a table wait in its delta (`t_delta`), in a catalog of SQLite and behind REST, with workers that are
killed: the view `t_now` shows what SELECT shows, read by the client, DuckDB and Polars."""

from __future__ import annotations

import itertools
from pathlib import Path

import duckdb
import polars as pl
import pytest
from pyiceberg.schema import Schema
from pyiceberg.view.metadata import ViewVersion

from support.feed_lake import HastyClock, Killed, LakeRun, counted, resolved, rows_of, run_to_end, selected
from support.pull_world import World, golden_world
from support.rest_catalog import TOKEN, rest_catalog
from tistream_client.lake.now import rows_now

OPTIONS = "flush-interval=100ms&delta-share=20"


@pytest.fixture(scope="module")
def world() -> World:
    return golden_world("everything")


def to_end_though_killed(run: LakeRun) -> None:
    """Work until the feed has reached its end; each worker is killed after a few commits."""
    for last in itertools.cycle((8, 9, 10, 11, 12)):
        try:
            run_to_end(run.holder(last))
        except Killed:
            continue
        return


def test_a_table_with_its_delta_is_what_select_shows_though_workers_are_killed(world: World, tmp_path: Path) -> None:
    run = LakeRun(world, tmp_path, "upsert", ["shop.orders"], OPTIONS, window_bytes=6_000, clock=HastyClock())
    to_end_though_killed(run)
    table, delta = run.table("shop.orders"), run.table("shop.orders_delta")
    for snapshot_id, ts in resolved(table):
        assert rows_of(table, snapshot_id) == selected("everything", "shop", "orders", ts, table)
    at_end = selected("everything", "shop", "orders", world.end_ts, table)
    assert counted(rows_now(table, delta).to_pylist(), table) == at_end
    assert rows_of(table) != at_end, "the delta has rows that the table does not have yet"
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA shop")
        for name in ("orders", "orders_delta"):
            rows = run.table(f"shop.{name}").scan().to_arrow()
            connection.register("given", rows)
            connection.execute(f"CREATE TABLE shop.{name} AS SELECT * FROM given")
        read = connection.sql(delta.properties["tistream.now"]).to_arrow_table()
    assert counted(read.to_pylist(), table) == at_end
    changed = pl.scan_iceberg(delta)
    names = [one.name for one in table.schema().fields]
    kept = pl.scan_iceberg(table).join(changed, on="id", how="anti").select(names)
    frame = pl.concat([kept, changed.filter(~pl.col("_deleted")).select(names)]).collect()
    assert counted(frame.to_dicts(), table) == at_end


def test_a_rest_catalog_has_the_view(world: World, tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as url:
        options = f"{OPTIONS}&catalog-type=rest&token=${{secret:token}}"
        secrets = {"token": TOKEN}
        run = LakeRun(
            world, tmp_path, "upsert", ["shop.orders", "shop.k_comp"], options, catalog_uri=url, secrets=secrets
        )
        catalog = run.catalog(type="rest", token=TOKEN)
        mine = {"schema-id": 0, "default-namespace": ["shop"], "representations": []}
        catalog.create_view("shop.k_comp_now", Schema(), ViewVersion.model_validate(mine))
        run_to_end(run.holder())
        assert catalog.load_view("shop.k_comp_now").current_version().representations == [], "another program has it"
        table, delta = catalog.load_table("shop.orders"), catalog.load_table("shop.orders_delta")
        view = catalog.load_view("shop.orders_now")
        queries = {one.root.dialect: one.root.sql for one in view.current_version().representations}
        assert queries["trino"] == delta.properties["tistream.now"]
        assert queries["spark"] == queries["trino"].replace('"', "`")
        assert [one.name for one in view.schema().fields] == [one.name for one in table.schema().fields]
        at_end = selected("everything", "shop", "orders", world.end_ts, table)
        assert counted(rows_now(table, delta).to_pylist(), table) == at_end
