"""The truth of a simulated cluster: what a pull through the real schema history and the real API tells, event by
event, and sums that a consumer of those events arrives at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support import oracle, simulated, simulated_pull
from support.effort import examples, seeds
from support.simulated import WILD, Run
from support.truth_sums import require_sums
from tistream.model.ts import physical_ms
from tistream.schema.tidb import actions
from tistream_verify.fingerprint import Sum, TruthLine, row_hash

ALTERING = replace(WILD, ddl_per_min=400, ddl_cancelled=0.5, tables=4, columns=5)
quickly = settings(max_examples=examples(4, few=1), deadline=None, suppress_health_check=list(HealthCheck))


def assert_same(found: list[dict[str, Any]], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=False):
        assert one == other
    assert len(found) == len(wanted)


@example(seed=16)
@quickly
@given(seed=st.integers(0, 2**32))
def test_a_pull_tells_exactly_the_events_that_the_truth_expects(seed: int) -> None:
    run = simulated.run(ALTERING, seed, 6_000)
    rows = oracle.solve([delivery.data for delivery in run.files], run.snapshot_ts).rows
    assert_same(simulated_pull.events(run, rows), run.cluster.truth.events)


def test_every_kind_of_ddl_is_done_and_told() -> None:
    done: set[str] = set()
    cancelled = 0
    for seed in (49, 50):  # whose jobs are all there are
        run = simulated.run(ALTERING, seed, 4_000)
        done |= {event["action"] for event in run.cluster.truth.events if event["type"] == "ddl"}
        undone = [e for e in run.cluster.truth.events if e.get("action") == "rollback of rename table"]
        cancelled += run.cluster.totals.ddl_cancelled
        assert len(undone) <= run.cluster.totals.ddl_cancelled, "those before the snapshot are not events"
        history = simulated_pull.history(run, run.cluster.truth.rows)
        told = [(event.commit_ts, event.query) for event in history.ddl_events(run.snapshot_ts, run.end_ts)]
        wanted = [(int(e["commit_ts"]), e["query"]) for e in run.cluster.truth.events if e["type"] == "ddl"]
        assert told == wanted
        for database in history.databases(run.end_ts):
            listed = history.tables(run.end_ts, database)
            known = {t.name for t in run.cluster.catalog.usable() if _database(run, t.database_id) == database}
            assert {table.name for table in listed or ()} == known
    assert done == {*(actions.ACTIONS[number] for number in (1, 3, 4, 5, 6, 11, 14)), "rollback of rename table"}
    assert cancelled


def _database(run: Run, database_id: int) -> str:
    return run.cluster.catalog.databases[database_id].name


def test_truth_lines_are_the_sums_of_the_events_up_to_their_ts() -> None:
    run = simulated.run(replace(ALTERING, warm_ms=0), 16, 6_000)
    lines = [TruthLine.parse(told.line) for told in run.lines]
    assert lines[0].ts == run.snapshot_ts
    assert not any(table.events for table in lines[0].tables.values())
    assert [line.ts for line in lines] == sorted({line.ts for line in lines})
    assert lines[-1].ts == run.end_ts
    require_sums(lines, run.cluster.truth.events)


def test_rows_of_truth_lines_are_what_select_shows() -> None:
    """Rebuilt from the rows alone: with the schema at the end, whatever was added or dropped on the way."""
    run = simulated.run(replace(ALTERING, warm_ms=0), 16, 6_000)
    last = TruthLine.parse(run.lines[-1].line)
    raw = run.cluster.truth.rows.sort("commit_ts", "start_ts")
    alive = {key: value for key, value, op in raw.select("key", "value", "op").iter_rows() if op == 1}
    for key, op in raw.unique("key", keep="last", maintain_order=True).select("key", "op").iter_rows():
        if op == 2:
            alive.pop(key, None)
    history = simulated_pull.history(run, run.cluster.truth.rows)
    shown = simulated_pull.select(history, alive, run.end_ts)
    for table_id, table in last.tables.items():
        rows = shown.get(int(table_id), [])
        found = Sum()
        for key, row in rows:
            found.add(row_hash(key, row))
        assert (found.count, found.total) == (table.rows, table.rows_sum), table
        assert table.alive == (history.table_at(int(table_id), run.end_ts + 1) is not None)


def test_a_put_that_changes_nothing_is_no_event() -> None:
    run = simulated.run(replace(WILD, warm_ms=3_000), 4, 8_000)
    truth = run.cluster.truth
    same = truth.rows.filter((truth.rows["op"] == 1) & (truth.rows["value"] == truth.rows["old_value"]))
    rewritten = same.filter(same["key"].bin.contains(b"_r"))
    assert rewritten.height, "some rows are written again as they were"
    told = {(event["commit_ts"], event["start_ts"]) for event in truth.events}
    lone = [
        (str(commit_ts), str(start_ts))
        for commit_ts, start_ts in rewritten.select("commit_ts", "start_ts").iter_rows()
        if truth.rows.filter(truth.rows["start_ts"] == start_ts).height == 1
    ]
    assert not told & set(lone)


def test_the_truth_is_bounded_without_keep() -> None:
    run = simulated.run(replace(WILD, keep_truth=False, rows_max=12), 1, 4_000)
    assert run.cluster.truth.live <= 12 * len(run.cluster.catalog.tables) * 2
    assert TruthLine.parse(run.lines[-1].line).ts == run.end_ts


def test_promises_are_what_the_files_cover() -> None:
    """Never more, or a platform would be called late that is not; and hardly less."""
    seen: list[tuple[int, int]] = []
    for seed in seeds(2, 6):
        simulated.run(replace(WILD, warm_ms=0), seed, 5_000, watch=lambda *both: seen.append(both))
    assert all(promised <= covered for promised, covered in seen)
    assert sum(promised == covered for promised, covered in seen) > len(seen) / 2
    assert max(physical_ms(covered) - physical_ms(promised) for promised, covered in seen) < 5_000
