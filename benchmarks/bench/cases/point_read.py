"""How long the row of one key takes in a large table of the version index."""

from __future__ import annotations

import numpy as np

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.point_reads import DuckDbPoints, PointReads, Took
from bench.inputs.size import size
from bench.inputs.updated_table import updated_table
from bench.measure import Bench

WHAT = (
    "the row of one key (ListRows with `key`, without HTTP) in a table of SIZE rows, usually 1,000,000: "
    "a base run and four runs above it, each with updates of a hundredth of the rows, as files; random keys, one thread"
)
ROWS, KEYS, COLD, COMPARED = 1_000_000, 300, 50, 10
AIM_MS, AIM_GETS = 100, 8


def run(bench: Bench) -> None:
    """See WHAT."""
    table = updated_table(bench.tmp / "objects", size(ROWS))
    bench.figure("rows in the table", table.rows, "rows")
    bench.figure("objects", len(table.runs), "objects")
    bench.figure("size of the objects", sum(one.size for one in table.runs) / (1 << 20), "MiB")
    bench.figure("processor time to make and write the base run", table.write_cpu_s, "s")
    given = table.root, table.runs, table.base_ts, table.end_ts, False
    asked = np.sort(np.random.default_rng(7).integers(1, table.rows + 1, KEYS)).tolist()
    some, few = asked[:: KEYS // COLD], asked[:: KEYS // COMPARED]
    duck_given = table.paths, table.base_ts, False
    bench.agree({"tistream": PointReads(*given, few).values(), "DuckDB": DuckDbPoints(*duck_given, few)()})
    with bench.remote(PointReads, *given, some, **ONE_THREAD) as cold:
        cold()
        latencies(bench, "no footer known", cold(True), AIM_MS, AIM_GETS)
    with bench.remote(PointReads, *given, asked, **ONE_THREAD) as warm:
        warm()
        took = warm()
        assert {one.found for one in took} == {1}
        latencies(bench, "footers known", took, AIM_MS, AIM_GETS)
    with (
        bench.remote(PointReads, *given, few, **ONE_THREAD) as ours,
        bench.remote(DuckDbPoints, *duck_given, few, **ONE_THREAD) as duck,
    ):
        bench.compare("single keys", {"tistream": ours, "DuckDB": duck}, amount=len(few), unit="keys")


def latencies(
    bench: Bench, how: str, took: list[Took], aim_ms: float | None = None, aim_gets: int | None = None
) -> None:
    """Percentiles of the wall and of the processor time of each answer, and its GET requests. `aim_ms` is on wall time,
    which depends on what else the machine does."""
    for name, seconds in (("wall", [one.wall_s for one in took]), ("processor", [one.cpu_s for one in took])):
        for percent in (50, 99):
            aim = aim_ms if (name, percent) == ("wall", 99) else None
            value = float(np.percentile(seconds, percent)) * 1000
            bench.figure(f"{how}: {name} time, p{percent} of {len(took)}", value, "ms", aim)
    bench.figure(f"{how}: GETs, mean", float(np.mean([one.gets for one in took])), "requests")
    bench.figure(f"{how}: GETs, at most", max(one.gets for one in took), "requests", aim_gets)
