"""A comparison of a feed's Iceberg tables with the pool finds each row that is missing, strange or twice there."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.feed_lake import HastyClock, Killed, LakeRun, run_to_end
from support.feed_run import CLOCK, StillView
from support.pull_world import World, committed, golden_world
from support.waiting import PATIENCE_S
from tistream.errors import InvalidRequest, Unavailable
from tistream.model.ts import Window
from tistream.pool.versions.reader import StoreReader
from tistream.read.cursor import Position, Scope
from tistream.wire.bulk.changefeeds import Applied
from tistream.wire.bulk.feed_verify import FeedVerification, VerifyFeed
from tistream_changefeed.core.progress import Progress, decode, encode
from tistream_changefeed.core.stopped import StoppedTable
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.sinks.iceberg.kept.own_table import PROGRESS
from tistream_changefeed.sinks.iceberg.lake_files import write_file
from tistream_changefeed.sinks.iceberg.lake_rows import by_hour
from tistream_changefeed.verify import lake
from tistream_changefeed.verify.iceberg.lake_there import LakeThere
from tistream_changefeed.verify.iceberg.row_hashes import row_hashes
from tistream_changefeed.verify.lake import ROWS_MAX
from tistream_changefeed.verify.verification import Verifications

RULES = ["shop.orders", "shop.swap*", "types.everything"]


@pytest.fixture(scope="module")
def world() -> World:
    return golden_world("everything")


@pytest.fixture(scope="module")
def whole(world: World, tmp_path_factory: pytest.TempPathFactory) -> LakeRun:
    """A feed over the whole set."""
    run = LakeRun(world, tmp_path_factory.mktemp("lake"), "both", RULES)
    run_to_end(run.holder())
    return run


def verified(run: LakeRun, **more: Any) -> FeedVerification:
    """What a worker finds of a feed."""
    world, start_ts = run.world, run.world.snapshot_ts if run.start_ts is None else run.start_ts
    by = Verifications(
        (),
        SecretKeys(None),
        lambda _: cast(Any, StillView(world)),
        CLOCK,
        world.budget,
        StoreReader(world.objects),
        longest_ms=int(PATIENCE_S * 1000),
        file_urls=run.allowed.file_urls,
    )
    given = {"from_ts": start_ts, "to_ts": world.end_ts, "start_ts": start_ts, **more}
    of = {"cluster_id": world.tenant.cluster_id, "tenant_id": world.tenant.tenant_id, "changefeed_id": "lake"}
    return by.verify(VerifyFeed(**of, sink_uri=run.uri, config=run.document, **given))


def named(found: FeedVerification) -> list[tuple[str, str, dict[str, Any]]]:
    return [(one.what, one.topic, one.key) for one in found.differences]


@pytest.mark.parametrize("rows_max", [ROWS_MAX, 10])
def test_tables_that_a_feed_has_written_are_equal(
    whole: LakeRun, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "ROWS_MAX", rows_max)
    found = verified(whole)
    assert found.equal, found.differences[:3]
    names = {f"{one.database}.{one.table}": (one.events, one.messages) for one in found.tables}
    assert names.keys() == {f"{name}{end}" for name in ("shop.orders", "shop.swap1", "shop.swap2", "types.everything")
                            for end in ("", "__changes")}  # fmt: skip
    assert all(events == messages > 0 for events, messages in names.values())
    stamps = sorted(whole.table("shop.orders__changes").scan().to_arrow()["_commit_ts"].to_pylist())
    part = verified(whole, from_ts=stamps[5], to_ts=stamps[20], table="Shop.orders")
    inside = sum(stamps[5] < ts <= stamps[20] for ts in stamps)
    assert [(one.table, one.events) for one in part.tables if one.table != "orders"] == [("orders__changes", inside)]
    assert (part.equal, part.of) == (True, "lake")


def test_events_from_before_ddls_are_found_and_those_of_tables_that_are_gone_in_iceberg_are_left_out(
    world: World, tmp_path: Path
) -> None:
    run = LakeRun(world, tmp_path, "changelog", ["shop.busy", "shop.gone"])
    run_to_end(run.holder())
    last = max(run.table("shop.busy__changes").scan("_op != 'truncate'").to_arrow()["_commit_ts"].to_pylist())
    found = verified(run, table="shop.busy", to_ts=last)  # types have changed, and rows were truncated
    assert found.equal, found.differences[:3]
    ((events, messages),) = ((one.events, one.messages) for one in found.tables)
    assert events == messages > 0
    gone = verified(run, table="shop.gone")
    assert (gone.equal, gone.left_out) == (True, [])
    names = [one.table for one in gone.tables if one.events == one.messages > 0]
    assert len(names) == len(gone.tables) > 1, "tables of this name were dropped one after the other"
    for name in names:
        run.catalog().drop_table(f"shop.{name}")
    reason = r"was dropped at commit_ts \d+, and in Iceberg too"
    with pytest.raises(InvalidRequest, match=rf"table shop\.gone {reason}"):
        verified(run, table="shop.gone")
    rest = verified(run, to_ts=last)
    assert rest.equal, rest.differences[:3]
    assert [one.table for one in rest.tables] == ["busy__changes"]
    ((table, told),) = ((one.table, one.reason) for one in rest.left_out)
    assert table == "gone"
    assert re.fullmatch(reason, told)


def test_a_table_is_compared_together_with_its_delta(world: World, tmp_path: Path) -> None:
    options = "flush-interval=100ms&delta-share=20"
    run = LakeRun(world, tmp_path, "upsert", ["shop.orders"], options, window_bytes=6_000, clock=HastyClock())
    run_to_end(run.holder())
    waiting = run.table("shop.orders_delta").scan().to_arrow()
    assert waiting.num_rows
    found = verified(run)
    assert found.equal, found.differences[:3]
    run.table("shop.orders_delta").delete("id >= 0")
    found = verified(run)
    assert not found.equal
    assert {one.key["id"] for one in found.differences} <= set(map(str, waiting["id"].to_pylist()))


def test_the_newest_version_of_a_table_is_compared(world: World, tmp_path: Path) -> None:
    ddls = world.source.ddl_events(Scope(world.tenant), Window(world.snapshot_ts, world.end_ts)).events
    end_ts = next(one.commit_ts for one in ddls if one.query == "rename table ddl1 to ddl2") - 1
    run = LakeRun(replace(world, end_ts=end_ts), tmp_path, "upsert", ["shop.ddl1"])
    run_to_end(run.holder())
    for dropped in (False, True):
        if dropped:
            run.catalog().drop_table("shop.ddl1")  # the first version
        found = verified(run)
        assert found.equal, found.differences[:3]
        assert [(one.table, one.events > 0) for one in found.tables] == [("ddl1", True)]


def test_a_table_that_the_feed_includes_later_is_compared_from_then_on(world: World, tmp_path: Path) -> None:
    stamps, _ = committed("everything")
    of = {version.name: version for version in world.source.tables_at(world.end_ts, Scope(world.tenant))}
    ids = of["types", "everything"].table.physical_ids
    mine = stamps.filter(pl.col("table_id").is_in(ids))["commit_ts"].sort()
    middle = mine[len(mine) // 2]
    first = LakeRun(replace(world, end_ts=middle), tmp_path, "upsert", ["shop.orders"])
    run_to_end(first.holder())
    run = LakeRun(world, tmp_path, "upsert", ["shop.orders", "types.everything"])
    run_to_end([run.holder() for _ in range(2)][1])
    found = verified(run)
    assert found.equal, found.differences[:3]
    counts = {one.table: one.events for one in found.tables}
    assert 0 < counts["everything"] < run_rows(world, tmp_path / "whole")


def test_a_table_of_an_earlier_release_is_left_out_if_the_feed_may_include_it_later(
    world: World, tmp_path: Path
) -> None:
    run = LakeRun(world, tmp_path, "upsert", ["shop.orders"])
    run_to_end(run.holder())
    with run.table("shop.orders").transaction() as change:
        change.remove_properties("tistream.since_ts")
    assert verified(run).equal, "nothing has changed the feed"
    applied = Applied(revision=1, from_ts=world.snapshot_ts, after_ts=world.snapshot_ts + 1)
    own = run.table("tistream.7__acme__lake")
    text = encode(world.tenant, replace(decode(world.tenant, own.properties[PROGRESS].encode(), ""), applied=applied))
    with own.transaction() as change:
        change.set_properties({PROGRESS: text.decode()})
    with pytest.raises(InvalidRequest, match="since when the feed has it is not known"):
        verified(run, table="shop.orders")


def test_a_table_that_has_stopped_is_left_out(world: World, tmp_path: Path) -> None:
    run = LakeRun(world, tmp_path, "both", ["shop.orders", "shop.k_comp"])
    run_to_end(run.holder())
    own = run.table("tistream.7__acme__lake")
    there = decode(world.tenant, own.properties[PROGRESS].encode(), "")
    stopped = StoppedTable(("shop", "orders"), Position(world.snapshot_ts), "it is refused")
    with own.transaction() as change:
        change.set_properties({PROGRESS: encode(world.tenant, replace(there, stopped=(stopped,))).decode()})
    found = verified(run)
    assert found.equal, found.differences[:3]
    assert [(one.table, one.reason) for one in found.left_out] == [
        ("orders", "has stopped, so it was not compared: let it go on first")
    ]
    assert {one.table for one in found.tables} == {"k_comp", "k_comp__changes"}
    with pytest.raises(InvalidRequest, match=r"table shop\.orders has stopped"):
        verified(run, table="shop.orders")


def run_rows(world: World, root: Path) -> int:
    root.mkdir()
    run = LakeRun(world, root, "upsert", ["types.everything"])
    run_to_end(run.holder())
    return run.table("types.everything").scan().to_arrow().num_rows


@pytest.mark.parametrize("snapshot", ["", "&snapshot=now"])
def test_rows_from_before_the_feed_are_wanted_only_if_it_has_begun_with_them(
    world: World, whole: LakeRun, tmp_path: Path, snapshot: str
) -> None:
    stamps = sorted(whole.table("shop.orders__changes").scan().to_arrow()["_commit_ts"].to_pylist())
    middle = stamps[len(stamps) // 2]
    run = LakeRun(world, tmp_path, "upsert", ["shop.orders"], f"flush-interval=1m{snapshot}", start_ts=middle)
    run_to_end(run.holder())
    found = verified(run)
    assert found.equal, found.differences[:3]
    rows, every = (one.table("shop.orders").scan().to_arrow().num_rows for one in (run, whole))
    assert [(one.events, one.messages) for one in found.tables] == [(rows, rows)]
    assert (rows == every) is bool(snapshot)


@pytest.mark.parametrize("rows_max", [ROWS_MAX, 10])
def test_rows_that_another_program_has_changed_are_named(
    world: World, tmp_path: Path, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rows_max`: how many hashes are in memory; there are more rows than 10."""
    monkeypatch.setattr(lake, "ROWS_MAX", rows_max)
    run = LakeRun(world, tmp_path, "both", ["shop.orders"])
    run_to_end(run.holder())
    table, changes = run.table("shop.orders"), run.table("shop.orders__changes")
    rows = table.scan().to_arrow()
    lost, strange = rows["id"][0].as_py(), rows["id"][1].as_py()
    other = rows.set_column(0, rows.schema.field(0), pc.add(rows["id"], 1_000_000_000).cast(rows["id"].type))
    table.delete(f"id = {lost}")
    table.append(other.slice(1, 1))
    first = changes.scan().to_arrow().slice(0, 1)
    twice = first["id"][0].as_py()
    ((hour, part),) = by_hour(first)
    with changes.transaction() as change:
        again = change.update_snapshot().merge_append()
        again.append_data_file(write_file(changes, changes.schema(), part, "again", hour))
        again.commit()
    found = verified(run)
    assert (found.equal, found.left_out) == (False, [])
    assert sorted(named(found)) == sorted(
        [
            ("missing", "shop.orders", {"id": str(lost)}),
            ("unexpected", "shop.orders", {"id": str(strange + 1_000_000_000)}),
            ("repeated", "shop.orders__changes", {"id": str(twice)}),
        ]
    )
    assert [(one.table, one.missing, one.unexpected, one.repeated) for one in found.tables] == [
        ("orders", 1, 1, 0),
        ("orders__changes", 0, 0, 1),
    ]
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("customer")
    with pytest.raises(InvalidRequest, match=r"shop\.orders has no column customer"):
        verified(run)


def test_a_table_that_lacks_a_row_is_not_equal_though_another_lacks_more_than_are_counted(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "ROWS_MAX", 10)
    run = LakeRun(world, tmp_path, "upsert", ["shop.orders", "shop.swap*"])
    run_to_end(run.holder())
    run.table("shop.orders").delete("id >= 0")
    swapped = run.table("shop.swap1")
    column = swapped.schema().fields[0].name
    swapped.delete(f"{column} = {swapped.scan().to_arrow()[column][0].as_py()!r}")
    found = verified(run)
    assert (found.equal, {one.table for one in found.left_out}) == (False, {"orders", "swap1"})
    assert {one.reason for one in found.left_out} == {"has more differences than are counted here"}


@pytest.mark.parametrize("mode", ["upsert", "changelog"])
@pytest.mark.parametrize(("name", "action"), [("gone", "drop table"), ("swap1", "rename tables"), ("orders", "")])
def test_a_table_that_the_feed_drops_or_renames_during_a_comparison_has_to_be_compared_again(
    world: World, tmp_path: Path, mode: str, name: str, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed reaches its end after the comparison has read the progress. Rows that it commits are no reason."""
    ddls = world.source.ddl_events(Scope(world.tenant), Window(world.snapshot_ts, world.end_ts)).events
    stamps = [one.commit_ts for one in ddls if one.action == action and ("shop", name) in one.involved]
    middle = stamps[-1] - 1 if action else (world.snapshot_ts + world.end_ts) // 2
    rules = ["shop.swap*" if name == "swap1" else f"shop.{name}"]
    run_to_end(LakeRun(replace(world, end_ts=middle), tmp_path, mode, rules).holder())
    run = LakeRun(world, tmp_path, mode, rules)
    read = LakeThere.progress

    def going_on(there: LakeThere) -> Progress:
        found = read(there)
        run_to_end([run.holder() for _ in range(2)][1])
        return found

    assert verified(run, to_ts=middle).equal
    monkeypatch.setattr(LakeThere, "progress", going_on)
    if action:
        with pytest.raises(Unavailable, match=r"table shop\.\w+ was dropped, renamed or created meanwhile"):
            verified(run, to_ts=middle)
    else:
        assert verified(run, to_ts=middle).equal


@pytest.mark.parametrize("mode", ["upsert", "changelog"])
def test_tables_that_a_worker_was_renaming_when_it_was_killed_are_not_compared(
    world: World, tmp_path: Path, mode: str
) -> None:
    """It has given the tables their new names, and has committed to none of them."""
    ddls = world.source.ddl_events(Scope(world.tenant), Window(world.snapshot_ts, world.end_ts)).events
    (swap,) = (one for one in ddls if one.action == "rename tables" and ("shop", "swap1") in one.involved)
    middle = swap.commit_ts - 1
    run_to_end(LakeRun(replace(world, end_ts=middle), tmp_path, mode, ["shop.swap*"]).holder())
    run = LakeRun(world, tmp_path, mode, ["shop.swap*"])
    run.holder()  # its epoch is that of the worker before
    name = "shop.swap1" if mode == "upsert" else "shop.swap1__changes"
    for last in itertools.count(1):
        with pytest.raises(Killed):
            run_to_end(run.holder(last))
        if run.table(name).properties["tistream.source"] == "shop.swap2":
            break
    with pytest.raises(Unavailable, match=r"table shop\.swap\w+ was dropped, renamed or created meanwhile"):
        verified(run, to_ts=middle)


class FilteredRun(LakeRun):
    """A feed that leaves out deletes."""

    @property
    def document(self) -> dict[str, Any]:
        given = super().document["filter"]
        return {"filter": given | {"event-filters": [{"matcher": ["shop.*"], "ignore-event": ["delete"]}]}}


def test_of_a_feed_that_leaves_out_events_the_changes_are_compared(world: World, tmp_path: Path) -> None:
    run = FilteredRun(world, tmp_path, "both", ["shop.orders"])
    run_to_end(run.holder())
    found = verified(run)
    assert found.equal, found.differences[:3]
    assert [(one.table, one.events) for one in found.tables] == [("orders__changes", found.tables[0].messages)]
    assert [(one.table, one.reason[:17]) for one in found.left_out] == [("orders", "has event filters")]
    run.mode = "upsert"
    with pytest.raises(InvalidRequest, match="leaves out events by event filters"):
        verified(run)


def test_what_cannot_be_compared_is_refused(whole: LakeRun, world: World, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no topic to repair"):
        verified(whole, repair_topic="again")
    with pytest.raises(InvalidRequest, match=r"sends no table shop\.nothing"):
        verified(whole, table="shop.nothing")
    with pytest.raises(Unavailable, match="has written nothing yet"):
        verified(LakeRun(world, tmp_path, "both", RULES))


def test_every_value_counts_in_the_hash_of_a_row() -> None:
    def hashes(value: Any, kind: pa.DataType) -> list[int]:
        found: list[int] = row_hashes(pa.table({"a": pa.array([value, None], kind)})).tolist()
        return found

    pair = pa.struct({"x": pa.int64(), "y": pa.list_(pa.float32())})
    for kind, values in (
        (pair, ({"x": 1, "y": [1.0, 2.0]}, {"x": 1, "y": [1.0, 3.0]}, {"x": None, "y": None})),
        (pa.list_(pa.float32()), ([1.0], [1.0, 2.0], [])),
        (pa.decimal128(20, 0), (1, 2)),
    ):
        found = [hashes(value, kind) for value in values]
        assert len({one for pair_ in found for one in pair_}) == len(values) + 1
