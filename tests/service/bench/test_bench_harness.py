"""The benchmarks: loads are lawful, contenders that disagree are refused, reports keep what people wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.inputs.changes import Load, seconds, snapshot_ts
from bench.inputs.tasks import identity, task_files
from bench.measure import Bench, Disagreement
from bench.remote import Remote, RemoteError
from bench.report import placed, section
from bench.results import result
from support import oracle
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_sorter.state.task_state import first_state
from tistream_sorter.task.tick import take


@pytest.mark.parametrize(
    "load",
    [
        Load(3000, 3, tables=4),
        Load(3000, 2, spread="region"),
        Load(2000, 2, spread="key"),
        Load(9000, 2, tables=3, stores=3, regions=700),
    ],
)
def test_a_load_is_a_lawful_upstream_whose_watermarks_reach_its_end(load: Load) -> None:
    written = list(seconds(load))
    truth = oracle.solve([body for second in written for _, body in second.files], snapshot_ts())
    assert len(truth.rows) == load.transactions
    assert not truth.unmatched
    objects = MemoryObjectStore()
    keys = [key for second in written for key, _ in second.files]
    for second in written:
        for key, body in second.files:
            objects.put(key, body)
    after, _ = take(first_state(identity(snapshot_ts()), 1), task_files(objects, keys, {}))
    assert after.progress_ts == written[-1].resolved_ts
    assert truth.rows["commit_ts"].max() <= after.progress_ts


def test_every_round_of_every_contender_is_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    calls: list[str] = []
    bench.compare("g", {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2, reset=list)
    assert calls == ["a", "b"] * 3
    assert [(sample.contender, sample.round) for sample in bench.samples] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_contenders_that_disagree_are_refused() -> None:
    Bench.agree({"a": (1, 2), "b": (1, 2)})
    with pytest.raises(Disagreement):
        Bench.agree({"a": (1, 2), "b": (1, 3)})


class Echo:
    """A contender: what its environment says, and what it is given."""

    def __call__(self, given: int) -> tuple[str | None, int]:
        if given < 0:
            raise ValueError("negative")
        return os.environ.get("BENCH_ECHO"), given


def test_a_remote_has_its_own_environment_and_tells_its_errors() -> None:
    remote = Remote(Echo, env={"BENCH_ECHO": "there"})
    try:
        assert remote(3) == ("there", 3)
        assert "BENCH_ECHO" not in os.environ
        with pytest.raises(RemoteError, match="negative"):
            remote(-1)
        assert remote(4) == ("there", 4)
    finally:
        remote.close()


def test_a_report_replaces_its_own_part_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.compare("g", {"a": list, "b": list}, rounds=1)
    bench.figure("lag", 3.0, "s", aim=2.0)
    first = placed("# B\n\nby hand\n", "c", section(result("c", "what", bench.samples, bench.figures), tmp_path))
    assert "not reached" in first
    assert "![g](benchmarks/c-g.svg)" in first
    again = placed(first + "\nalso by hand\n", "c", "new")
    assert again == "# B\n\nby hand\n\n## c\n\n<!-- bench:c -->\n\nnew\n<!-- /bench:c -->\n\nalso by hand\n"
