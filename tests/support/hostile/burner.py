"""A process that takes processor time and requests nothing of the platform: `python -m support.hostile.burner SHARE`
uses this share of one processor, at an attacker's priority, until it is ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.hostile.attacker import NICE
from support.platform import _die_with_us

SLICE_S = 0.002  # about what an attacker works between two answers


@contextmanager
def burning(processors: float) -> Iterator[None]:
    """Keep this number of processors busy during the `with` block, each by at most one process."""
    with ExitStack() as stack:
        while processors > 0:
            stack.enter_context(_one(min(1.0, processors)))
            processors -= 1
        yield


@contextmanager
def _one(share: float) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "support.hostile.burner", str(share)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        preexec_fn=_die_with_us,  # noqa: PLW1509 (as in platform.py)
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def burn(share: float) -> None:
    """What others kept it from is made up for as soon as they leave room."""
    began = time.monotonic()
    while True:
        slice_end = time.process_time() + SLICE_S
        while time.process_time() < slice_end:
            pass
        ahead_s = time.process_time() / share - (time.monotonic() - began)
        if ahead_s > 0:
            time.sleep(ahead_s)


if __name__ == "__main__":
    os.nice(NICE)
    burn(float(sys.argv[1]))
