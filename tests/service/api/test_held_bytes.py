"""What a pull holds whose client has stopped reading is no more than its share of the memory, whatever its format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.effort import FULL
from support.waiting import PATIENCE_S
from tistream_api.admission.memory_budget import SHARE_BYTES

TESTS = Path(__file__).parents[2]


def test_an_unread_pull_holds_no_more_than_its_share() -> None:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "benchmarks")])
    made = subprocess.run(
        [sys.executable, "-m", "support.held_pulls"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-2_000:]
    held = json.loads(made.stdout)
    print(held)
    assert len(held) == (7 if FULL else 4)
    assert {what: size for what, size in held.items() if not 0 < size <= SHARE_BYTES} == {}
