"""The simulated cluster in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support import simulated


def test_another_process_gives_the_same_bytes() -> None:
    """Whatever order its sets have."""
    program = (
        "import hashlib; from support.simulated import WILD, run; found = hashlib.sha256()\n"
        "for file in run(WILD, 3, 1_500).files: found.update(file.key.encode() + file.data)\n"
        "print(found.hexdigest())"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(simulated.__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(found[0]) == 65
    assert found[0] == found[1]
