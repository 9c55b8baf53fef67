"""How fast the net changes of a table are read."""

from __future__ import annotations

import statistics

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.net_reads import Diff
from bench.inputs.mixed_rows import STEP
from bench.inputs.pulled_pool import SNAPSHOT_TS
from bench.inputs.size import size
from bench.inputs.version_runs import base_run, runs_above, segments_above
from bench.measure import Bench
from tistream.storage.open import open_objects

WHAT = (
    "what differs in a table of SIZE rows, usually 1,000,000, between its base and the end (DiffTable as Arrow, "
    "without HTTP): updates and deletes of a tenth of the rows, in four runs above a base run and in the segments that "
    "these came from. The runs alone are read where the segments are too large to be sorted by key; files, one thread"
)
ROWS, RUNS, SHARE, DELETED, AIM = 1_000_000, 4, 10, 0.05, 5e5
GROUP, SEGMENTS, RUNS_ALONE = "a diff", "tistream: by the segments", "tistream: by the runs"


def run(bench: Bench) -> None:
    """See WHAT."""
    rows = size(ROWS)
    root = bench.tmp / "objects"
    root.mkdir()
    objects = open_objects(str(root))
    base_ts = SNAPSHOT_TS + STEP * rows
    each = rows // SHARE // RUNS
    base = list(base_run(objects, rows, base_ts))
    above = runs_above(objects, RUNS, each, rows, base_ts, DELETED)
    pool = str(root), [*base, *above], base_ts, above[-1].high_ts, rows
    with (
        bench.remote(Diff, *pool, segments_above(objects, base, above), **ONE_THREAD) as log,
        bench.remote(Diff, *pool, **ONE_THREAD) as runs,
    ):
        keys = log()
        bench.agree({SEGMENTS: keys, RUNS_ALONE: runs()})
        assert each < keys <= RUNS * each, keys
        bench.figure("rows in the table", rows, "rows")
        bench.figure("keys that differ", keys, "keys")
        bench.compare(GROUP, {SEGMENTS: log, RUNS_ALONE: runs}, amount=keys, unit="keys", warm=False)
    for name in (SEGMENTS, RUNS_ALONE):
        cpu = statistics.median(s.cpu_s for s in bench.samples if (s.group, s.contender) == (GROUP, name))
        bench.figure(f"{name}: keys that differ, per core", keys / cpu, "keys/s", AIM, "more")
