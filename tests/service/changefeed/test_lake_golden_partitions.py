"""Partitions of a recorded cluster that are reorganised, exchanged, added and coalesced: the tables of a feed into
Iceberg are what SELECT shows, though workers are killed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from support.feed_lake import HastyClock, Killed, LakeRun, at_end, counted, run_to_end
from support.pull_world import golden_world
from tistream.read.cursor import Scope
from tistream_client.lake.now import rows_now


@pytest.mark.parametrize("options", ["flush-interval=1m", "flush-interval=100ms&delta-share=30"])
def test_tables_with_partitions_are_what_select_shows(tmp_path: Path, options: str) -> None:
    world = golden_world("everything")
    run = LakeRun(world, tmp_path, "upsert", ["shop.p_*"], options, window_bytes=2_000, clock=HastyClock())
    for last in itertools.cycle((9, 11, 13, 15)):
        try:
            run_to_end(run.holder(last))
        except Killed:
            continue
        break
    versions = {version.name: version for version in world.source.tables_at(world.end_ts, Scope(world.tenant))}
    for name in ("p_range", "p_hash", "p_x", "p_key"):
        table = run.table(f"shop.{name}")
        wanted = at_end("everything", versions["shop", name], table)
        delta = run.table(f"shop.{name}_delta") if table.properties.get("tistream.delta") else None
        found = table.scan().to_arrow() if delta is None else rows_now(table, delta)
        assert counted(found.to_pylist(), table) == wanted
        assert wanted
