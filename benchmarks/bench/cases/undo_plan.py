"""How fast the undo of a large transaction is planned."""

from __future__ import annotations

import statistics

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.undo_plan import Plan, PolarsPlan
from bench.inputs.size import size
from bench.measure import Bench

WHAT = (
    "the plan of the undo of one UPDATE of SIZE rows of three columns, usually 100,000: a tenth are conflicts, others "
    "have another column changed since. Rows are in memory; reads of the pool are not included. Polars joins frames "
    "of the same rows"
)
ROWS, GROUP = 100_000, "plan"


def run(bench: Bench) -> None:
    """See WHAT."""
    rows = size(ROWS)
    bench.figure("rows changed", rows, "rows")
    with (
        bench.remote(Plan, rows, **ONE_THREAD) as ours,
        bench.remote(PolarsPlan, rows, **ONE_THREAD) as polars,
    ):
        both = {"tistream": ours, "Polars": polars}
        bench.agree({name: called() for name, called in both.items()})
        bench.compare(GROUP, both, amount=rows, unit="rows", warm=False)
    cpu = statistics.median(s.cpu_s for s in bench.samples if (s.group, s.contender) == (GROUP, "tistream"))
    bench.figure("rows planned, per core", rows / cpu, "rows/s", better="more")
