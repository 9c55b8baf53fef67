"""What becomes of locks in a simulated cluster: written again, ended late by readers, without data, put and deleted
by one bulk transaction. Each as often as a real cluster makes it happen in a bad hour, and all of it true."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from polars.testing import assert_frame_equal

from support import oracle, simulated
from support.change_files import groups_of, metadata_of
from support.oracle import COMMIT, COMMITTED, PREWRITE, ROLLBACK
from support.simulated import WILD, Run
from tistream.format.change_file import OP_DELETE, OP_PUT
from tistream_upstream.config import Churn, ClusterConfig

Row = dict[str, Any]
CALM = replace(WILD, churn=Churn(per_s=0.0))
SHORT_VALUE = 255
ENTRIES_AT_THE_END = 3  # in every region, so that watermarks go on


@dataclass
class Change:
    """All rows of one (key, start_ts), each with the ts of the file that told it first."""

    prewrites: list[tuple[int, Row]] = field(default_factory=list)
    ends: list[tuple[int, Row]] = field(default_factory=list)


def changes(run: Run) -> dict[int, dict[bytes, Change]]:
    """By start_ts and key, in the order of the logs; a file that was said twice counts once."""
    out: dict[int, dict[bytes, Change]] = defaultdict(lambda: defaultdict(Change))
    seen: set[tuple[Any, ...]] = set()
    for delivery in run.files:
        _, ts = delivery.store_and_ts
        first = int(metadata_of(delivery.data)["tistream.first_watermark_row_group"])
        for row in [row for group in groups_of(delivery.data)[:first] for row in group.to_pylist()]:
            place = row["key"], row["start_ts"], row["type"], row["region_version"], row["log_index"]
            if place not in seen:
                seen.add(place)
                change = out[row["start_ts"]][row["key"]]
                (change.prewrites if row["type"] == PREWRITE else change.ends).append((ts, row))
    return out


def assert_true(run: Run) -> None:
    found = oracle.solve([delivery.data for delivery in run.files], run.snapshot_ts)
    assert_frame_equal(found.rows, run.cluster.truth.rows)
    assert not found.unmatched
    assert simulated.covered(run) >= run.end_ts


def only(**shares: Any) -> ClusterConfig:
    """Two-phase commits without churn, and one thing besides."""
    none = ("one_phase", "async_commit", "optimistic", "abandoned", "lock_only", "long", "bulk", "late_secondaries")
    none += ("orphaned", "rewritten", "row_locks", "sourced")
    plain = replace(WILD.mix, **dict.fromkeys(none, 0.0), huge_rows=0)
    return replace(CALM, warm_ms=0, indexed=0.0, mix=replace(plain, **shares))


def test_a_lock_that_is_written_again_is_the_same_prewrite_at_a_higher_index() -> None:
    run = simulated.run(only(rewritten=1.0, async_commit=0.3, late_secondaries=0.3), 1, 3_000)
    again = most = 0
    for keys in changes(run).values():
        repeated = [change for change in keys.values() if len(change.prewrites) > 1]
        assert len(repeated) <= 1, "of a transaction, only the primary's lock"
        for change in repeated:
            rows = [row for _, row in change.prewrites]
            assert len({(row["op_type"], row["value"], row["old_value"]) for row in rows}) == 1
            assert len({row["log_index"] for row in rows}) == len(rows)
            assert all(len(row["value"] or b"") <= SHORT_VALUE for row in rows)
            ((_, end),) = change.ends
            assert end["log_index"] > max(row["log_index"] for row in rows)
            again += 1
            most = max(most, len(rows))
    assert again > 10
    assert most > 4, "as long as it is there"
    assert_true(run)


def test_long_values_are_not_told_again() -> None:
    run = simulated.run(replace(only(rewritten=1.0), columns=14), 1, 3_000)
    told = [change.prewrites for keys in changes(run).values() for change in keys.values()]
    assert any(len(row["value"] or b"") > SHORT_VALUE for rows in told for _, row in rows)
    assert all(len(row["value"] or b"") <= SHORT_VALUE for rows in told if len(rows) > 1 for _, row in rows)
    assert_true(run)


def test_the_lock_of_a_bulk_transaction_is_written_again_with_its_generation() -> None:
    run = simulated.run(only(bulk=1.0, rewritten=1.0), 2, 3_000)
    again = 0
    for keys in changes(run).values():
        for change in keys.values():
            values: dict[int, set[Any]] = defaultdict(set)
            for _, row in change.prewrites:
                values[row["generation"]].add((row["op_type"], row["value"]))
            assert all(len(told) == 1 for told in values.values()), "one generation, one value"
            again += len(change.prewrites) > len(values)
    assert again > 3
    assert_true(run)


def test_commits_tell_what_they_commit() -> None:
    run = simulated.run(CALM, 3, 3_000)
    ops = set()
    for keys in changes(run).values():
        for change in keys.values():
            last = max((row for _, row in change.prewrites), key=_rank, default=None)
            for _, row in change.ends:
                if row["type"] == COMMIT:
                    assert last is None or row["op_type"] == last["op_type"]
                    ops.add(row["op_type"])
                elif row["type"] == ROLLBACK:
                    assert row["op_type"] == 0
    assert ops == {OP_PUT, OP_DELETE}


def _rank(row: Row) -> tuple[int, int]:
    return row["generation"] or 0, row["log_index"]


def _late(run: Run, kind: int) -> list[float]:
    """Of transactions that ended so: seconds between the first file and the last one that tell of an end."""
    out = []
    for keys in changes(run).values():
        told = [ts for change in keys.values() for ts, row in change.ends if row["type"] == kind]
        if told:
            out.append((max(told) - min(told) >> 18) / 1000)
    return out


def test_readers_roll_back_the_secondaries_of_a_dead_client_seconds_later() -> None:
    run = simulated.run(only(abandoned=1.0, orphaned=1.0, late_ms=(1_500, 3_000)), 4, 6_000)
    assert sum(seconds > 1 for seconds in _late(run, ROLLBACK)) > 10
    assert not _late(run, COMMIT)
    assert not run.cluster.truth.rows.height, "but for DDL nothing is committed, and there is none"
    assert_true(run)


def test_readers_commit_the_secondaries_of_a_dead_client_seconds_later() -> None:
    late = only(late_secondaries=1.0, late_ms=(1_500, 3_000))
    for config in (late, replace(late, mix=replace(late.mix, async_commit=1.0))):
        run = simulated.run(config, 5, 6_000)
        assert sum(seconds > 1 for seconds in _late(run, COMMIT)) > 3
        assert not _late(run, ROLLBACK)
        assert_true(run)


def test_keys_that_are_only_locked_are_told_only_when_they_are_rolled_back() -> None:
    run = simulated.run(only(row_locks=1.0, abandoned=0.3, one_phase=0.3, async_commit=0.3), 6, 3_000)
    never_told = []
    for keys in changes(run).values():
        kinds = [{row["type"] for _, row in change.ends} for change in keys.values() if not change.prewrites]
        assert all(kind in ({ROLLBACK}, {COMMITTED}) for kind in kinds)
        never_told.append(sum(kind == {ROLLBACK} for kind in kinds))
    assert max(never_told) > 1, "a transaction without such keys tells of one at most: that which it failed to lock"
    regions = len(run.cluster.regions.all)
    assert _silent_entries(run) > ENTRIES_AT_THE_END * regions, "their prewrites and commits are in the logs"
    assert_true(run)


def _silent_entries(run: Run) -> int:
    """How many entries of the logs no row tells of."""
    logs: set[tuple[int, int]] = set()
    told: set[tuple[int, int]] = set()
    for row in [row for delivery in run.files for group in groups_of(delivery.data) for row in group.to_pylist()]:
        if row["first_index"] is None:
            told.add((row["region_id"], row["log_index"]))
        else:
            logs |= {(row["region_id"], index) for index in range(row["first_index"], row["log_index"] + 1)}
    return len(logs - told)


def test_a_bulk_transaction_deletes_what_it_put_and_puts_it_again() -> None:
    run = simulated.run(only(bulk=1.0), 7, 6_000)
    orders: set[Sequence[int]] = set()
    for keys in changes(run).values():
        for change in keys.values():
            ops = [row["op_type"] for _, row in sorted(change.prewrites, key=lambda told: _rank(told[1]))]
            orders |= {tuple(ops[at : at + 2]) for at in range(len(ops) - 1)}
    assert {(OP_PUT, OP_PUT), (OP_PUT, OP_DELETE), (OP_DELETE, OP_PUT)} <= orders
    assert_true(run)
