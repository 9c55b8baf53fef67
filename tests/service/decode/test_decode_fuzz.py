"""No bytes make a kernel read or write outside of its buffers, or print what is no JSON."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import kept
from support.effort import cases

TESTS = Path(__file__).parents[2]
CHECKED = kept.folder().parent / "kernels-with-bounds-checks"  # compiled once for all runs


@pytest.mark.parametrize(
    ("checked", "rounds"),
    cases([(False, 12)], [(True, 60)]),  # with checks every kernel is compiled anew, which takes a minute
)
def test_damaged_rows(checked: bool, rounds: int) -> None:
    rows, refused = counted(checked, ["support.row_fuzz", "1", str(rounds)], r"rows=(\d+) refused=(\d+)\n")
    assert rows > 700 * rounds
    assert 0.1 * rows < refused < 0.95 * rows


@pytest.mark.parametrize(("checked", "rounds"), cases([(False, 25)], [(True, 1_000)]))
def test_damaged_footers(checked: bool, rounds: int, tmp_path: Path) -> None:
    arguments = ["support.footer_damage", "1", str(rounds), str(tmp_path / "file")]
    accepted, refused = counted(checked, arguments, r"accepted=(\d+) refused=(\d+)\n")
    assert accepted > rounds / 5
    assert refused > rounds


def counted(checked: bool, arguments: list[str], pattern: str) -> tuple[int, int]:
    """Run a module, with or without bounds checks. Returns the two numbers that it prints as `pattern`."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    if checked:
        environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(CHECKED)}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = re.fullmatch(pattern, done.stdout)
    assert found is not None
    return int(found[1]), int(found[2])
