"""The oracles themselves: what they say of the golden sets is what the sets' own description says."""

import functools

import polars as pl
import pytest

from support import golden
from support.ddl_oracle import positions
from support.oracle import committed_rows, solve


@functools.cache
def everything_committed(name: str) -> pl.DataFrame:
    """Of all of its files, as they came; also what lies below its snapshot."""
    return committed_rows([file.data for file in golden.load(name).files])


@pytest.mark.parametrize(("name", "committed", "rolled_back"), [("everything", 18_546, 0), ("large", 40_646, 23_737)])
def test_every_change_of_a_golden_set_is_settled(name: str, committed: int, rolled_back: int) -> None:
    found = solve([file.data for file in golden.load(name).files], keep_index_keys=True)
    assert (found.rows.height, len(found.rolled_back), len(found.unmatched)) == (committed, rolled_back, 0)
    assert not found.rows.select("key", "start_ts").is_duplicated().any()


def test_arrival_order_and_repeats_make_no_difference() -> None:
    files = golden.load("everything").files
    rows = everything_committed("everything")
    assert committed_rows([file.data for file in golden.shuffled(files, 1)]).equals(rows)
    assert committed_rows([file.data for file in golden.with_repeated_contents(files, 2)]).equals(rows)
    renamed = golden.load_as("everything", "north-1", "somebody-else")
    assert committed_rows([file.data for file in renamed.files]).equals(rows)


@pytest.mark.parametrize("name", golden.NAMES)
def test_ddl_positions_lie_before_the_jobs_were_finished(name: str) -> None:
    loaded = golden.load(name)
    finished = {job["job_id"]: job for job in loaded.expected("ddl")}
    found = positions(everything_committed(name), loaded.schema_snap.data)
    assert {position.job_id for position in found} == finished.keys()
    for position in found:
        job = finished[position.job_id]
        assert (position.query, position.action_type) == (job["query"], job["type"])
        assert position.commit_ts <= int(job["finished_ts"])
        assert position.schema_version <= job["schema_version"]
