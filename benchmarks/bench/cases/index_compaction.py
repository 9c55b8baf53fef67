"""What the version index of a task costs: processor time and bytes written for each change."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.index_compaction import DuckDbSort, IndexLife
from bench.inputs.changes import TENANT
from bench.inputs.mixed_rows import STEP
from bench.inputs.pulled_pool import SNAPSHOT_TS
from bench.inputs.size import size
from bench.inputs.version_runs import TASK, versions
from bench.measure import Bench
from tistream.format.segment import SCHEMA, SegmentRef
from tistream.pool.writer import write_segment
from tistream.storage import layout
from tistream.storage.open import open_objects
from tistream_sorter.upkeep.index_plan import IndexRules

WHAT = (
    "SIZE changes of a table, usually 2,000,000, four of each row, in 80 segments: whatever the sorter's planner finds "
    "due after each segment is merged, as executors do, and at the end all rows are in runs; once without retention, "
    "once with one of a quarter of the time, so that runs are folded into the base. Runs have 1 MiB, not 16, so that "
    "there are as many tiers as after some GiB. DuckDB sorts the segments once; files, one thread"
)
ROWS, SEGMENTS, CHANGES_OF_A_ROW = 2_000_000, 80, 4
ENTRIES_PER_S, AIM_CORES, AIM_WRITES = 20_000, 0.3, 4.0
RULES = IndexRules(age_ms=1_000, wait_ms=200_000, run_bytes=1 << 20)


def run(bench: Bench) -> None:
    """See WHAT."""
    rows, root = size(ROWS), bench.tmp / "objects"
    root.mkdir()
    segments = put_segments(root, rows)
    bench.figure("changes", rows, "changes")
    bench.figure("size of the segments", sum(one.size for one in segments) / (1 << 20), "MiB")
    paths, target = [str(root / one.key) for one in segments], str(bench.tmp / "sorted.parquet")
    for keep_ms, group in ((None, "every version kept"), (rows // 4, "with a retention")):
        with (
            bench.remote(IndexLife, str(root), segments, RULES, keep_ms, **ONE_THREAD) as ours,
            bench.remote(DuckDbSort, paths, target, **ONE_THREAD) as duck,
        ):
            life = ours()
            if keep_ms is None:
                bench.agree({"tistream": life.versions, "DuckDB": duck()})
            both = {"tistream": ours, "DuckDB": duck}
            bench.compare(group, both, min(bench.rounds, 3), rows, "changes", warm=False)
        cpu = statistics.median(s.cpu_s for s in bench.samples if (s.group, s.contender) == (group, "tistream"))
        bench.figure(f"{group}: merges", life.merges, "merges")
        bench.figure(f"{group}: bytes written for each byte of segments", life.written / life.taken, "", AIM_WRITES)
        bench.figure(f"{group}: at {ENTRIES_PER_S:,} changes/s", ENTRIES_PER_S * cpu / rows, "cores", AIM_CORES)


def put_segments(root: Path, rows: int) -> list[SegmentRef]:
    """Write the changes, one a millisecond, of random rows."""
    objects, each, out = open_objects(str(root)), rows // SEGMENTS, []
    for number in range(SEGMENTS):
        rng = np.random.default_rng(number)
        commit_ts = SNAPSHOT_TS + STEP * np.arange(number * each + 1, (number + 1) * each + 1)
        table = versions(rng.integers(1, rows // CHANGES_OF_A_ROW + 1, each), commit_ts, number, 0.02)
        table = table.append_column("old_value", table.column("value")).select(SCHEMA.names)
        table = table.take(pa.array(np.argsort(table.column("commit_ts").to_numpy())))
        body, ref = write_segment(table.cast(SCHEMA), layout.segment(TENANT, TASK, 1, f"{number:04x}", 0))
        objects.put(ref.key, body)
        out.append(ref)
    return out
