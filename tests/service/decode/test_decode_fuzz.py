"""No bytes make a kernel read or write outside of its buffers, or print what is no JSON."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


def test_damaged_rows_under_bounds_checks(request: pytest.FixtureRequest) -> None:
    cache = request.config.cache.mkdir("kernels-with-bounds-checks")
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [sys.executable, "-m", "support.row_fuzz", "1", "60"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counted = re.fullmatch(r"rows=(\d+) refused=(\d+)\n", done.stdout)
    assert counted is not None
    rows, refused = map(int, counted.groups())
    assert rows > 40_000
    assert 0.1 * rows < refused < 0.95 * rows
