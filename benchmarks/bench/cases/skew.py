"""The sorter's Spark job where the traffic is not spread evenly."""

from __future__ import annotations

import shutil
from dataclasses import replace

from bench.cases.sorter_job import CORES, TRANSACTIONS, digest
from bench.contenders.plain_engines import DuckDb
from bench.contenders.sorter_job import SorterJob
from bench.inputs.changes import Load, write
from bench.measure import Bench

WHAT = (
    "the input of sorter-job in other shapes: 64 tables with equal traffic; one table that has it all; all keys in one "
    "of 8 regions; one key updated 100,000 times among others"
)
SECONDS = 10
USUAL = 4
LOADS = {
    "64 tables": Load(TRANSACTIONS, SECONDS, tables=64, regions=64),
    "one table": Load(TRANSACTIONS, SECONDS),
    "one region": Load(TRANSACTIONS, SECONDS, spread="region"),
    "one key 100,000 times": Load(TRANSACTIONS, SECONDS, spread="key"),
}


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        for name, load in LOADS.items():
            transactions, hot = bench.sized(load.transactions, scale), bench.sized(load.hot_updates, scale)
            _compare(bench, name, replace(load, transactions=transactions, hot_updates=hot), scale)


def _compare(bench: Bench, name: str, load: Load, scale: int) -> None:
    root, target = bench.tmp / "objects", bench.tmp / "out"
    written = write(load, root)
    keys = [key for second in written.keys for key in second]

    def reset() -> None:
        shutil.rmtree(root / "committed", ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)

    with (
        bench.remote(SorterJob, str(root), keys, written.snapshot_ts, f"local[{CORES}]") as ours,
        bench.remote(DuckDb, [str(root / key) for key in keys], str(target), CORES) as duck,
    ):
        segments, _, _ = ours()
        bench.agree({"tistream": digest([str(root / key) for key in segments]), "DuckDB": digest(duck())})
        contenders = {"tistream": ours, "DuckDB": duck}
        bench.compare(name, contenders, 3, load.entries, "entries", scale, reset, warm=False)
    shutil.rmtree(root)
