"""The sorter's job on a Spark standalone cluster of two workers beside local[2]."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from bench.cases.sorter_job import digest
from bench.contenders.sorter_job import SorterJob
from bench.inputs.changes import Load, write
from bench.measure import Bench
from support.spark_cluster import CLIENT_SETTINGS, standalone

WHAT = (
    "a Spark standalone cluster on this machine, a master and two workers of one core, beside local[2]: the input of "
    "sorter-job, and a tenth and a hundredth of it; the same answers. Processor time and memory are the driver's: on "
    "the cluster the executors are other processes"
)
SIZES = {"4 M entries": 2_000_000, "400,000 entries": 200_000, "40,000 entries": 20_000}
SECONDS = 10


def run(bench: Bench) -> None:
    """See WHAT."""
    with standalone(bench.tmp, workers=2, cores=1) as cluster:
        for name, transactions in SIZES.items():
            _compare(bench, name, transactions, cluster)


def _compare(bench: Bench, name: str, transactions: int, cluster: str) -> None:
    root = bench.tmp / f"objects-{transactions}"
    load = Load(transactions=transactions, seconds=SECONDS)
    written = write(load, root)
    keys = [key for second in written.keys for key in second]
    given = (str(root), keys, written.snapshot_ts)
    with (
        bench.remote(SorterJob, *given, "local[2]") as local,
        bench.remote(SorterJob, *given, cluster, 8 << 20, CLIENT_SETTINGS) as remote,
    ):
        answers = {}
        for who, called in {"local[2]": local, "cluster": remote}.items():
            segments, rows, _ = called()
            assert rows == load.transactions
            answers[who] = digest([str(root / key) for key in segments])
        bench.agree(answers)

        def reset() -> None:
            shutil.rmtree(root / "committed", ignore_errors=True)

        contenders: dict[str, Callable[[], object]] = {"local[2]": local, "cluster of two workers": remote}
        bench.compare(name, contenders, bench.rounds, load.entries, "entries", reset=reset, warm=False)
        best = {
            who: min(s.wall_s for s in bench.samples if (s.group, s.contender) == (name, who)) for who in contenders
        }
        more = best["cluster of two workers"] - best["local[2]"]
        bench.figure(f"{name}: what the cluster takes longer, best rounds", 1000 * more, "ms")
    shutil.rmtree(root)
