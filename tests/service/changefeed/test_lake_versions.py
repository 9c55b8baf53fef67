"""A change of a type that Iceberg cannot have begins a new version of a table (`t__v2`), with the rows that SELECT
shows; the earlier version stays, under a tag. In a catalog of SQLite, with workers that are killed: read by Polars."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, LongType, StringType

from support.feed_lake import Killed, LakeRun, Row, plain, rows_of, run_to_end, value_of
from support.pull_world import World, committed, golden_world
from tistream.decode.rows import decode_rows
from tistream.model.ts import Window
from tistream.read.cursor import Scope

RULES = ["shop.ddl1", "shop.ddl2"]


def test_a_type_that_iceberg_cannot_change_begins_a_new_version_of_the_table(tmp_path: Path) -> None:
    world = golden_world("everything")
    ddls = world.source.ddl_events(Scope(world.tenant), Window(world.snapshot_ts, world.end_ts)).events
    typed, replaced, truncated = (
        next(one.commit_ts for one in ddls if one.query == text)
        for text in (
            "alter table ddl1 modify column a varchar(30)",
            "alter table ddl1 add index ia(a), add column e json, drop column z",
            "truncate table ddl2",
        )
    )
    run = LakeRun(replace(world, end_ts=replaced - 1), tmp_path, "upsert", RULES)
    to_end_though_killed(run)
    old, new = run.table("shop.ddl1"), run.table("shop.ddl1__v2")
    assert (old.schema().find_type("a"), new.schema().find_type("a")) == (LongType(), StringType())
    assert old.properties["tistream.next_version"] == "ddl1__v2"
    assert rows_of(old, old.refs()["v1"].snapshot_id) == at(world, "ddl1", typed - 1, old)
    assert rows_of(new) == at(world, "ddl1", replaced - 1, new)
    read = pl.scan_iceberg(new).select(pl.exclude("^_.*$")).collect()
    assert Counter(tuple(map(plain, row)) for row in read.iter_rows()) == rows_of(new)
    run.world = replace(world, end_ts=truncated - 1)
    to_end_though_killed(run)
    last = run.table("shop.ddl2")
    assert rows_of(last) == at(world, "ddl2", truncated - 1, last)
    tables = sorted(name for _, name in run.catalog().list_tables("shop"))
    assert tables == sorted([f"ddl1__dropped_{typed}", "ddl2"]), "a column that is added is not the one that is dropped"


def to_end_though_killed(run: LakeRun) -> None:
    """Work until the feed has reached its end; each worker is killed after a few commits."""
    for last in itertools.cycle((7, 8, 9, 10, 11)):
        try:
            run_to_end(run.holder(last))
        except Killed:
            continue
        return


def at(world: World, name: str, ts: int, like: Table) -> Counter[Row]:
    """The rows of a table at a ts, decoded from their last values up to then, as values of the types of `like`."""
    version = world.source.table(ts, "shop", name)
    assert version is not None
    rows, _ = committed("everything")
    own = rows.filter(pl.col("table_id").is_in(version.table.physical_ids), pl.col("commit_ts") <= ts)
    last = own.sort("commit_ts").group_by("key").last().filter(pl.col("op") == 1)
    keys, values = (last[one].to_arrow().cast(pa.binary()) for one in ("key", "value"))
    found = decode_rows(version.table, version.table.visible_columns, keys, values)
    kinds: Mapping[str, IcebergType] = {one.name: one.field_type for one in like.schema().fields}
    columns = [column.to_pylist() for column in found.batch.columns]
    assert [column.name for column in version.table.visible_columns] == [
        one for one in kinds if not one.startswith("_")
    ]
    shown = zip(*columns, strict=True)
    wanted = [kind for one, kind in kinds.items() if not one.startswith("_")]
    return Counter(tuple(value_of(kind, one) for kind, one in zip(wanted, row, strict=True)) for row in shown)
