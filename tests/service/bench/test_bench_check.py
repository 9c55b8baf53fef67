"""`make bench-check`: what it says of two trees, and that both are measured as they are."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.check import CaseFailed, compared, extract, measure
from bench.paired import RISK, ROUNDS_MIN, paired
from bench.results import ROOT

CASE = """
def run(bench):
    bench.compare("group", {{"tistream": lambda: sum(range(100_000))}}, warm=False)
    bench.figure("requests", {requests}, "GETs")
"""


@pytest.mark.parametrize(("times", "verdict"), [(0.9, "less"), (1.1, "more"), (1.0, "the same")])
def test_a_difference_is_seen_through_noise_that_both_have(times: float, verdict: str) -> None:
    dice = random.Random(5)
    noise = [dice.uniform(1, 3) for _ in range(8)]
    base = [one * dice.uniform(0.99, 1.01) for one in noise]
    found = paired(base, [times * one * dice.uniform(0.99, 1.01) for one in noise])
    assert (found.verdict, found.low <= times <= found.high) == (verdict, True)
    assert found.confidence >= 1 - RISK


def test_one_disturbed_round_decides_nothing_and_hides_nothing() -> None:
    base = [1.0] * 12
    assert paired(base, [0.8] * 11 + [5.0]).verdict == "less"
    assert paired(base, [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.01, 0.98, 5.0]).verdict == "the same"


def test_a_tiny_difference_is_none_however_sure_it_is() -> None:
    assert paired([1.0] * 8, [1.002] * 8).verdict == "the same"
    assert paired([1.0] * 8, [1.02] * 8).verdict == "more"


def test_too_much_noise_is_undecided() -> None:
    assert paired([1.0] * 8, [0.5, 1.9, 0.7, 1.4, 0.6, 1.8, 0.9, 1.2]).verdict == "undecided"


def test_equal_trees_are_seldom_called_different() -> None:
    dice = random.Random(7)
    tries = 2_000
    called = 0
    for _ in range(tries):
        base, changed = ([dice.lognormvariate(0, 0.2) for _ in range(8)] for _ in range(2))
        called += paired(base, changed).verdict in ("less", "more")
    assert called / tries < RISK * 1.3


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 6"):
        paired([1.0] * (ROUNDS_MIN - 1), [2.0] * (ROUNDS_MIN - 1))


def test_a_commit_and_the_tree_are_measured_each_with_its_own_code(tmp_path: Path) -> None:
    package = tmp_path / "benchmarks" / "bench"
    (package / "cases").mkdir(parents=True)
    for name in ("__init__", "measure", "proc_tree", "remote"):
        shutil.copy(ROOT / "benchmarks" / "bench" / f"{name}.py", package)
    (package / "cases" / "__init__.py").write_text("")
    case = package / "cases" / "counted.py"
    case.write_text(CASE.format(requests=10))
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=n@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "case"]):
        subprocess.run([*git, *command], check=True)
    case.write_text(CASE.format(requests=40))
    base = extract(tmp_path, "HEAD")
    assert extract(tmp_path, "HEAD") == base, "the files are kept"
    # A figure that does not depend on the machine; how long a case took does, and nothing is said of it here.
    found = compared([measure(base, "counted")] * 6, [measure(tmp_path, "counted")] * 6)
    answer = found["requests", "GETs"]
    assert (answer.verdict, answer.factor) == ("more", 4)
    assert ("group: tistream", "s") in found
    with pytest.raises(CaseFailed, match="no_such"):
        measure(base, "no-such")
