"""How fast the rows of a BR full backup become base chunks."""

from __future__ import annotations

import statistics

from bench.cases.pull_decode import ONE_THREAD
from bench.contenders.br_full import BackupChunks, RocksIteration
from bench.inputs.full_backup import put_backup
from bench.inputs.size import size
from bench.measure import Bench

WHAT = (
    "a BR full backup of a table of SIZE rows of ten columns, usually 400,000, in regions of 200,000 rows, one value "
    "of 20 in `default`, compressed by zstd as BR does by default: copied, checked by SHA-256, decoded, joined, and "
    "written as base chunks; files, one thread. RocksDB alone iterates over the entries of `write` in a Python loop"
)
ROWS, GROUP = 400_000, "a backup"
AIM_ROWS, AIM_BYTES = 5e5, 150.0  # per core


def run(bench: Bench) -> None:
    """See WHAT."""
    backup = put_backup(bench.tmp / "backup", size(ROWS))
    bench.figure("rows in the backup", backup.rows, "rows")
    bench.figure("size of its SST files", backup.bytes / (1 << 20), "MiB")
    with (
        bench.remote(BackupChunks, backup.root, str(bench.tmp / "chunks"), **ONE_THREAD) as ours,
        bench.remote(RocksIteration, backup.files, **ONE_THREAD) as rocks,
    ):
        bench.agree({"tistream": ours(), "RocksDB alone": rocks(), "asked": backup.rows})
        both = {"tistream": ours, "RocksDB alone": rocks}
        bench.compare(GROUP, both, amount=backup.rows, unit="rows", warm=False)
    cpu = statistics.median(s.cpu_s for s in bench.samples if (s.group, s.contender) == (GROUP, "tistream"))
    bench.figure("rows, per core", backup.rows / cpu, "rows/s", AIM_ROWS, "more")
    bench.figure("bytes of SST files, per core", backup.bytes / (1 << 20) / cpu, "MiB/s", AIM_BYTES, "more")
