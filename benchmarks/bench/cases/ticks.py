"""What a tick costs that has little to do: the whole of it, from a file's reference to the committed manifest."""

from __future__ import annotations

import shutil
import statistics

from bench.contenders.ticks import WARM_TICKS, TickNode
from bench.inputs.changes import Load, write
from bench.measure import Bench

WHAT = (
    "one tick of a sorter node on Spark local[2], from the references of files on a local disk to the committed "
    "manifest: plan, job, segments and pending parts, manifest"
)
MASTER = "local[2]"
ROUNDS = 25
USUAL = 4
TICKS = {"almost empty: 16 entries in 3 files": (8, 0.05), "20,000 entries in 3 files": (10_000, 0.15)}


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        for name, (transactions, aim) in TICKS.items():
            _measure(bench, name, bench.sized(transactions, scale), aim, scale)


def _measure(bench: Bench, name: str, transactions: int, aim: float, scale: int) -> None:
    seconds = ROUNDS + WARM_TICKS
    root = bench.tmp / str(transactions)
    load = Load(transactions=transactions * seconds, seconds=seconds, stores=3, regions=9)
    written = write(load, root)
    with bench.remote(TickNode, str(root), written.keys, written.snapshot_ts, MASTER) as node:
        bench.compare(name, {"tistream": node}, ROUNDS, unit="ticks", scale=scale, warm=False)
    own = [sample.wall_s for sample in bench.samples if (sample.group, sample.scale) == (name, scale)]
    bench.figure(f"{name}, median", statistics.median(own), "s", aim, scale=scale)
    shutil.rmtree(root)
