"""No bytes make a kernel read or write outside of its buffers, or print what is no JSON."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.effort import cases

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("checked", "rounds"),
    cases([(False, 12)], [(True, 60)]),  # with checks every kernel is compiled anew, which takes a minute
)
def test_damaged_rows(request: pytest.FixtureRequest, checked: bool, rounds: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    if checked:
        cache = request.config.cache.mkdir("kernels-with-bounds-checks")
        environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-m", "support.row_fuzz", "1", str(rounds)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counted = re.fullmatch(r"rows=(\d+) refused=(\d+)\n", done.stdout)
    assert counted is not None
    rows, refused = map(int, counted.groups())
    assert rows > 700 * rounds
    assert 0.1 * rows < refused < 0.95 * rows
