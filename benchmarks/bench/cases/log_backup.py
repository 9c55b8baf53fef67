"""How fast a log backup is read, joined, sorted and written as change files."""

from __future__ import annotations

import statistics

from bench.contenders.log_releases import LogReleases
from bench.inputs.log_bucket import put_log
from bench.inputs.size import size
from bench.measure import Bench
from tistream.service import allocators
from tistream.storage.open import open_objects

WHAT = (
    "one release of a log backup of SIZE changes, usually 1,000,000, of 8 tables and 4 stores in 20 flushes, two "
    "changes of a row, one value of 20 in `default`, an eighth of the slices twice: planned, read, sorted and written "
    "as change files, Spark local[2], files on disk; old values from the window"
)
CHANGES, CORES, GROUP = 1_000_000, 2, "a release"
AIM_ENTRIES, AIM_BYTES, AIM_MEMORY = 1e6, 200.0, 2048.0  # on two cores


def run(bench: Bench) -> None:
    """See WHAT."""
    folders = {name: bench.tmp / name for name in ("log", "objects")}
    for folder in folders.values():
        folder.mkdir()
    written = put_log(open_objects(str(folders["log"])), size(CHANGES))
    bench.figure("changes", written.changes, "changes")
    bench.figure("entries in the log", written.entries, "entries")
    bench.figure("the log, unpacked", written.bytes / (1 << 20), "MiB")
    with bench.remote(
        LogReleases, str(folders["log"]), str(folders["objects"]), f"local[{CORES}]", **allocators.ENVIRON
    ) as ours:
        bench.agree({"asked": written.changes, "released": ours()})
        bench.compare(GROUP, {"tistream": ours}, min(bench.rounds, 3), written.entries, "entries", warm=False)
    cpu = statistics.median(s.cpu_s for s in bench.samples if s.group == GROUP)
    memory = max(s.memory_bytes for s in bench.samples if s.group == GROUP)
    two = cpu / CORES
    bench.figure("entries on two cores, by processor time", written.entries / two, "entries/s", AIM_ENTRIES, "more")
    bench.figure(
        "unpacked log on two cores, by processor time", written.bytes / (1 << 20) / two, "MiB/s", AIM_BYTES, "more"
    )
    bench.figure("memory of driver, JVM and workers", memory / (1 << 20), "MiB", AIM_MEMORY)
