"""What a simulated cluster pushes is lawful (design.md 2), and is exactly what it says is true."""

from __future__ import annotations

import itertools
import zlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from support import oracle, simulated
from support.change_files import groups_of, metadata_of, row_group_ranges
from support.effort import examples
from support.oracle import COMMIT, COMMITTED, PREWRITE, ROLLBACK, WATERMARK
from support.simulated import Run
from tistream.model.span import KeySpan
from tistream_upstream.effects import Push

Row = dict[str, Any]
SEEDS = st.integers(0, 2**32)
WILD = replace(simulated.WILD, ddl_per_min=60)
LOSING = replace(WILD, churn=replace(WILD.churn, restart=5.0, crash=2.0, lost_push=1.0, new_chain=0.9))
quickly = settings(max_examples=examples(3, few=1), deadline=None, suppress_health_check=list(HealthCheck))


@dataclass
class File:
    """One file, read with nothing but Parquet."""

    store: int
    ts: int
    meta: dict[str, str]
    changes: list[Row] = field(default_factory=list)
    watermarks: list[Row] = field(default_factory=list)

    @property
    def prev_ts(self) -> int:
        return int(self.meta["tistream.prev_ts"])


def read(run: Run) -> list[File]:
    out = []
    for delivery in run.files:
        store, ts = delivery.store_and_ts
        file = File(store, ts, metadata_of(delivery.data))
        groups = groups_of(delivery.data)
        first = int(file.meta["tistream.first_watermark_row_group"])
        crcs = [f"{zlib.crc32(delivery.data[start:end]):08x}" for start, end in row_group_ranges(delivery.data)]
        assert file.meta["tistream.row_group_crc32"] == ",".join(crcs)
        for number, group in enumerate(groups):
            assert group.num_rows <= run.cluster.config.rows_per_group or number >= first
            (file.watermarks if number >= first else file.changes).extend(group.to_pylist())
        assert all(row["type"] == WATERMARK for row in file.watermarks)
        assert all(row["type"] in (PREWRITE, COMMIT, ROLLBACK, COMMITTED) for row in file.changes)
        out.append(file)
    return out


def span_of(watermark: Row) -> KeySpan:
    return KeySpan(watermark["key"], watermark["end_key"])


def assert_chains(files: list[File]) -> None:
    last: dict[int, int] = {}
    for file in files:
        assert file.ts > last.get(file.store, 0), "the ts of a store's files rise"
        if file.prev_ts:
            assert file.prev_ts == last[file.store]
        elif file.store in last:
            assert all(row["base_ts"] is not None for row in file.watermarks), "a new chain begins with scans"
        last[file.store] = file.ts


def assert_in_ranges(file: File) -> None:
    """Every change lies in one range of its file, and each region's in log order."""
    ranges: dict[int, list[Row]] = defaultdict(list)
    for row in file.watermarks:
        before = ranges[row["region_id"]]
        assert row["first_index"] <= row["log_index"] + 1
        assert not before or row["first_index"] > before[-1]["log_index"]
        before.append(row)
    order: dict[int, int] = {}
    places: dict[int, int] = defaultdict(int)
    for number, row in enumerate(file.changes):
        region, index = row["region_id"], row["log_index"]
        if region in order:
            assert number == order[region] + 1, "changes are grouped by region"
        order[region] = number
        assert index >= places[region], "in log order"
        places[region] = index
        assert any(
            row["key"] in span_of(one)
            and row["region_version"] == one["region_version"]
            and (
                one["first_index"] <= index <= one["log_index"]
                or (one["base_ts"] is not None and index == one["first_index"] - 1)
            )
            for one in ranges[region]
        ), row


def assert_promises_hold(files: list[File]) -> None:
    """No entry behind a range, in its region's log or in a later epoch, commits at or below its resolved_ts."""
    scanned = {
        (row["region_id"], row["first_index"] - 1) for f in files for row in f.watermarks if row["base_ts"] is not None
    }
    commits = [
        row
        for file in files
        for row in file.changes
        if row["commit_ts"] is not None and (row["region_id"], row["log_index"]) not in scanned
    ]
    keys = sorted({row["key"] for row in commits})
    rank = {key: at for at, key in enumerate(keys)}
    place = np.array([rank[row["key"]] for row in commits])
    region, version, index, commit_ts = (
        np.array([row[name] for row in commits]) for name in ("region_id", "region_version", "log_index", "commit_ts")
    )
    for file in files:
        for one in file.watermarks:
            low = np.searchsorted(keys, one["key"])  # type: ignore[call-overload]
            high = np.searchsorted(keys, one["end_key"]) if one["end_key"] else len(keys)  # type: ignore[call-overload]
            behind = (version > one["region_version"]) | (
                (region == one["region_id"]) & (version == one["region_version"]) & (index > one["log_index"])
            )
            told = behind & (place >= low) & (place < high) & (commit_ts <= one["resolved_ts"])
            assert not told.any(), (one, commits[int(np.flatnonzero(told)[0])])


def assert_locks_hold(files: list[File]) -> None:
    """While a lock is there, its region's resolved_ts does not rise above its start_ts (bulk transactions aside)."""
    told: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for file in files:
        for one in file.watermarks:
            at = told[one["region_id"], one["region_version"]]
            at[one["log_index"]] = max(at.get(one["log_index"], 0), one["resolved_ts"])
    begun: dict[tuple[bytes, int], Row] = {}
    for row in sorted(
        (row for file in files for row in file.changes), key=lambda row: (row["region_version"], row["log_index"])
    ):
        change = row["key"], row["start_ts"]
        if row["type"] == PREWRITE and row["generation"] is None:
            begun.setdefault(change, row)
            continue
        lock = begun.pop(change, None)
        if row["type"] == COMMITTED:
            continue  # a scan: where it ended is not known
        if lock is None or (lock["region_id"], lock["region_version"]) != (row["region_id"], row["region_version"]):
            continue
        meanwhile = [
            resolved
            for index, resolved in sorted(told[row["region_id"], row["region_version"]].items())
            if lock["log_index"] <= index < row["log_index"]
        ]
        for before, after in itertools.pairwise(meanwhile):
            assert after <= max(before, lock["start_ts"]), (lock, row)


@example(seed=42985349)  # of a bulk transaction the last flush is lost, its commit is seen, and a scan has its value
@quickly
@given(seed=SEEDS)
def test_files_keep_the_contract_and_say_what_is_true(seed: int) -> None:
    run = simulated.run(LOSING if seed % 2 else WILD, seed, 3_000)
    files = read(run)
    assert_chains(files)
    for file in files:
        assert_in_ranges(file)
    assert_promises_hold(files)
    assert_locks_hold(files)
    found = oracle.solve([delivery.data for delivery in run.files], run.snapshot_ts)
    assert_frame_equal(found.rows, run.cluster.truth.rows)
    assert simulated.covered(run) >= run.end_ts, "every range connects, at the latest with a scan"


def test_versions_that_a_scan_may_need_are_kept() -> None:
    """Nothing is kept beyond what was not pushed: a scan that is lost before it is pushed is made again."""
    stingy = replace(LOSING, history_ms=0, push_ms=800, churn=replace(LOSING.churn, per_s=8.0))
    run = simulated.run(stingy, 4, 6_000)
    found = oracle.solve([delivery.data for delivery in run.files], run.snapshot_ts)
    assert_frame_equal(found.rows, run.cluster.truth.rows)
    assert simulated.covered(run) >= run.end_ts
    assert run.cluster.kv.kept < run.cluster.truth.rows.height / 2, "the others are forgotten"


def test_large_files_have_several_row_groups() -> None:
    nothing_lost = replace(WILD.churn, lost_push=0.0)
    config = replace(WILD, rows_per_group=20, group_bytes=3_000, rows_per_s=400, churn=nothing_lost)
    run = simulated.run(config, 5, 1_500)
    files = read(run)
    for file in files:
        assert_in_ranges(file)
    assert max(int(file.meta["tistream.first_watermark_row_group"]) for file in files) > 3
    found = oracle.solve([delivery.data for delivery in run.files], run.snapshot_ts)
    assert_frame_equal(found.rows, run.cluster.truth.rows)
    assert not found.unmatched, "at the end nothing is left open"


@pytest.mark.parametrize("step_ms", [1, 37, 1_000])
def test_the_same_seed_gives_the_same_bytes_in_whatever_steps(step_ms: int) -> None:
    """Without requests for coverage, whose answers come when they come."""
    calm = replace(WILD, churn=replace(WILD.churn, lost_push=0.0))
    assert _pushed(calm, 11, step_ms) == _pushed(calm, 11, 50)


def test_another_seed_gives_something_else() -> None:
    assert _pushed(WILD, 1, 50) != _pushed(WILD, 2, 50)


def test_the_same_answers_give_the_same_bytes() -> None:
    runs = [simulated.run(LOSING, 1, 2_000) for _ in range(2)]
    assert runs[0].cluster.agents.scans > LOSING.regions + 3, "something was lost and scanned"
    assert runs[0].files == runs[1].files
    assert runs[0].lines == runs[1].lines


def _pushed(config: Any, seed: int, step_ms: int) -> list[tuple[str, int]]:
    cluster = simulated.Cluster(config, seed)
    end_ms = cluster.now_ms + 2_000
    out: list[tuple[str, int]] = []
    while cluster.now_ms < end_ms:
        effects = cluster.advance(min(end_ms, cluster.now_ms + step_ms))
        out += [(effect.key, hash(effect.body)) for effect in effects if isinstance(effect, Push)]
    return out


def test_everything_happens() -> None:
    """The wild config reaches what the sorter has to be right about."""
    kinds: set[Any] = set()
    events: dict[str, int] = defaultdict(int)
    below = 0
    for seed in range(3):
        run = simulated.run(WILD, seed, 5_000)
        for name, count in run.cluster.churn.events.items():
            events[name] += count
        resolved = run.snapshot_ts
        for file in read(run):
            for row in file.changes:
                kinds.add(row["type"])
                if row["generation"] is not None:
                    kinds.add("flush" if row["generation"] == 1 else "later flush")
                if row["txn_source"] is not None:
                    kinds.add("source")
                if oracle.is_index_key(row["key"]):
                    kinds.add("index")
                if row["type"] == PREWRITE and row["start_ts"] < resolved:
                    below += 1
            kinds |= {"scan" for row in file.watermarks if row["base_ts"] not in (None, run.snapshot_ts)}
            resolved = max(resolved, min(row["resolved_ts"] for row in file.watermarks))
    assert kinds == {1, 2, 3, 4, "flush", "later flush", "source", "index", "scan"}
    assert below > 10, "transactions prewrite below what was told"
    assert all(count for count in events.values()), dict(events)


def _batches(files: list[File]) -> dict[tuple[int, int], set[int]]:
    """By parent and entry of a split, the regions that began there."""
    out: dict[tuple[int, int], set[int]] = defaultdict(set)
    for file in files:
        for row in file.watermarks:
            for parent in row["after"] or ():
                out[parent["region_id"], parent["log_index"]].add(row["region_id"])
    return {(region, index): found - {region} for (region, index), found in out.items()}


def test_one_entry_splits_a_region_into_three_or_more() -> None:
    splitting = replace(WILD, churn=replace(WILD.churn, split=8.0, batch_split=1.0, gone=0.0))
    run = simulated.run(splitting, 2, 4_000)
    files = read(run)
    for file in files:
        assert_in_ranges(file)
    assert_promises_hold(files)
    assert max(map(len, _batches(files).values())) >= 2, "new regions of one entry"
    assert run.cluster.churn.batch_splits
    assert_frame_equal(oracle.solve([d.data for d in run.files], run.snapshot_ts).rows, run.cluster.truth.rows)
    assert simulated.covered(run) >= run.end_ts


@pytest.mark.parametrize("lost_push", [0.0, 1.0])
def test_stores_go_for_good_and_nothing_is_lost(lost_push: float) -> None:
    going = replace(WILD, stores=4, churn=replace(WILD.churn, gone=4.0, lost_push=lost_push))
    run = simulated.run(going, 3, 4_000)
    gone = {store.id for store in run.cluster.agents.stores.values() if store.gone}
    assert len(gone) == 2, "half of them stay"
    last = {store: max(f.store_and_ts[1] for f in run.files if f.store_and_ts[0] == store) for store in range(1, 5)}
    quiet_ms = {store: run.end_ts - ts >> 18 for store, ts in last.items()}
    assert all(quiet_ms[store] > 1_000 for store in gone), quiet_ms
    assert all(quiet_ms[store] < 1_000 for store in set(last) - gone), quiet_ms
    assert_frame_equal(oracle.solve([d.data for d in run.files], run.snapshot_ts).rows, run.cluster.truth.rows)
    assert simulated.covered(run) >= run.end_ts


def test_an_upload_that_lands_late_breaks_a_chain_and_a_new_one_mends_it() -> None:
    """As a platform sees it that takes nothing of a broken chain: what it takes is the truth."""
    churn = replace(LOSING.churn, per_s=3.0, restart=1.5, crash=1.0, new_chain=0.3, late_upload=1.0)
    late = replace(LOSING, churn=replace(churn, slow_store=3.0, slow_ms=(200, 800)))
    broken = refused = 0
    for seed in (1, 4, 7, 12, 18):  # in which it happens
        run = simulated.run(late, seed, 4_000)
        broken += run.cluster.late_uploads.broken
        refused += len(run.refused)
        assert_chains(read(run))
        assert_frame_equal(oracle.solve([d.data for d in run.files], run.snapshot_ts).rows, run.cluster.truth.rows)
        assert simulated.covered(run) >= run.end_ts
    assert broken > 3
    assert refused > 2 * broken, "what was pushed until the new chain counted for nothing"
