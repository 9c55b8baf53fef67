"""A transaction far larger than the sorter's memory, and the lag of a task beside it."""

from __future__ import annotations

import shutil

from bench.contenders.huge import HUGE_TASK, HugeNode
from bench.inputs.changes import TENANT
from bench.inputs.huge import HugeLoad, check_of, stage
from bench.measure import Bench
from bench.proc_tree import PeakMemory
from tistream.format.segment import SegmentRef
from tistream.model.tidb_key import key_parts
from tistream.model.ts import Window
from tistream.pool.rows import read_row_group, row_groups_touching
from tistream.pool.task_log import TaskLog
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_objects
from tistream_cli.platform.up import JAVA_OPTIONS

WHAT = (
    "one transaction of 20 M rows of 512 bytes (4 M, 2 GB, where the disk has no room), prewritten and then committed "
    "in files of a second each, through a sorter node with its default settings on Spark local[2], its JVM as in "
    "`tistream up`; a second task beside it is written as usual. Memory is what was seen, ten times a second; nothing "
    "limits it from outside"
)
MASTER = "local[2]"
VALUE_BYTES = 512
ROWS, ROWS_MIN = 20_000_000, 4_000_000  # 10 GB of values where the disk has the room, else 2 GB
DISK_TIMES = 3  # staged files, the pool, and room to breathe
ROWS_PER_SECOND = 60_000
USUAL = 16


def run(bench: Bench) -> None:
    """See WHAT."""
    room = shutil.disk_usage(bench.tmp).free
    rows = ROWS if room > ROWS * VALUE_BYTES * DISK_TIMES else ROWS_MIN
    for scale in bench.scales:
        measure(bench, bench.sized(rows, scale), scale)


def measure(bench: Bench, rows: int, scale: int = 1) -> None:
    """One transaction of so many rows."""
    prewriting = -(-rows // ROWS_PER_SECOND)
    load = HugeLoad(rows, VALUE_BYTES, prewriting, -(-prewriting // 4))
    root, staging = bench.tmp / f"objects-{scale}", bench.tmp / f"staging-{scale}"
    root.mkdir()
    staging.mkdir()
    staged = stage(load, staging)
    with (
        bench.remote(HugeNode, str(root), MASTER, JAVA_TOOL_OPTIONS=JAVA_OPTIONS) as node,
        PeakMemory(node.pid) as peak,
    ):
        seen = node(staged, load.seconds * 20.0)
    written = sum(path.stat().st_size for path in (root / "committed").rglob("*") if path.is_file())
    bench.agree({"pushed": (rows, staged.check), "pool": _pool(open_objects(str(root)), load)})
    gib = 1 << 30
    bench.figure("values of the transaction", rows * VALUE_BYTES / gib, "GiB", scale=scale)
    bench.figure("pushed", staged.bytes / gib, "GiB", scale=scale)
    bench.figure("bytes written / bytes pushed", written / staged.bytes, "", 1.3, scale=scale)
    bench.figure("memory of driver, JVM and workers, most", peak.bytes / gib, "GiB", 2, scale=scale)
    bench.figure("lag of the other task, most", seen["lag_max_s"], "s", 10, scale=scale)
    bench.figure("lag of the other task, 99th percentile", seen["lag_p99_s"], "s", scale=scale)
    bench.figure("from the first file to all flushed", seen["seconds"], "s", scale=scale)
    bench.figure("of which the files took", load.seconds, "s", scale=scale)
    bench.figure("longest tick in the node's loop", seen["longest_tick_s"], "s", scale=scale)
    bench.figure("manifests", seen["ticks"], "", scale=scale)
    for folder in (root, staging):
        shutil.rmtree(folder)


def _pool(objects: ObjectStore, load: HugeLoad) -> tuple[int, int]:
    """(rows of the huge transaction in the pool, the check of their values); they must be in one manifest."""
    log = TaskLog(objects, TENANT, HUGE_TASK)
    log.refresh()
    rows = check = 0
    for segment in log.segments:
        for index in row_groups_touching(segment, Window(load.commit_ts - 1, load.commit_ts), None):
            found, value = _group(objects, segment, index, load)
            rows += found
            check += value
    return rows, check % (1 << 64)


def _group(objects: ObjectStore, segment: SegmentRef, index: int, load: HugeLoad) -> tuple[int, int]:
    table = read_row_group(objects, segment, index, ["commit_ts", "start_ts", "key", "value"])
    assert (table["start_ts"].to_numpy() == load.start_ts).all()
    assert len(set(key_parts(table["key"]).table_id.tolist())) == 1
    return table.num_rows, check_of(table["value"], VALUE_BYTES)
