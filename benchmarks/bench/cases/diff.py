"""How fast the net changes of a table are read."""

from __future__ import annotations

import statistics

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.net_reads import Diff
from bench.inputs.mixed_rows import STEP
from bench.inputs.pulled_pool import SNAPSHOT_TS
from bench.inputs.size import size
from bench.inputs.version_runs import base_run, runs_above
from bench.measure import Bench
from tistream.storage.open import open_objects

WHAT = (
    "what differs in a table of SIZE rows, usually 1,000,000, between its base and the end (DiffTable as Arrow, "
    "without HTTP): a base run and four runs above it, together with updates and deletes of a tenth of the rows; "
    "files, one thread"
)
ROWS, RUNS, SHARE, DELETED, AIM = 1_000_000, 4, 10, 0.05, 5e5
GROUP = "a diff"


def run(bench: Bench) -> None:
    """See WHAT."""
    rows = size(ROWS)
    root = bench.tmp / "objects"
    root.mkdir()
    objects = open_objects(str(root))
    base_ts = SNAPSHOT_TS + STEP * rows
    each = rows // SHARE // RUNS
    runs = [*base_run(objects, rows, base_ts), *runs_above(objects, RUNS, each, rows, base_ts, DELETED)]
    end_ts = runs[-1].high_ts
    with bench.remote(Diff, str(root), runs, base_ts, end_ts, rows, **ONE_THREAD) as ours:
        keys = ours()
        assert each < keys <= RUNS * each, keys
        bench.figure("rows in the table", rows, "rows")
        bench.figure("keys that differ", keys, "keys")
        bench.compare(GROUP, {"tistream": ours}, amount=keys, unit="keys", warm=False)
    cpu = statistics.median(s.cpu_s for s in bench.samples if s.group == GROUP)
    bench.figure("keys that differ, per core", keys / cpu, "keys/s", AIM, "more")
