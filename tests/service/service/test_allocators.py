"""What processes that work on columns tell their allocators is understood by them, and keeps pages."""

from __future__ import annotations

import os
import subprocess
import sys

from tistream.service import allocators

WORK = """
import resource, sys
import numpy as np, polars as pl, pyarrow as pa

def again():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(4 << 20)
        pl.Series("a", range(10)).sample(1_000_000, with_replacement=True).sort()
        pa.array(np.zeros(1 << 20)).take(pa.array(np.arange(1 << 20)))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

again()
print(again())
"""


def faults(environ: dict[str, str]) -> int:
    kept = {name: value for name, value in os.environ.items() if name not in allocators.ENVIRON}
    done = subprocess.run(
        [sys.executable, "-c", WORK], env={**kept, **environ}, capture_output=True, text=True, check=True
    )
    assert done.stderr == "", "an allocator says that it does not know a setting"
    return int(done.stdout)


def test_pages_that_were_freed_are_not_faulted_in_again() -> None:
    assert faults(allocators.ENVIRON) * 5 < faults({})
