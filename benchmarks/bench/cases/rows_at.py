"""How fast a whole table is read as of a ts, on one core, beside a pull of the same rows."""

from __future__ import annotations

import statistics

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.pull_decode import PullAnswer
from bench.contenders.rows_at import RowsAt
from bench.inputs.size import size
from bench.measure import Bench

WHAT = (
    "all rows of a table as of a ts as Arrow (ListRows, without HTTP) from a base run in memory, and a pull of the "
    "same rows from segments; SIZE real rows of ten columns, usually 240,000; one thread"
)
ROWS, GROUP, AIM = 240_000, "all rows as Arrow", 8e5


def run(bench: Bench) -> None:
    """See WHAT."""
    rows = size(ROWS)
    bench.figure("rows in the table", rows, "rows")
    with (
        bench.remote(RowsAt, rows, **ONE_THREAD) as ours,
        bench.remote(PullAnswer, rows, 0.0, "arrow", False, **ONE_THREAD) as pull,
    ):
        bench.agree({"asked": rows, "sent": ours()})
        both = {"rows at a ts": ours, "pull from segments": pull}
        bench.compare(GROUP, both, amount=rows, unit="rows")
    for name in both:
        cpu = statistics.median(s.cpu_s for s in bench.samples if (s.group, s.contender) == (GROUP, name))
        aim = AIM if name == "rows at a ts" else None
        bench.figure(f"{name}, per core", rows / cpu, "rows/s", aim, "more")
