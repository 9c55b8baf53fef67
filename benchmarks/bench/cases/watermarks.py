"""A million regions that each send a watermark every second."""

from __future__ import annotations

import statistics

from bench.contenders.watermarks import Dispatcher, PlainReader, PolarsUpdate, Seconds, Sorter
from bench.measure import Bench

WHAT = (
    "1,000,000 regions of 100 stores, one file a store and second, nothing written: from the files in memory to the "
    "task's watermark, in ten batches and ticks a second; one process, one thread"
)
REGIONS, STORES = 1_000_000, 100
AIM_CORES = 0.5
USUAL = 16


def run(bench: Bench) -> None:
    """See WHAT. A round is one second of the cluster: the seconds of processor time are cores."""
    for scale in bench.scales:
        _measure(bench, bench.sized(REGIONS, scale), scale)


def _measure(bench: Bench, regions: int, scale: int) -> None:
    seconds = Seconds(regions, STORES)
    dispatcher = Dispatcher(seconds)
    sorter, polars, plain = Sorter(dispatcher), PolarsUpdate(dispatcher, regions), PlainReader(seconds)
    for _ in range(2):  # the first second covers every region by a scan; in the second, each is found by its id
        seconds.next()
        for step in (dispatcher, plain, sorter, polars):
            step()
    read = "dispatcher: files to batches"
    taken = "sorter: batches to watermark"
    for _ in range(bench.rounds):
        seconds.next()
        bench.compare(read, {"tistream": dispatcher, "pyarrow alone": plain}, 1, regions, "rows", scale, warm=False)
        bench.compare(taken, {"tistream": sorter, "Polars join": polars}, 1, regions, "rows", scale, warm=False)
        bench.agree({"rows": plain.rows, "regions": regions})
        bench.agree({"tistream": sorter.watermark, "Polars": polars.watermark})
    cores = {group: _cores(bench, group, scale) for group in (read, taken)}
    bench.figure("watermark code, sorter", cores[taken], "cores", AIM_CORES, scale=scale)
    whole = sum(cores.values())
    bench.figure("the same with reading and routing files", whole, "cores", AIM_CORES, scale=scale)


def _cores(bench: Bench, group: str, scale: int) -> float:
    own = [s.cpu_s for s in bench.samples if (s.group, s.contender, s.scale) == (group, "tistream", scale)]
    return statistics.median(own)
