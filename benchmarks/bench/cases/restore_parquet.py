"""How fast a table is restored as Parquet files."""

from __future__ import annotations

import statistics

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.restored_chunks import RestoredChunks
from bench.inputs.mixed_rows import STEP
from bench.inputs.pulled_pool import SNAPSHOT_TS
from bench.inputs.size import size
from bench.inputs.version_runs import base_run
from bench.measure import Bench
from tistream.storage.open import open_objects

WHAT = (
    "a table of SIZE rows of ten columns, usually 400,000, restored as Parquet files: counted, read from a base run, "
    "decoded, written, read back and compared, as executors do; files, one thread"
)
ROWS, GROUP, AIM = 400_000, "a restore", 8e5


def run(bench: Bench) -> None:
    """See WHAT."""
    rows = size(ROWS)
    root = bench.tmp / "objects"
    root.mkdir()
    ts = SNAPSHOT_TS + STEP * rows
    runs = list(base_run(open_objects(str(root)), rows, ts))
    with bench.remote(RestoredChunks, str(root), runs, ts, str(bench.tmp / "restored"), **ONE_THREAD) as ours:
        bench.agree({"asked": rows, "restored": ours()})
        bench.figure("rows in the table", rows, "rows")
        bench.compare(GROUP, {"tistream": ours}, amount=rows, unit="rows", warm=False)
    cpu = statistics.median(s.cpu_s for s in bench.samples if s.group == GROUP)
    bench.figure("rows restored, per core", rows / cpu, "rows/s", AIM, "more")
