"""How fast runs of the version index are merged, on one core, beside Polars."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Sequence

import polars as pl
import pyarrow.parquet as pq

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.index_merge import Merge, PolarsMerge
from bench.inputs.pulled_pool import SNAPSHOT_TS
from bench.inputs.size import size
from bench.inputs.version_runs import runs_above
from bench.measure import Bench
from tistream.storage.open import open_objects

WHAT = (
    "eight runs of the version index (real rows of ten columns, half as many keys as versions, a twentieth deletes) "
    "read, merged and written as one run with every version, and folded into a base run with the newest of each key; "
    "SIZE versions, usually 1,000,000; one thread"
)
RUNS, VERSIONS = 8, 1_000_000


def digest(paths: Sequence[str]) -> tuple[int, str]:
    """The rows of the objects, and a hash of their keys, timestamps and values, in order."""
    names = ["key", "commit_ts", "op", "value"]
    rows = pl.concat([pl.DataFrame(pq.read_table(path, columns=names)).select(names) for path in paths])
    return len(rows), hashlib.sha256(rows.hash_rows().to_numpy().tobytes()).hexdigest()


def run(bench: Bench) -> None:
    """See WHAT."""
    root, count = bench.tmp / "objects", size(VERSIONS) // RUNS
    root.mkdir()
    runs = runs_above(open_objects(str(root)), RUNS, count, RUNS * count // 2, SNAPSHOT_TS, 0.05)
    paths = [str(root / run.key) for run in runs]
    bench.figure("versions merged", RUNS * count, "versions")
    for fold, group in ((False, "every version"), (True, "folded: the newest of each key")):
        target = str(bench.tmp / "polars.parquet")
        with (
            bench.remote(Merge, str(root), runs, fold, **ONE_THREAD) as ours,
            bench.remote(PolarsMerge, paths, target, fold, **ONE_THREAD) as polars,
        ):
            bench.agree({"tistream": digest(ours()), "Polars": digest(polars())})
            both = {"tistream": ours, "Polars": polars}
            bench.compare(group, both, amount=RUNS * count, unit="versions", warm=False)
        for name in both:
            cpu = statistics.median(s.cpu_s for s in bench.samples if (s.group, s.contender) == (group, name))
            bench.figure(f"{name}, {group}, per core", RUNS * count / cpu, "versions/s", better="more")
