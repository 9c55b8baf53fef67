"""How long the history of one row takes."""

from __future__ import annotations

import numpy as np

from bench.cases.point_read import latencies
from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.point_reads import DuckDbPoints, PointReads
from bench.inputs.size import size
from bench.inputs.updated_table import updated_table
from bench.measure import Bench

WHAT = (
    "the versions of one row above the base run (RowHistory, without HTTP) in a table of SIZE rows, usually 1,000,000: "
    "a base run and four runs above it, each with updates of a hundredth of the rows, as files; random keys, one thread"
)
ROWS, KEYS, COMPARED = 1_000_000, 100, 10
AIM_MS = 100


def run(bench: Bench) -> None:
    """See WHAT."""
    table = updated_table(bench.tmp / "objects", size(ROWS))
    bench.figure("rows in the table", table.rows, "rows")
    given = table.root, table.runs, table.base_ts, table.end_ts, True
    asked = np.sort(np.random.default_rng(7).integers(1, table.rows + 1, KEYS)).tolist()
    few = asked[:: KEYS // COMPARED]
    duck_given = table.paths, table.base_ts, True
    ours_said = [one.found for one in PointReads(*given, few)()]
    bench.agree({"tistream": ours_said, "DuckDB": DuckDbPoints(*duck_given, few)()})
    with bench.remote(PointReads, *given, asked, **ONE_THREAD) as warm:
        warm()
        took = warm()
        latencies(bench, "footers known", took, AIM_MS)
        bench.figure("versions in an answer, at most", max(one.found for one in took), "versions")
    with (
        bench.remote(PointReads, *given, few, **ONE_THREAD) as ours,
        bench.remote(DuckDbPoints, *duck_given, few, **ONE_THREAD) as duck,
    ):
        bench.compare("histories", {"tistream": ours, "DuckDB": duck}, amount=len(few), unit="keys")
